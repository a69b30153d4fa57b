"""Paged lists. A page holds the matching rows after the cursor, in sort order; SQL stores follow the same rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import Alert, AlertFilter
from doorstep.model.attempt import AttemptSummary
from doorstep.model.batch import BatchFilter
from doorstep.model.bulk import BulkFailures, BulkFilter, BulkResults, retry_succeeded
from doorstep.model.delivery import OPEN_STATES, Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.entity import Entity, EntityFilter, OrphanedEntities, Phase
from doorstep.model.event import EventStatus
from doorstep.model.listing import (
    AttemptFilter,
    AuditFilter,
    CauseGroup,
    CauseGroups,
    Count,
    DeadLetterFilter,
    DeliveryFilter,
    EndpointFilter,
    EventBodies,
    EventFilter,
    InboxFilter,
    Page,
    PagedQuery,
    RetryQueueFilter,
    WaitingDeliveries,
)
from doorstep.model.record import earliest_id
from doorstep.model.rollup import HOUR
from doorstep.stores.limits import (
    COUNT_MAX,
    DEAD_LETTERS_COUNTED_MAX,
    ID_MAX,
    INBOX_BYTES_MAX,
    KEY_MAX,
    check_storable,
    count_within,
    read_cursor,
    write_cursor,
)
from tests.reference.documents import DocumentVerbs, decode_entity
from tests.reference.projections import attempt_summary, body_of, summary_of, view_of
from tests.reference.tables import BulkItem, DeliveryRow, EventRow

T = TypeVar("T")
Position = tuple[int, ...]


class Listing(NamedTuple):
    """The rows that match a query, with their sort position and the form in which they are returned."""

    rows: list[Any]
    position: Callable[[Any], Position]
    item: Callable[[Any], Any]
    newest_first: bool = False
    cursor_max: Position = (ID_MAX,)

    def after(self, cursor: str | None) -> list[Any]:
        """The sorted rows after the cursor."""
        start = read_cursor(cursor, *self.cursor_max)
        found = sorted(self.rows, key=self.position, reverse=self.newest_first)
        if start is None:
            return found
        return [
            row for row in found if (self.position(row) < start) is self.newest_first and self.position(row) != start
        ]


class ListVerbs(DocumentVerbs):
    """Reads one page of a list, or counts its rows."""

    async def page(
        self, org_id: UUID | None, query: PagedQuery[T], cursor: str | None = None, limit: int = 50
    ) -> Page[T]:
        _check_text(query)
        if isinstance(query, OrphanedEntities):
            return self._orphaned_page(org_id, query, cursor, limit)
        listing = self._listing(org_id, query)
        rows = listing.after(cursor)
        if isinstance(query, InboxFilter | EventBodies):
            limit = min(limit, count_within((len(row.event.payload) for row in rows), INBOX_BYTES_MAX))
        items = tuple(map(listing.item, rows[:limit]))
        if isinstance(query, CauseGroups):
            items = tuple(sorted(items, key=lambda group: (group.last_died_at, group.cause), reverse=True))
        return Page(items, write_cursor(*listing.position(rows[limit - 1])) if len(rows) > limit else None)

    async def count(self, org_id: UUID | None, query: PagedQuery[T], limit: int = COUNT_MAX) -> Count:
        _check_text(query)
        if isinstance(query, WaitingDeliveries):
            return self._count_waiting(org_id, query, limit)
        if isinstance(query, BulkResults):
            return _count(self._bulk_results(org_id, query), limit)
        return _count(self._listing(org_id, query).rows, limit)

    async def count_by_endpoint(
        self, org_id: UUID, query: RetryQueueFilter | DeadLetterFilter, limit: int = COUNT_MAX
    ) -> dict[UUID, int]:
        _check_text(query)
        rows = self._listing(org_id, query).rows
        return dict(Counter(row.delivery.endpoint_id for row in rows[:limit]))

    async def dead_letters_by_hour(
        self, org_id: UUID, causes: Sequence[int], since: Instant, hours: int
    ) -> dict[int, tuple[int, ...]]:
        most = DEAD_LETTERS_COUNTED_MAX // max(1, len(causes) * hours)
        found = Counter(
            (row.delivery.cause, ((row.delivery.settled_at or 0) - since) // HOUR)
            for row in self._dead_letters(org_id, DeadLetterFilter())
        )
        return {cause: tuple(min(found[cause, hour], most) for hour in range(hours)) for cause in causes}

    def _listing(self, org_id: UUID | None, query: PagedQuery[Any]) -> Listing:
        tables = self._tables
        match query:
            case EventFilter():
                found = self._found(org_id, query)
                return Listing(found, _event_position, partial(summary_of, tables=tables), not query.oldest_first)
            case EventBodies():
                found = self._found(org_id, query.filter)
                return Listing(found, _event_position, body_of, not query.filter.oldest_first)
            case InboxFilter():
                return Listing(self._inbox(org_id, query), _event_position, partial(view_of, tables=self._tables))
            case DeliveryFilter():
                listed = [row for row in self._deliveries(org_id) if _is_listed(row.delivery, query)]
                return Listing(listed, _id_position, _delivery, newest_first=True)
            case AttemptFilter():
                maxima = (KEY_MAX, KEY_MAX, *(2**31 - 1,) * 3)
                attempts = [row for row in self._attempts(org_id) if _is_listed_attempt(row[1], query)]
                return Listing(attempts, lambda row: row[0], lambda row: row[1], newest_first=True, cursor_max=maxima)
            case RetryQueueFilter():
                queued = [row for row in self._deliveries(org_id) if _is_queued(row.delivery, query)]
                return Listing(queued, _due_position, _delivery, cursor_max=(KEY_MAX, ID_MAX))
            case DeadLetterFilter():
                letters = self._dead_letters(org_id, query)
                return Listing(letters, _death_position, _delivery, newest_first=True, cursor_max=(KEY_MAX, ID_MAX))
            case CauseGroups():
                groups = _groups(self._dead_letters(org_id, query.filter))
                return Listing(groups, lambda group: (group.cause,), _same, cursor_max=(KEY_MAX,))
            case BatchFilter():
                return Listing(self._batches(org_id, query), _id_position, _delivery, newest_first=True)
            case EndpointFilter():
                endpoints = [one for one in tables.endpoints if _matches_endpoint(one, org_id, query.state)]
                return Listing(endpoints, lambda endpoint: (endpoint.endpoint_id.int,), _same)
            case BulkFailures():
                return Listing(self._bulk_failures(org_id, query), _key_position, _delivery, cursor_max=(KEY_MAX,))
            case AuditFilter():
                entries = [row for row in tables.audit.numbered() if _matches_entry(row[1], org_id, query)]
                if query.about:
                    return _newest_first(entries)
                position, cursor_max = lambda row: (row[1].at, row[0]), (KEY_MAX, KEY_MAX)
                return Listing(entries, position, lambda row: row[1], newest_first=True, cursor_max=cursor_max)
            case AlertFilter():
                return _newest_first([row for row in tables.alerts.numbered() if _matches_alert(row[1], org_id, query)])
            case BulkFilter():
                return _newest_first([row for row in tables.bulks.numbered() if org_id in (None, row[1].org_id)])
            case EntityFilter():
                entities = self.entities(org_id, query.pipeline)
                return _newest_first([row for row in entities if _matches_entity(row[1], query)])
            case OrphanedEntities():
                running = (row for row in self.entities(org_id, query.pipeline) if row[1].phase is Phase.RUNNING)
                return _newest_first([row for row in running if not self._is_carried_on(row[1], query.endpoint_ids)])
        raise AssertionError(f"{query} cannot be read page by page")

    # -- members of a list ---------------------------------------------------------------------------------

    def _events(self, org_id: UUID | None) -> list[EventRow]:
        events = self._tables.events.values()
        return [row for row in events if org_id in (None, row.event.org_id) and not row.deleted]

    def _found(self, org_id: UUID | None, query: EventFilter) -> list[EventRow]:
        return [row for row in self._events(org_id) if _matches_event(row, query) and self._was_sent_with(row, query)]

    def _was_sent_with(self, row: EventRow, query: EventFilter) -> bool:
        """Whether this is the event that the organization last sent with the filter's idempotency key."""
        if query.idempotency_key is None:
            return True
        stored = self._tables.idempotency.get((row.event.org_id, query.idempotency_key))
        return stored is not None and stored[2].event_id == row.event.event_id

    def _inbox(self, org_id: UUID | None, query: InboxFilter) -> list[EventRow]:
        pushed = query.status is EventStatus.FAILED
        return [
            row
            for row in self._events(org_id)
            if row.status is query.status
            and bool(row.accepted_deliveries) is pushed
            and query.user_id in (None, row.event.user_id)
        ]

    def _deliveries(self, org_id: UUID | None) -> list[DeliveryRow]:
        return [row for row in self._tables.deliveries.values() if org_id in (None, row.delivery.org_id)]

    def _attempts(self, org_id: UUID | None) -> list[tuple[Position, AttemptSummary]]:
        """The attempts with their positions. Attempts with the same number are in the order of the log."""
        logged = [(row, n, one) for row in self._deliveries(org_id) for n, one in enumerate(row.attempts)]
        return [((one.started_at, row.key, one.number, n, 0), attempt_summary(row, one)) for row, n, one in logged]

    def _dead_letters(self, org_id: UUID | None, query: DeadLetterFilter) -> list[DeliveryRow]:
        return [row for row in self._deliveries(org_id) if _is_dead_letter(row.delivery, query)]

    def _batches(self, org_id: UUID | None, query: BatchFilter) -> list[DeliveryRow]:
        batches = (row for row in self._deliveries(org_id) if row.delivery.batch and not row.event.deleted)
        return [row for row in batches if _matches_batch(row.delivery, query)]

    def _bulk_failures(self, org_id: UUID | None, query: BulkFailures) -> list[DeliveryRow]:
        items = self.bulk_items(org_id, query.bulk_id).items()
        failed = (self._tables.deliveries.get(delivery_id) for delivery_id, item in items if item.succeeded is False)
        return [row for row in failed if row is not None]

    def _bulk_results(self, org_id: UUID | None, query: BulkResults) -> list[UUID]:
        items = self.bulk_items(org_id, query.bulk_id).items()
        unknown = [(uid, one) for uid, one in items if one.succeeded is None]
        return [delivery_id for delivery_id, item in unknown if self.bulk_result(delivery_id, item) is not None]

    def bulk_items(self, org_id: UUID | None, bulk_id: UUID) -> dict[UUID, BulkItem]:
        bulk = self._tables.bulks.get(bulk_id)
        if bulk is None or org_id not in (None, bulk.org_id):
            raise NotFound(f"no bulk operation {bulk_id}")
        return self._tables.bulk_items[bulk_id]

    def bulk_result(self, delivery_id: UUID, item: BulkItem) -> bool | None:
        """Whether the retry of a delivery succeeded; None while it is in flight."""
        found = self._tables.deliveries.get(delivery_id)
        state, attempt = (found.delivery.state, found.delivery.attempt) if found else (None, 0)
        return retry_succeeded(state, attempt, item.attempt)

    def _count_waiting(self, org_id: UUID | None, query: WaitingDeliveries, limit: int) -> Count:
        own = self.owns_endpoint(org_id, query.endpoint_id)
        waiting = self._tables.by_due(DeliveryState.PENDING, query.endpoint_id) if own else []
        examined = waiting[: limit + 1]
        older = sum(row.delivery.created_at < query.created_before for row in examined)
        return Count(min(older, limit), exact=len(examined) <= limit)

    # -- entities ------------------------------------------------------------------------------------------

    def entities(self, org_id: UUID | None, pipeline: str) -> list[tuple[int, Entity]]:
        """The entities of a pipeline with their numbers, in order of creation."""
        decoded = ((number, decode_entity(document)) for number, document in self._tables.entities.numbered())
        return [row for row in decoded if row[1].pipeline == pipeline and org_id in (None, row[1].org_id)]

    def _orphaned_page(self, org_id: UUID | None, query: OrphanedEntities, cursor: str | None, limit: int) -> Page[Any]:
        (after,) = read_cursor(cursor, KEY_MAX) or (0,)
        later = (row for row in self.entities(org_id, query.pipeline) if row[0] > after)
        running = [row for row in later if row[1].phase is Phase.RUNNING][:limit]
        found = (one for _, one in running if not self._is_carried_on(one, query.endpoint_ids))
        return Page(tuple(found), write_cursor(running[-1][0]) if len(running) == limit else None)

    def _is_carried_on(self, entity: Entity, endpoint_ids: Sequence[UUID]) -> bool:
        """Whether the entity's event is still in the outbox, or one of these endpoints has an open delivery of it."""
        if entity.event_id is None:
            return False
        event = self._tables.events.get(entity.event_id)
        deliveries = (row.delivery for row in event.deliveries) if event else ()
        message = self._tables.outbox.get(entity.event_id)
        return (message is not None and message.refused_at is None) or any(
            one.state in OPEN_STATES and one.endpoint_id in endpoint_ids for one in deliveries
        )


# -- filters -----------------------------------------------------------------------------------------------


def _check_text(query: PagedQuery[Any]) -> None:
    for name in (
        "event_type",
        "status",
        "action",
        "code",
        "correlation_id",
        "ordering_key",
        "idempotency_key",
        "user_id",
    ):
        check_storable(name, getattr(getattr(query, "filter", query), name, None))
    for actor in getattr(query, "actors", ()):
        check_storable("actor", actor)


def _matches_event(row: EventRow, query: EventFilter) -> bool:
    event_id = row.event.event_id
    return (
        query.status in (None, row.status)
        and _matches_type(row.event.event_type, query.event_type)
        and (query.created_from is None or event_id >= earliest_id(query.created_from))
        and (query.created_before is None or event_id < earliest_id(query.created_before))
        and (query.endpoint_id is None or any(_is_owed(one.delivery, query.endpoint_id) for one in row.deliveries))
        and query.correlation_id in (None, row.event.correlation_id)
        and query.ordering_key in (None, row.event.ordering_key)
        and query.user_id in (None, row.event.user_id)
        and row.search_keys.issuperset(query.search_keys)
    )


def _is_owed(delivery: Delivery, endpoint_id: UUID) -> bool:
    return delivery.endpoint_id == endpoint_id and not delivery.deleted


def _is_listed(delivery: Delivery, query: DeliveryFilter) -> bool:
    old = delivery.state is DeliveryState.DEAD and (delivery.settled_at or 0) < query.archived_before
    return (
        not delivery.deleted
        and query.state in (None, DeliveryState.ARCHIVED if old else delivery.state)
        and query.endpoint_id in (None, delivery.endpoint_id)
        and query.code in (None, delivery.code)
        and _matches_type(delivery.event_type, query.event_type)
        and (query.created_from is None or delivery.delivery_id >= earliest_id(query.created_from))
        and (query.created_before is None or delivery.delivery_id < earliest_id(query.created_before))
    )


def _is_listed_attempt(attempt: AttemptSummary, query: AttemptFilter) -> bool:
    return (
        query.endpoint_id in (None, attempt.endpoint_id)
        and query.succeeded in (None, attempt.category is None)
        and query.code in (None, attempt.code)
        and _matches_type(attempt.event_type, query.event_type)
        and (query.started_from is None or attempt.started_at >= query.started_from)
        and (query.started_before is None or attempt.started_at < query.started_before)
    )


def _is_queued(delivery: Delivery, query: RetryQueueFilter) -> bool:
    return (
        delivery.due_at is not None
        and delivery.first_failed_at is not None
        and query.waiting in (None, delivery.state is DeliveryState.PENDING)
        and query.endpoint_id in (None, delivery.endpoint_id)
        and _matches_type(delivery.event_type, query.event_type)
        and (query.failed_before is None or delivery.first_failed_at < query.failed_before)
    )


def _is_dead_letter(delivery: Delivery, query: DeadLetterFilter) -> bool:
    if delivery.settled_at is None or delivery.deleted:
        return False
    recent = delivery.state is DeliveryState.DEAD and delivery.settled_at >= query.archived_before
    archived = delivery.state is DeliveryState.ARCHIVED or (delivery.state is DeliveryState.DEAD and not recent)
    return (
        (archived if query.archived else recent)
        and query.endpoint_id in (None, delivery.endpoint_id)
        and query.cause in (None, delivery.cause)
        and _matches_type(delivery.event_type, query.event_type)
        and (query.died_from is None or delivery.settled_at >= query.died_from)
        and (query.died_before is None or delivery.settled_at < query.died_before)
    )


def _matches_batch(delivery: Delivery, query: BatchFilter) -> bool:
    return (
        not delivery.deleted and delivery.state in query.states and _matches_type(delivery.event_type, query.event_type)
    )


def _matches_endpoint(endpoint: Endpoint, org_id: UUID | None, state: EndpointState | None) -> bool:
    wanted = endpoint.state is not EndpointState.DELETED if state is None else endpoint.state is state
    return wanted and org_id in (None, endpoint.org_id)


def _matches_entry(entry: AuditEntry, org_id: UUID | None, query: AuditFilter) -> bool:
    return (
        org_id in (None, entry.org_id)
        and (not query.actors or entry.actor in query.actors)
        and (query.since is None or entry.at >= query.since)
        and (query.before is None or entry.at < query.before)
        and query.action in (None, entry.action)
        and (not query.about or not set(map(str, query.about)).isdisjoint(entry.subjects))
    )


def _matches_alert(alert: Alert, org_id: UUID | None, query: AlertFilter) -> bool:
    return (
        org_id in (None, alert.org_id)
        and query.is_open in (None, alert.is_open)
        and query.rule in (None, alert.rule)
        and query.endpoint_id in (None, alert.endpoint_id)
    )


def _matches_entity(entity: Entity, query: EntityFilter) -> bool:
    stale = entity.phase is Phase.DEAD and entity.changed_at < query.archived_before
    archived = entity.phase is Phase.ARCHIVED or stale
    return query.status in (None, entity.status) and query.archived in (None, archived)


def _matches_type(event_type: str, pattern: str | None) -> bool:
    """Whether a type equals the pattern, or starts with what precedes its final `*`. Always true without a pattern."""
    if pattern is None:
        return True
    return event_type.startswith(pattern[:-1]) if pattern.endswith("*") else event_type == pattern


# -- positions and items -----------------------------------------------------------------------------------


def _newest_first(numbered: list[tuple[int, T]]) -> Listing:
    """A list of numbered documents, newest first."""
    return Listing(numbered, lambda row: (row[0],), lambda row: row[1], newest_first=True, cursor_max=(KEY_MAX,))


def _event_position(row: EventRow) -> Position:
    return (row.event.event_id.int,)


def _due_position(row: DeliveryRow) -> Position:
    return row.delivery.due_at or 0, row.delivery.delivery_id.int


def _death_position(row: DeliveryRow) -> Position:
    return row.delivery.settled_at or 0, row.delivery.delivery_id.int


def _id_position(row: DeliveryRow) -> Position:
    return (row.delivery.delivery_id.int,)


def _key_position(row: DeliveryRow) -> Position:
    return (row.key,)


def _delivery(row: DeliveryRow) -> Delivery:
    return row.delivery


def _same(item: T) -> T:
    return item


def _count(rows: Sequence[Any], limit: int) -> Count:
    return Count(min(len(rows), limit), exact=len(rows) <= limit)


def _groups(letters: list[DeliveryRow]) -> list[CauseGroup]:
    ordered = sorted(letters, key=lambda row: (row.delivery.cause or 0, _death_position(row)))
    return [_group([*rows]) for _, rows in groupby(ordered, key=lambda row: row.delivery.cause)]


def _group(rows: list[DeliveryRow]) -> CauseGroup:
    """The group of dead letters with one cause. `rows` are in the order in which they became dead."""
    newest, oldest = rows[-1].delivery, rows[0].delivery
    assert newest.cause is not None and newest.settled_at is not None and oldest.settled_at is not None
    return CauseGroup(
        cause=newest.cause,
        endpoint_id=newest.endpoint_id,
        code=newest.code or "",
        reason=newest.reason or "",
        count=_count(rows, COUNT_MAX),
        first_died_at=oldest.settled_at,
        last_died_at=newest.settled_at,
        sample_id=newest.delivery_id,
    )
