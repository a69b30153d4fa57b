"""Lists: everything that matches, sorted, from the cursor on. The plain rule that the SQL stores are held to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.batch import BatchFilter
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.listing import CauseGroup, Count, DeadLetterFilter, EventFilter, Page, RetryQueueFilter
from doorstep.model.record import earliest_id
from doorstep.model.rollup import HOUR
from doorstep.stores import cursor as cursors
from doorstep.stores.limits import COUNT_MAX, DEATHS_COUNTED_MAX, INBOX_BYTES_MAX, fitting
from doorstep.stores.text import check_storable
from tests.reference.projections import summary_of, view_of
from tests.reference.tables import DeliveryRow, EventRow, Tables

T = TypeVar("T")
Place = tuple[int, ...]


class ListVerbs:
    """One page or one count of each list."""

    _tables: Tables

    # -- events --------------------------------------------------------------------------------------------

    async def list_events(
        self, org_id: UUID, wanted: EventFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[EventSummary]:
        check_storable("event_type", wanted.event_type)
        after = cursors.read(cursor, cursors.ID_MAX)
        rows = [row for row in self._events_of(org_id) if _is_wanted_event(row, wanted)]
        page = _page(rows, _event_place, after, limit, newest_first=not wanted.oldest_first)
        return Page(tuple(map(summary_of, page.items)), page.next)

    async def count_events(self, org_id: UUID, wanted: EventFilter, limit: int = COUNT_MAX) -> Count:
        check_storable("event_type", wanted.event_type)
        return _counted([row for row in self._events_of(org_id) if _is_wanted_event(row, wanted)], limit)

    async def inbox(
        self, org_id: UUID, status: EventStatus, cursor: str | None = None, limit: int = 50
    ) -> Page[EventView]:
        after = cursors.read(cursor, cursors.ID_MAX)
        rows = _in_order(self._inbox_of(org_id, status), _event_place, after)
        page = _page(
            rows, _event_place, None, min(limit, fitting((len(row.event.payload) for row in rows), INBOX_BYTES_MAX))
        )
        return Page(tuple(map(view_of, page.items)), page.next)

    async def count_inbox(self, org_id: UUID, status: EventStatus, limit: int = COUNT_MAX) -> Count:
        return _counted(self._inbox_of(org_id, status), limit)

    # -- deliveries ----------------------------------------------------------------------------------------

    async def retry_queue(
        self, org_id: UUID, wanted: RetryQueueFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        check_storable("event_type", wanted.event_type)
        after = cursors.read(cursor, cursors.KEY_MAX, cursors.ID_MAX)
        page = _page(self._queue(org_id, wanted), _due_place, after, limit)
        return Page(tuple(row.delivery for row in page.items), page.next)

    async def count_retry_queue(self, org_id: UUID, wanted: RetryQueueFilter, limit: int = COUNT_MAX) -> Count:
        check_storable("event_type", wanted.event_type)
        return _counted(self._queue(org_id, wanted), limit)

    async def retry_queue_by_endpoint(
        self, org_id: UUID, wanted: RetryQueueFilter, limit: int = COUNT_MAX
    ) -> dict[UUID, int]:
        check_storable("event_type", wanted.event_type)
        return _by_endpoint(self._queue(org_id, wanted), limit)

    async def dead_letters(
        self, org_id: UUID, wanted: DeadLetterFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        check_storable("event_type", wanted.event_type)
        after = cursors.read(cursor, cursors.KEY_MAX, cursors.ID_MAX)
        page = _page(self._letters(org_id, wanted), _death_place, after, limit, newest_first=True)
        return Page(tuple(row.delivery for row in page.items), page.next)

    async def count_dead_letters(self, org_id: UUID, wanted: DeadLetterFilter, limit: int = COUNT_MAX) -> Count:
        check_storable("event_type", wanted.event_type)
        return _counted(self._letters(org_id, wanted), limit)

    async def dead_letters_by_endpoint(
        self, org_id: UUID, wanted: DeadLetterFilter, limit: int = COUNT_MAX
    ) -> dict[UUID, int]:
        check_storable("event_type", wanted.event_type)
        return _by_endpoint(self._letters(org_id, wanted), limit)

    async def cause_groups(
        self, org_id: UUID, wanted: DeadLetterFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[CauseGroup]:
        check_storable("event_type", wanted.event_type)
        after = cursors.read(cursor, cursors.KEY_MAX)
        letters = sorted(self._letters(org_id, wanted), key=lambda row: (row.delivery.cause or 0, _death_place(row)))
        groups = [_group([*rows]) for _, rows in groupby(letters, key=lambda row: row.delivery.cause)]
        page = _page(groups, lambda group: (group.cause,), after, limit)
        newest_first = sorted(page.items, key=lambda group: (group.last_died_at, group.cause), reverse=True)
        return Page(tuple(newest_first), page.next)

    async def deaths_by_hour(
        self, org_id: UUID, causes: Sequence[int], since: Instant, hours: int
    ) -> dict[int, tuple[int, ...]]:
        most = DEATHS_COUNTED_MAX // max(1, len(causes) * hours)
        found = Counter(
            (row.delivery.cause, ((row.delivery.settled_at or 0) - since) // HOUR)
            for row in self._letters(org_id, DeadLetterFilter())
        )
        return {cause: tuple(min(found[cause, hour], most) for hour in range(hours)) for cause in causes}

    async def list_batches(
        self, org_id: UUID, wanted: BatchFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        check_storable("event_type", wanted.event_type)
        after = cursors.read(cursor, cursors.ID_MAX)
        rows = [row for row in self._deliveries_of(org_id) if _is_wanted_batch(row, wanted)]
        page = _page(rows, lambda row: (row.delivery.delivery_id.int,), after, limit, newest_first=True)
        return Page(tuple(row.delivery for row in page.items), page.next)

    # -- endpoints and audit -------------------------------------------------------------------------------

    async def list_endpoints(
        self, org_id: UUID, state: EndpointState | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Endpoint]:
        after = cursors.read(cursor, cursors.ID_MAX)
        states = frozenset(EndpointState) - {EndpointState.DELETED} if state is None else {state}
        found = [one for one in self._tables.endpoints.values() if one.org_id == org_id and one.state in states]
        return _page(found, lambda endpoint: (endpoint.endpoint_id.int,), after, limit)

    async def list_audit(
        self,
        org_id: UUID,
        actor: str | None = None,
        action: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        about: Sequence[UUID] = (),
    ) -> Page[AuditEntry]:
        check_storable("actor", actor)
        check_storable("action", action)
        after = cursors.read(cursor, cursors.KEY_MAX)
        wanted = set(map(str, about))
        found = [
            (number, line)
            for number, line in self._tables.audit.numbered()
            if line.org_id == org_id and actor in (None, line.actor) and action in (None, line.action)
            if not about or not wanted.isdisjoint(line.subjects)
        ]
        page = _page(found, lambda one: (one[0],), after, limit, newest_first=True)
        return Page(tuple(line for _, line in page.items), page.next)

    # -- what belongs to a list ----------------------------------------------------------------------------

    def _events_of(self, org_id: UUID) -> list[EventRow]:
        return [row for row in self._tables.events.values() if row.event.org_id == org_id and not row.deleted]

    def _inbox_of(self, org_id: UUID, status: EventStatus) -> list[EventRow]:
        pushed = status is EventStatus.FAILED
        return [
            row for row in self._events_of(org_id) if row.status is status and bool(row.accepted_deliveries) is pushed
        ]

    def _deliveries_of(self, org_id: UUID) -> list[DeliveryRow]:
        return [row for row in self._tables.deliveries.values() if row.delivery.org_id == org_id]

    def _queue(self, org_id: UUID, wanted: RetryQueueFilter) -> list[DeliveryRow]:
        return [row for row in self._deliveries_of(org_id) if _is_queued(row.delivery, wanted)]

    def _letters(self, org_id: UUID, wanted: DeadLetterFilter) -> list[DeliveryRow]:
        return [row for row in self._deliveries_of(org_id) if _is_letter(row.delivery, wanted)]


def _is_wanted_event(row: EventRow, wanted: EventFilter) -> bool:
    event_id = row.event.event_id
    return (
        wanted.status in (None, row.status)
        and _is_of_type(row.event.event_type, wanted.event_type)
        and (wanted.created_from is None or event_id >= earliest_id(wanted.created_from))
        and (wanted.created_before is None or event_id < earliest_id(wanted.created_before))
    )


def _is_queued(delivery: Delivery, wanted: RetryQueueFilter) -> bool:
    return (
        delivery.due_at is not None
        and delivery.first_failed_at is not None
        and wanted.waiting in (None, delivery.state is DeliveryState.PENDING)
        and wanted.endpoint_id in (None, delivery.endpoint_id)
        and _is_of_type(delivery.event_type, wanted.event_type)
        and (wanted.failed_before is None or delivery.first_failed_at < wanted.failed_before)
    )


def _is_letter(delivery: Delivery, wanted: DeadLetterFilter) -> bool:
    if delivery.settled_at is None or delivery.deleted:
        return False
    untouched = delivery.state is DeliveryState.DEAD and delivery.settled_at >= wanted.archived_before
    archived = delivery.state is DeliveryState.ARCHIVED or delivery.state is DeliveryState.DEAD and not untouched
    return (
        (archived if wanted.archived else untouched)
        and wanted.endpoint_id in (None, delivery.endpoint_id)
        and wanted.cause in (None, delivery.cause)
        and _is_of_type(delivery.event_type, wanted.event_type)
        and (wanted.died_from is None or delivery.settled_at >= wanted.died_from)
        and (wanted.died_before is None or delivery.settled_at < wanted.died_before)
    )


def _is_wanted_batch(row: DeliveryRow, wanted: BatchFilter) -> bool:
    delivery = row.delivery
    return (
        delivery.batch
        and not delivery.deleted
        and not row.event.deleted
        and delivery.state in wanted.states
        and _is_of_type(delivery.event_type, wanted.event_type)
    )


def _group(rows: list[DeliveryRow]) -> CauseGroup:
    """A group of letters of one cause, given in the order of their deaths."""
    newest, oldest = rows[-1].delivery, rows[0].delivery
    assert newest.cause is not None and newest.settled_at is not None and oldest.settled_at is not None
    return CauseGroup(
        cause=newest.cause,
        endpoint_id=newest.endpoint_id,
        code=newest.code or "",
        reason=newest.reason or "",
        count=_counted(rows, COUNT_MAX),
        first_died_at=oldest.settled_at,
        last_died_at=newest.settled_at,
        sample_id=newest.delivery_id,
    )


# -- places and pages --------------------------------------------------------------------------------------


def _event_place(row: EventRow) -> Place:
    return (row.event.event_id.int,)


def _due_place(row: DeliveryRow) -> Place:
    return row.delivery.due_at or 0, row.delivery.delivery_id.int


def _death_place(row: DeliveryRow) -> Place:
    return row.delivery.settled_at or 0, row.delivery.delivery_id.int


def _page(
    things: Iterable[T], place: Callable[[T], Place], after: Place | None, limit: int, *, newest_first: bool = False
) -> Page[T]:
    found = _in_order(things, place, after, newest_first=newest_first)
    more = cursors.write(*place(found[limit - 1])) if len(found) > limit else None
    return Page(tuple(found[:limit]), more)


def _in_order(
    things: Iterable[T], place: Callable[[T], Place], after: Place | None, *, newest_first: bool = False
) -> list[T]:
    """Those that come after a place, the first of them first."""
    found = sorted(things, key=place, reverse=newest_first)
    if after is None:
        return found
    return [thing for thing in found if (place(thing) < after if newest_first else place(thing) > after)]


def _by_endpoint(rows: list[DeliveryRow], limit: int) -> dict[UUID, int]:
    return dict(Counter(row.delivery.endpoint_id for row in rows[:limit]))


def _counted(things: list[T], limit: int) -> Count:
    return Count(min(len(things), limit), exact=len(things) <= limit)


def _is_of_type(event_type: str, wanted: str | None) -> bool:
    """Whether an event type is the wanted one: a name, a pattern whose final `*` stands for any rest, or any."""
    if wanted is None:
        return True
    return event_type.startswith(wanted[:-1]) if wanted.endswith("*") else event_type == wanted
