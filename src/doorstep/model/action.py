"""An act: what an operator does to deliveries. Every act is audited with its result."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.delivery import DEAD_STATES, DeliveryState, States
from doorstep.model.record import Record

REASON_CHARACTERS_MAX = 500
"""Why somebody did it, for the audit."""


class ActionKind(StrEnum):
    RETRY = "retry"
    """Waiting: due now, ahead of the queue, through an open circuit. Dead or archived: a new round."""
    SKIP = "skip"
    """Waiting deliveries become dead letters without another try."""
    RESOLVE = "resolve"
    DELETE = "delete"
    """A dead letter leaves every list; its attempt log stays."""
    CANCEL = "cancel"


ACTS_ON: dict[ActionKind, States] = {
    ActionKind.RETRY: frozenset({DeliveryState.PENDING, DeliveryState.DEAD, DeliveryState.ARCHIVED}),
    ActionKind.SKIP: frozenset({DeliveryState.PENDING}),
    ActionKind.RESOLVE: frozenset({DeliveryState.DEAD, DeliveryState.ARCHIVED}),
    ActionKind.DELETE: frozenset({DeliveryState.DEAD, DeliveryState.ARCHIVED}),
    ActionKind.CANCEL: frozenset({DeliveryState.PENDING}),
}
"""In which states each act is possible; in every other it is refused, with the state as the reason."""


class Action(Record, frozen=True, kw_only=True):
    kind: ActionKind
    org_id: UUID
    delivery_ids: tuple[UUID, ...]
    actor: str
    """Who: a key's prefix, a person, or the name of a service."""
    at: Instant
    reason: str = ""
    revive_at: Instant = 0
    """RETRY: when a dead or archived delivery becomes due in its new round."""
    payload: bytes | None = None
    """RETRY of a dead letter: goes out from now on instead of the event's payload, byte for byte."""
    forced: bool = True
    """RETRY: ahead of the queue and through an open circuit; without it, only due."""
    only_in: States | None = None
    """The states of the list that it was asked in: what has left them meanwhile is refused. None: of no list."""
    audited_as: tuple[str, str] | None = None
    """Action and subject in the audit, where they are not the kind and the deliveries."""

    @property
    def possible_in(self) -> States:
        """The states in which it is done; a payload is edited only of what the machine has given up on."""
        possible = ACTS_ON[self.kind] if self.payload is None else ACTS_ON[self.kind] & DEAD_STATES
        return possible if self.only_in is None else possible & self.only_in


class ActionResult(Record, frozen=True):
    done: tuple[UUID, ...]
    refused: dict[UUID, DeliveryState | None]
    """Why not: the state it is in, or None where there is no such delivery in this organization."""


class AuditEntry(Record, frozen=True, kw_only=True):
    """Who did what, when, to which ids, with what result."""

    at: Instant
    org_id: UUID
    actor: str
    action: str
    subjects: tuple[str, ...]
    result: str
    reason: str = ""
