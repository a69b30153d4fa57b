"""Deliveries: one event for one endpoint, with a state, a history and, for dead letters, a cause."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from uuid import UUID

import msgspec

from doorstep.clock import Instant
from doorstep.model.record import Record


class DeliveryState(StrEnum):
    PENDING = "pending"
    """Waiting for its due time."""
    IN_PROGRESS = "in_progress"
    """Claimed by a worker, under a lease."""
    DELIVERED = "delivered"
    DEAD = "dead"
    """In the dead-letter queue: it failed permanently, or was skipped."""
    RESOLVED = "resolved"
    """An operator decided that it needs no delivery."""
    ARCHIVED = "archived"
    """A dead letter that nobody has acted on for a week."""
    CANCELLED = "cancelled"


class Transition(Record, frozen=True):
    """An allowed change of state, who may make it, and why it happens."""

    source: DeliveryState
    target: DeliveryState
    by: str
    why: str


_S = DeliveryState

TRANSITION_TABLE: tuple[Transition, ...] = (
    Transition(_S.PENDING, _S.IN_PROGRESS, "worker", "claimed"),
    Transition(_S.IN_PROGRESS, _S.DELIVERED, "worker", "the receiver accepted it"),
    Transition(_S.IN_PROGRESS, _S.PENDING, "worker", "failed and will be retried, or released without an attempt"),
    Transition(_S.IN_PROGRESS, _S.DEAD, "worker", "failed permanently"),
    Transition(_S.PENDING, _S.DEAD, "operator", "skipped, expired, or its endpoint was deleted"),
    Transition(_S.PENDING, _S.CANCELLED, "operator", "cancelled"),
    Transition(_S.DEAD, _S.PENDING, "operator", "retried"),
    Transition(_S.DEAD, _S.RESOLVED, "operator", "needs no delivery"),
    Transition(_S.DEAD, _S.ARCHIVED, "cleaner", "no action for a week"),
    Transition(_S.ARCHIVED, _S.PENDING, "operator", "retried"),
    Transition(_S.ARCHIVED, _S.RESOLVED, "operator", "needs no delivery"),
)
"""All allowed transitions. The code and the database reject all others."""

TRANSITIONS: frozenset[tuple[DeliveryState, DeliveryState]] = frozenset(
    (row.source, row.target) for row in TRANSITION_TABLE
)

States = frozenset[DeliveryState]
OPEN_STATES = frozenset({_S.PENDING, _S.IN_PROGRESS})
WAITING_STATES = frozenset({_S.PENDING})
DEAD_STATES = frozenset({_S.DEAD, _S.ARCHIVED})
DONE_STATES = frozenset({_S.DELIVERED, _S.RESOLVED})


class IllegalTransition(AssertionError):
    """A change of state that the table does not allow: always a bug in Doorstep."""


def check_transition(source: DeliveryState, target: DeliveryState) -> None:
    if (source, target) not in TRANSITIONS:
        raise IllegalTransition(f"a delivery cannot go from {source} to {target}")


class NewDelivery(Record, frozen=True):
    """A delivery that is accepted together with its event."""

    delivery_id: UUID
    endpoint_id: UUID
    due_at: Instant
    retries_max: int
    batch: bool = False
    """Whether its endpoint is a batch endpoint (model/batch.py)."""
    claimable: bool = False
    """Whether the caller of `accept` wants to claim it in the same transaction. It is due, and its endpoint has no limit
    that all workers share."""


class Delivery(Record, frozen=True, kw_only=True):
    """A delivery. `due_at` is the time of the next attempt or, while an attempt is in progress, the end of the lease.
    It is None if the delivery is settled or blocked."""

    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    org_id: UUID
    event_type: str
    state: DeliveryState
    due_at: Instant | None
    created_at: Instant
    attempt: int = 0
    """The number of the latest attempt, from 1. An operator's retry does not reset it."""
    retry_attempts: int = 0
    """Retries used in this round; a retry by an operator starts a new round at 0."""
    retries_max: int = 0
    forced: bool = False
    """Whether an operator retried it. If so, it is attempted ahead of the queue, even if the circuit is open."""
    claimed_at: Instant | None = None
    worker: str | None = None
    first_failed_at: Instant | None = None
    last_attempt_at: Instant | None = None
    settled_at: Instant | None = None
    category: str | None = None
    code: str | None = None
    reason: str | None = None
    response_code: int | None = None
    deleted: bool = False
    """Whether an operator deleted the dead letter. If so, only its log can still be read."""
    cause: int | None = None
    """The cause of a dead letter (see `cause_of`), until an operator retries it."""
    edited: bool = False
    """Whether an operator edited the payload of this delivery. If so, the edited payload is sent instead of the event's
    payload."""
    blocked: bool = False
    """Whether it is waiting for an earlier delivery of its ordering group and therefore has no due time yet."""
    batch: bool = False
    """Whether it submits a batch. The status of the batch is derived from this delivery."""

    @property
    def next_retry_at(self) -> Instant | None:
        """The time at which a worker will retry it; None before the first failure."""
        return self.due_at if self.state is DeliveryState.PENDING and self.attempt else None

    @property
    def remark(self) -> str | None:
        """The result as text for people. The retry number counts all rounds, like attempt numbers in the log."""
        if self.state is DeliveryState.DELIVERED and self.attempt > 1:
            return f"Succeeded on retry attempt {self.attempt - 1}"
        return self.reason


class Hold(Record, frozen=True):
    """What keeps a delivery from being attempted although it is due, or will be."""

    reason: str
    """A sentence for people."""
    until: Instant | None = None
    """None if nobody knows, because a person or another delivery must come first."""

    def delays(self, due_at: Instant | None) -> Instant | None:
        """When a delivery that is due at `due_at` will be attempted."""
        return None if self.until is None or due_at is None else max(self.until, due_at)


def as_seen(delivery: Delivery, now: Instant, archive_after: Instant) -> Delivery:
    """The delivery as people see it: an old dead letter is shown as archived, even if the cleaner has not run yet."""
    is_old = delivery.settled_at is not None and now - delivery.settled_at >= archive_after
    if delivery.state is DeliveryState.DEAD and is_old:
        return msgspec.structs.replace(delivery, state=DeliveryState.ARCHIVED)
    return delivery


class DeliveryPayload(Record, frozen=True):
    """The payload that is sent: the delivery's own payload if an operator edited it, otherwise the event's payload."""

    delivery_id: UUID
    payload: bytes


class HistoryEntry(Record, frozen=True):
    """One transition of a delivery. The first entry is the acceptance, which has no old state."""

    at: Instant
    old_state: DeliveryState | None
    new_state: DeliveryState
    attempt: int
    note: str

    @property
    def edits_payload(self) -> bool:
        """Whether an operator edited the payload in this transition."""
        return self.note.startswith(EDITED)


EDITED = "payload edited by "
"""The note of a retry with an edited payload starts with this text."""

_REASON_CHARACTERS_READ = 4_000
_REASON_CHARACTERS_KEPT = 300
"""The number of characters that are kept after ids have been removed. If the text were cut to this length before, an id
could be cut in two. It would then not be recognized, and the dead letter would get a separate cause."""

_PARTICULARS = re.compile(
    r"""
    [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}  # a UUID
    | \b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b                            # a long hexadecimal id
    | "[^"]*" | (?<!\w)'[^']*'(?!\w)                              # quoted text, but no apostrophe
    | \d+                                                         # any number
    """,
    re.VERBOSE | re.IGNORECASE,
)


def normalised(reason: str) -> str:
    """The message without ids, numbers and quoted text, which differ between dead letters with the same cause."""
    return _PARTICULARS.sub("#", reason[:_REASON_CHARACTERS_READ])[:_REASON_CHARACTERS_KEPT]


def cause_of(endpoint_id: UUID, code: str, reason: str) -> int:
    """A number that identifies the cause of a dead letter. It has 63 bits, so it fits into a database column."""
    words = f"{code}\0{normalised(reason)}".encode("utf-8", "replace")
    return int.from_bytes(blake2b(endpoint_id.bytes + words, digest_size=8).digest()) >> 1


class DeadLetter(Record, frozen=True, kw_only=True):
    """The argument of a dead-letter callback."""

    delivery_id: UUID
    event_id: UUID
    event_type: str
    endpoint: str
    """The name of the endpoint. For a handler this is the name of its function."""
    code: str
    reason: str
    """A sentence for people."""
    attempts: int
    org_id: UUID
    at: datetime
