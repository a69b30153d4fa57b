"""A delivery: one event owed to one endpoint. It is the thing that has a state."""

from __future__ import annotations

import re
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
    """In the dead-letter queue: the machine has given up on it."""
    RESOLVED = "resolved"
    """An operator said that it needs no delivery."""
    ARCHIVED = "archived"
    """A dead letter that nobody touched for a week."""
    CANCELLED = "cancelled"


class Transition(Record, frozen=True):
    """One allowed change of state, who may make it, and why it happens."""

    source: DeliveryState
    target: DeliveryState
    by: str
    why: str


_S = DeliveryState

TRANSITION_TABLE: tuple[Transition, ...] = (
    Transition(_S.PENDING, _S.IN_PROGRESS, "worker", "claimed"),
    Transition(_S.IN_PROGRESS, _S.DELIVERED, "worker", "the receiver accepted it"),
    Transition(_S.IN_PROGRESS, _S.PENDING, "worker", "failed and will be retried, or handed back untried"),
    Transition(_S.IN_PROGRESS, _S.DEAD, "worker", "failed for good"),
    Transition(_S.PENDING, _S.DEAD, "operator", "skipped, expired, or its endpoint was deleted"),
    Transition(_S.PENDING, _S.CANCELLED, "operator", "cancelled"),
    Transition(_S.DEAD, _S.PENDING, "operator", "retried"),
    Transition(_S.DEAD, _S.RESOLVED, "operator", "needs no delivery"),
    Transition(_S.DEAD, _S.ARCHIVED, "cleaner", "untouched for a week"),
    Transition(_S.ARCHIVED, _S.PENDING, "operator", "retried"),
    Transition(_S.ARCHIVED, _S.RESOLVED, "operator", "needs no delivery"),
)
"""The one table of what may follow what. Every pair that is not here is refused, by code and by the database."""

TRANSITIONS: frozenset[tuple[DeliveryState, DeliveryState]] = frozenset(
    (row.source, row.target) for row in TRANSITION_TABLE
)

States = frozenset[DeliveryState]
OPEN_STATES = frozenset({_S.PENDING, _S.IN_PROGRESS})
WAITING_STATES = frozenset({_S.PENDING})
DEAD_STATES = frozenset({_S.DEAD, _S.ARCHIVED})
DONE_STATES = frozenset({_S.DELIVERED, _S.RESOLVED})


class IllegalTransition(AssertionError):
    """A change of state that the table does not allow: a bug of ours, never the world's fault."""


def check_transition(source: DeliveryState, target: DeliveryState) -> None:
    if (source, target) not in TRANSITIONS:
        raise IllegalTransition(f"a delivery cannot go from {source} to {target}")


class NewDelivery(Record, frozen=True):
    """A delivery about to be accepted with its event."""

    delivery_id: UUID
    endpoint_id: UUID
    due_at: Instant
    retries_max: int
    batch: bool = False
    """It submits a batch: its endpoint is a batch endpoint (model/batch.py)."""


class Delivery(Record, frozen=True, kw_only=True):
    """A delivery as it stands. `due_at` is the next try, or the end of the lease; None when settled or blocked."""

    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    org_id: UUID
    event_type: str
    state: DeliveryState
    due_at: Instant | None
    created_at: Instant
    attempt: int = 0
    """The number of the latest attempt, from 1; it goes on counting when an operator retries."""
    retry_attempts: int = 0
    """Retries used in this round; an operator's retry starts a new round at 0."""
    retries_max: int = 0
    forced: bool = False
    """An operator asked for it now: goes ahead of the queue and through an open circuit."""
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
    """An operator deleted the dead letter; only its log is left to be seen."""
    cause: int | None = None
    """Of a dead letter: what it has in common with others (model/delivery.py); until an operator retries it."""
    edited: bool = False
    """An operator gave it a payload of its own, which goes out instead of the event's."""
    blocked: bool = False
    """Waits for an earlier one of its endpoint and ordering key to end; until then it has no due time."""
    batch: bool = False
    """It submits a batch, and is how the batch stands."""

    @property
    def next_retry_at(self) -> Instant | None:
        """The very time that the worker will use; None until something has failed."""
        return self.due_at if self.state is DeliveryState.PENDING and self.attempt else None

    @property
    def remark(self) -> str | None:
        """How it ended, in a sentence for people. Retries are counted over all rounds, as attempts are in the log."""
        if self.state is DeliveryState.DELIVERED and self.attempt > 1:
            return f"Succeeded on retry attempt {self.attempt - 1}"
        return self.reason


def as_seen(delivery: Delivery, now: Instant, archive_after: Instant) -> Delivery:
    """The delivery as people see it: an untouched dead letter is archived, even if the cleaner has not come by."""
    untouched = delivery.settled_at is not None and now - delivery.settled_at >= archive_after
    if delivery.state is DeliveryState.DEAD and untouched:
        return msgspec.structs.replace(delivery, state=DeliveryState.ARCHIVED)
    return delivery


class HistoryLine(Record, frozen=True):
    """One transition in a delivery's life. The first line, its acceptance, has no old state."""

    at: Instant
    old_state: DeliveryState | None
    new_state: DeliveryState
    attempt: int
    note: str


_REASON_CHARACTERS_READ = 4_000
_REASON_CHARACTERS_KEPT = 300
"""Read further than kept: an id that is cut in two would not be recognised, and make a cause of its own."""

_PARTICULARS = re.compile(
    r"""
    [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}  # a UUID
    | \b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b                            # a long hexadecimal id
    | "[^"]*" | (?<!\w)'[^']*'(?!\w)                              # what someone quoted, but no apostrophe
    | \d+                                                         # any number
    """,
    re.VERBOSE | re.IGNORECASE,
)


def normalised(reason: str) -> str:
    """The message without what differs from one letter to the next: ids, numbers, quoted names."""
    return _PARTICULARS.sub("#", reason[:_REASON_CHARACTERS_READ])[:_REASON_CHARACTERS_KEPT]


def cause_of(endpoint_id: UUID, code: str, reason: str) -> int:
    """A number that letters of one cause share, small enough for a database column (63 bits)."""
    words = f"{code}\0{normalised(reason)}".encode("utf-8", "replace")
    return int.from_bytes(blake2b(endpoint_id.bytes + words, digest_size=8).digest()) >> 1


class DeadLetter(Record, frozen=True, kw_only=True):
    """What a function that is told of dead letters is given."""

    delivery_id: UUID
    event_id: UUID
    event_type: str
    endpoint: str
    """The endpoint's name; of a handler, its function's."""
    code: str
    reason: str
    """A sentence for people."""
    attempts: int
    org_id: UUID
    at: Instant
