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
    """A waiting delivery is due now, ahead of the queue and even if the circuit is open. A dead or archived delivery
    starts a new round of attempts."""
    SKIP = "skip"
    """Waiting deliveries become dead letters without another attempt."""
    RESOLVE = "resolve"
    DELETE = "delete"
    """The dead letter disappears from every list; its attempt log is kept."""
    CANCEL = "cancel"


ACTS_ON: dict[ActionKind, States] = {
    ActionKind.RETRY: frozenset({DeliveryState.PENDING, DeliveryState.DEAD, DeliveryState.ARCHIVED}),
    ActionKind.SKIP: frozenset({DeliveryState.PENDING}),
    ActionKind.RESOLVE: frozenset({DeliveryState.DEAD, DeliveryState.ARCHIVED}),
    ActionKind.DELETE: frozenset({DeliveryState.DEAD, DeliveryState.ARCHIVED}),
    ActionKind.CANCEL: frozenset({DeliveryState.PENDING}),
}
"""The states in which each action is possible. In any other state it is rejected, and the result names the state."""


class Action(Record, frozen=True, kw_only=True):
    kind: ActionKind
    org_id: UUID
    delivery_ids: tuple[UUID, ...]
    actor: str
    """Who acts: the prefix of an API key, a person, or the name of a service."""
    at: Instant
    reason: str = ""
    revive_at: Instant = 0
    """RETRY: when a dead or archived delivery becomes due in its new round."""
    payload: bytes | None = None
    """RETRY of a dead letter: sent from now on instead of the payload of the event, byte for byte."""
    forced: bool = True
    """RETRY: go ahead of the queue, even if the circuit is open. If False, the delivery only becomes due."""
    only_in: States | None = None
    """The states of the list that was acted on. Deliveries in other states are rejected. None allows any state."""
    audited_as: tuple[str, str] | None = None
    """The action and the subject of the audit entry. None means the kind and the deliveries of this action."""

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
