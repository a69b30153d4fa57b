"""Actions of operators on deliveries, and the audit entry that each action writes."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.delivery import DEAD_STATES, DeliveryState, States
from doorstep.model.record import Record

REASON_CHARACTERS_MAX = 500
"""The maximum length of the reason that an operator gives for an action."""


class ActionKind(StrEnum):
    RETRY = "retry"
    """Make a waiting delivery due now, ahead of the queue and even if the circuit is open. Start a new round of
    attempts for a dead or archived delivery."""
    SKIP = "skip"
    """Turn waiting deliveries into dead letters without another attempt."""
    RESOLVE = "resolve"
    DELETE = "delete"
    """Remove the dead letter from every list, but keep its attempt log."""
    CANCEL = "cancel"


ACTS_ON: dict[ActionKind, States] = {
    ActionKind.RETRY: frozenset({DeliveryState.PENDING, DeliveryState.DEAD, DeliveryState.ARCHIVED}),
    ActionKind.SKIP: frozenset({DeliveryState.PENDING}),
    ActionKind.RESOLVE: frozenset({DeliveryState.DEAD, DeliveryState.ARCHIVED}),
    ActionKind.DELETE: frozenset({DeliveryState.DEAD, DeliveryState.ARCHIVED}),
    ActionKind.CANCEL: frozenset({DeliveryState.PENDING}),
}
"""The states in which each action is possible. In any other state, the action is rejected, and the result names the
state."""


class Action(Record, frozen=True, kw_only=True):
    kind: ActionKind
    org_id: UUID
    delivery_ids: tuple[UUID, ...]
    actor: str
    """Who acts: the prefix of an API key, a person, or the name of a service."""
    at: Instant
    reason: str = ""
    revive_at: Instant = 0
    """For RETRY: the time at which a dead or archived delivery becomes due again."""
    payload: bytes | None = None
    """For RETRY of a dead letter: the payload to send from now on, byte for byte, instead of the event's payload."""
    forced: bool = True
    """For RETRY: whether to go ahead of the queue, even if the circuit is open. If False, the delivery becomes due like
    any other."""
    only_in: States | None = None
    """The states shown in the list from which the operator chose the deliveries. Deliveries in any other state are
    rejected. None allows any state."""
    audited_as: tuple[str, str] | None = None
    """The action and the subject of the audit entry. If None, the entry names the kind and the deliveries of this
    action."""

    @property
    def possible_in(self) -> States:
        """The states in which the action is possible; a payload can only be edited if the delivery is dead or archived."""
        possible = ACTS_ON[self.kind] if self.payload is None else ACTS_ON[self.kind] & DEAD_STATES
        return possible if self.only_in is None else possible & self.only_in


class ActionResult(Record, frozen=True):
    done: tuple[UUID, ...]
    refused: dict[UUID, DeliveryState | None]
    """The state of each rejected delivery; None if this organization has no such delivery."""


class AuditEntry(Record, frozen=True, kw_only=True):
    """Who did what and when, to which ids, and with what result."""

    at: Instant
    org_id: UUID
    actor: str
    action: str
    subjects: tuple[str, ...]
    result: str
    reason: str = ""


def audit_entry(
    at: Instant, org_id: UUID, actor: str, action: str, *subjects: object, result: str, reason: str = ""
) -> AuditEntry:
    """An audit entry about these subjects, usually ids."""
    return AuditEntry(
        at=at,
        org_id=org_id,
        actor=actor,
        action=action,
        subjects=tuple(map(str, subjects)),
        result=result,
        reason=reason,
    )
