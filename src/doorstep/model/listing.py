"""Queries of the store. Each class declares one list, with its order and its limits.

The type parameter is the type of the items. `Store.page` and `Store.count` take a `PagedQuery`, whose list may have any
length; `Store.find` takes a `BoundedQuery`, whose list is always short and is returned as a whole.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.attempt import Attempt, AttemptSummary
from doorstep.model.claim import WorkerEntry
from doorstep.model.delivery import Delivery, DeliveryState, HistoryEntry
from doorstep.model.endpoint import CircuitChange, Endpoint, EndpointState
from doorstep.model.event import EventBody, EventStatus, EventSummary, EventView
from doorstep.model.org import ApiKey, KeyCheck, Org
from doorstep.model.outbox import OutboxMessage
from doorstep.model.record import Record

T = TypeVar("T")

UNKNOWN_CURSOR = "is not a cursor of this list; omit it to start at the beginning"


class Page(Record, Generic[T], frozen=True):
    """Consecutive items of a list. A page may be short or even empty although more pages follow, so that a filter with
    few matches does not scan the whole list in one request."""

    items: tuple[T, ...]
    next: str | None = None
    """The cursor of the next page: text that only the store understands."""


class Count(Record, frozen=True):
    """A number of items, counted up to a limit."""

    value: int
    exact: bool


class PagedQuery(Record, Generic[T], frozen=True, kw_only=True):
    """A list that is read page by page. Its parameters are the filter."""


class BoundedQuery(Record, Generic[T], frozen=True, kw_only=True):
    """A list that is returned as a whole."""


# -- events ------------------------------------------------------------------------------------------------


class EventFilter(PagedQuery[EventSummary], frozen=True, kw_only=True):
    """Events by id (the order of creation), newest first unless `oldest_first` is set."""

    status: EventStatus | None = None
    event_type: str | None = None
    """An exact type, or a prefix followed by `*`."""
    created_from: Instant | None = None
    """Compared with the creation time in the event's id, which is precise to the microsecond."""
    created_before: Instant | None = None
    endpoint_id: UUID | None = None
    """Only events with a delivery to this endpoint."""
    correlation_id: str | None = None
    ordering_key: str | None = None
    idempotency_key: str | None = None
    """Only the newest event that was sent with this key, while the store still has the key."""
    search_keys: tuple[int, ...] = ()
    """Only events that have all these values in searchable fields (policy/search.py)."""
    user_id: str | None = None
    """Only events of this user."""
    oldest_first: bool = False


class EventBodies(PagedQuery[EventBody], frozen=True, kw_only=True):
    """The content of events, to be searched. A page ends when its payloads reach INBOX_BYTES_MAX, but has at least one
    event if any exist."""

    filter: EventFilter = EventFilter()


class ShortIds(BoundedQuery[UUID], frozen=True, kw_only=True):
    """The ids of events or deliveries that end with `tail` and lie in one of the ranges (from, before), newest first.
    The ranges must be sorted in the same way. Deleted events are included."""

    kind: Literal["event", "delivery"]
    tail: int
    """The last 32 bits."""
    ranges: tuple[tuple[UUID, UUID], ...]
    limit: int


class InboxFilter(PagedQuery[EventView], frozen=True, kw_only=True):
    """With RECEIVED: events without a matching endpoint that are not acknowledged yet. With FAILED: failed events.

    Sorted by id, oldest first. A page ends when its payloads reach INBOX_BYTES_MAX, but has at least one event if any
    exist.
    """

    status: EventStatus = EventStatus.RECEIVED
    user_id: str | None = None
    """Only events of this user."""


class EventDeliveries(BoundedQuery[Delivery], frozen=True, kw_only=True):
    """The deliveries of an event in order of creation; empty for an unknown event."""

    event_id: UUID


# -- deliveries --------------------------------------------------------------------------------------------


class DeliveryFilter(PagedQuery[Delivery], frozen=True, kw_only=True):
    """Deliveries in any state by id (the order of creation), newest first. Deleted dead letters are excluded."""

    endpoint_id: UUID | None = None
    state: DeliveryState | None = None
    archived_before: Instant = 0
    """Dead letters settled before this instant are archived, even if the cleaner has not run yet."""
    event_type: str | None = None
    code: str | None = None
    """The error code of the last attempt."""
    created_from: Instant | None = None
    """Compared with the creation time in the delivery's id, which is precise to the microsecond."""
    created_before: Instant | None = None


class AttemptFilter(PagedQuery[AttemptSummary], frozen=True, kw_only=True):
    """Attempts by the time at which they started, newest first."""

    endpoint_id: UUID | None = None
    succeeded: bool | None = None
    event_type: str | None = None
    code: str | None = None
    started_from: Instant | None = None
    started_before: Instant | None = None


class RetryQueueFilter(PagedQuery[Delivery], frozen=True, kw_only=True):
    """Deliveries that failed at least once and are not settled, sorted by `due_at`, then by id."""

    waiting: bool | None = None
    """True returns only waiting deliveries, False only those in progress."""
    event_type: str | None = None
    endpoint_id: UUID | None = None
    failed_before: Instant | None = None
    """Only deliveries that first failed before this time."""


class DeadLetterFilter(PagedQuery[Delivery], frozen=True, kw_only=True):
    """Dead letters, sorted by `settled_at`, then by id, newest first. Deleted ones are excluded."""

    archived: bool = False
    """True returns only archived dead letters (see `archived_before`), False only the others."""
    archived_before: Instant = 0
    """Dead letters settled before this instant are archived, even if the cleaner has not run yet."""
    event_type: str | None = None
    endpoint_id: UUID | None = None
    cause: int | None = None
    died_from: Instant | None = None
    died_before: Instant | None = None


class CauseGroup(Record, frozen=True, kw_only=True):
    """Dead letters with the same endpoint and code, and with messages that differ only in ids, numbers and quoted
    text."""

    cause: int
    endpoint_id: UUID
    code: str
    reason: str
    """The full message of the newest dead letter."""
    count: Count
    first_died_at: Instant
    last_died_at: Instant
    sample_id: UUID
    """The newest delivery of the group."""


class CauseGroups(PagedQuery[CauseGroup], frozen=True, kw_only=True):
    """Dead letters grouped by cause. Within a page, groups are sorted by their newest dead letter; the store decides
    the order of pages.

    With an event type, only the newest dead letters of each cause are examined (GROUP_DEPTH, GROUPS_TYPED_MAX).
    """

    filter: DeadLetterFilter = DeadLetterFilter()


class WaitingDeliveries(PagedQuery[Delivery], frozen=True, kw_only=True):
    """Waiting deliveries of an endpoint that were created before an instant. These are the deliveries that
    `Store.dead_letter_waiting` would change. This list can only be counted."""

    endpoint_id: UUID
    created_before: Instant


class DeliveryAttempts(BoundedQuery[Attempt], frozen=True, kw_only=True):
    """The attempt log of a delivery, sorted by attempt number. It is kept even if the dead letter is deleted."""

    delivery_id: UUID


class DeliveryHistory(BoundedQuery[HistoryEntry], frozen=True, kw_only=True):
    """All transitions of a delivery, oldest first."""

    delivery_id: UUID


# -- endpoints ---------------------------------------------------------------------------------------------


class EndpointFilter(PagedQuery[Endpoint], frozen=True, kw_only=True):
    """Endpoints by id (the order of creation), oldest first. Deleted ones are included only if `state` is DELETED."""

    state: EndpointState | None = None


class CircuitHistory(BoundedQuery[CircuitChange], frozen=True, kw_only=True):
    """The state changes of a circuit, oldest first."""

    endpoint_id: UUID
    newest: int | None = None
    """Return only this many of the newest changes."""


class UnhealthyEndpoints(BoundedQuery[UUID], frozen=True, kw_only=True):
    """Endpoints that may need attention, excluding deleted ones. Disabled endpoints come first, then endpoints whose
    circuit is open or half-open, then endpoints that had a dead letter within `hours` hours from `since`, sorted by
    hour, latest first. Within each group they are sorted by id. The cost depends on the number of dead letters, not on
    the number of endpoints."""

    since: Instant
    hours: int
    limit: int


class FailingEndpoints(BoundedQuery[tuple[UUID, UUID]], frozen=True, kw_only=True):
    """Endpoints of all organizations, as (organization, endpoint), that had a permanently failed delivery in one of the
    hours that begin at `since` or later. Deleted endpoints are included. The order is undefined."""

    since: Instant


class BusiestEndpoints(BoundedQuery[UUID], frozen=True, kw_only=True):
    """The endpoints with the most deliveries overall, busiest first. All organizations are included. Deleted endpoints
    and those of the reserved organization are excluded. The cost does not grow with the number of endpoints. In
    exchange, an endpoint may be missing if it overtook others within the last minute."""

    limit: int


# -- accounts, audit, workers, outbox ----------------------------------------------------------------------


class Orgs(BoundedQuery[Org], frozen=True, kw_only=True):
    """Every organization."""


class RoutingChanges(BoundedQuery[tuple[UUID, int]], frozen=True, kw_only=True):
    """The organizations whose routing version is `since` or later, with this version, in the order of these versions.
    No two organizations have the same version, except 0, which is the version of organizations that have never changed
    and have no endpoints. Without `since`, only the organization that changed last, or any if none has changed."""

    since: int | None = None


class KeyChecks(BoundedQuery[KeyCheck], frozen=True, kw_only=True):
    """The check of the secret key; an empty list before the first start."""


class OrgKeys(BoundedQuery[ApiKey], frozen=True, kw_only=True):
    """The keys of an organization in order of creation."""


class KeysByDigest(BoundedQuery[ApiKey], frozen=True, kw_only=True):
    """The key with this digest, even if revoked or expired; at most one."""

    digest: bytes


class KeyNames(BoundedQuery[tuple[str, str]], frozen=True, kw_only=True):
    """(prefix, name) of the organization's keys with these visible prefixes, including revoked and expired ones. A prefix
    shared by keys of different names is omitted."""

    prefixes: tuple[str, ...]


class KeyPrefixes(BoundedQuery[str], frozen=True, kw_only=True):
    """The visible prefixes of the keys with this name, newest first."""

    name: str
    limit: int


class AuditFilter(PagedQuery[AuditEntry], frozen=True, kw_only=True):
    """Audit entries, newest first: by time or, with `about`, in the order in which they were written."""

    actors: tuple[str, ...] = ()
    """Only entries of one of these actors."""
    since: Instant | None = None
    before: Instant | None = None
    action: str | None = None
    about: tuple[UUID, ...] = ()
    """Only entries with one of these subjects."""


class Workers(BoundedQuery[WorkerEntry], frozen=True, kw_only=True):
    """Workers whose last heartbeat is later than `seen_after`, latest first."""

    seen_after: Instant
    limit: int


class RejectedMessages(BoundedQuery[OutboxMessage], frozen=True, kw_only=True):
    """Outbox messages that can never be accepted, in the order in which they were posted."""

    limit: int
