"""Lists of stored things: what is asked for, and one page of the answer."""

from __future__ import annotations

from typing import Generic, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.event import EventStatus
from doorstep.model.record import Record

T = TypeVar("T")


class Page(Record, Generic[T], frozen=True):
    """Some items in the order of their list. A page may be short, even empty, and still have a next one:
    a rare match must not cost a walk through everything in one go."""

    items: tuple[T, ...]
    next: str | None = None
    """The cursor of the next page: text that only the store understands."""


class Count(Record, frozen=True):
    """How many there are, counted no further than a limit."""

    value: int
    exact: bool


class EventFilter(Record, frozen=True, kw_only=True):
    status: EventStatus | None = None
    event_type: str | None = None
    """Exact, or a pattern whose final `*` stands for any rest."""
    created_from: Instant | None = None
    """By the time in the event's id, which is that of its creation to the microsecond."""
    created_before: Instant | None = None
    oldest_first: bool = False
    """Otherwise the newest come first."""


class RetryQueueFilter(Record, frozen=True, kw_only=True):
    """Which deliveries of the retry queue: those that failed and will be tried again, or are being tried again."""

    waiting: bool | None = None
    """True: only those that wait; False: only those in progress."""
    event_type: str | None = None
    endpoint_id: UUID | None = None
    failed_before: Instant | None = None
    """Only those whose first failure is older."""


class DeadLetterFilter(Record, frozen=True, kw_only=True):
    """Which dead letters. Deleted ones are in no list."""

    archived: bool = False
    """Those that nobody touched for a week (`archived_before`), instead of the others."""
    archived_before: Instant = 0
    """Dead letters that died before this instant are archived, whether the cleaner has come by or not."""
    event_type: str | None = None
    endpoint_id: UUID | None = None
    cause: int | None = None
    died_from: Instant | None = None
    died_before: Instant | None = None


class CauseGroup(Record, frozen=True, kw_only=True):
    """Dead letters that died of the same: same endpoint, same code, same message but for its numbers and names."""

    cause: int
    endpoint_id: UUID
    code: str
    reason: str
    """The message of the newest one, as it is."""
    count: Count
    first_died_at: Instant
    last_died_at: Instant
    sample_id: UUID
    """The newest delivery of the group."""
