"""Lists: pages and counts.

An index proposes keys in order; the items themselves are read from the table, and those that have changed since are left
out. A list is spread over several partitions, which are read together and merged. A filter that no index serves is
applied to the items, so a page of such a list may be short although more pages follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.event import EventBody, EventStatus, EventSummary, EventView
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
from doorstep.stores.dynamodb.accept import idempotency_key, receipt_of_key
from doorstep.stores.dynamodb.client import Item, key_from
from doorstep.stores.dynamodb.documents import DocumentVerbs
from doorstep.stores.dynamodb.features import not_offered
from doorstep.stores.dynamodb.keys import audit_partition
from doorstep.stores.dynamodb.rows import (
    DeliveryRow,
    EventRow,
    delivery_from,
    event_from,
    instant,
    owner_shard,
)
from doorstep.stores.dynamodb.stored import audit_from
from doorstep.stores.dynamodb.tables import LIST_INDEX, SHARDS, SORT_KEY, STATUS_INDEX, WORK_INDEX, TableIndex
from doorstep.stores.dynamodb.unit import gather
from doorstep.stores.limits import (
    COUNT_MAX,
    EXAMINED_MAX,
    ID_MAX,
    INBOX_BYTES_MAX,
    KEY_MAX,
    check_storable,
    count_within,
    read_cursor,
    write_cursor,
)
from doorstep.stores.store import Part

T = TypeVar("T")
Position = tuple[int, ...]

_CHUNK_MIN = 100
_GROUPED_MAX = EXAMINED_MAX
"""How many dead letters are read to group them by cause, the newest ones. Counts of more are lower bounds."""


class Listing(NamedTuple):
    """Where the entries of a list are, and which of the items they lead to belong to the list."""

    partitions: Sequence[str]
    table_index: TableIndex | None
    read: Callable[[Item], Any]
    """An item as a row."""
    matches: Callable[[Any], bool]
    position: Callable[[Any], Position]
    order: Callable[[Position], str]
    """The sort key at a position; that of an entry is the same or continues it."""
    after: str | None = None
    before: str | None = None
    newest_first: bool = False
    cursor_max: Position = (ID_MAX,)


class ListVerbs(DocumentVerbs):
    async def page(
        self, org_id: UUID | None, query: PagedQuery[T], cursor: str | None = None, limit: int = 50
    ) -> Page[T]:
        _check_text(query)
        return cast(Page[T], await self._page(org_id, query, cursor, limit))

    async def _page(self, org_id: UUID | None, query: PagedQuery[Any], cursor: str | None, limit: int) -> Page[Any]:
        if isinstance(query, EndpointFilter):
            return await self._endpoint_page(org_id, query, cursor, limit)
        if isinstance(query, CauseGroups):
            return await self._cause_page(org_id, query, cursor, limit)
        if (with_key := _with_key(query)) is not None:
            return Page(tuple(await self._items(query, await self._rows_of_key(org_id, with_key))))
        listing = await self._listing(org_id, query)
        rows, more = await self._read_page(listing, cursor, limit)
        if isinstance(query, InboxFilter | EventBodies):
            fitting = count_within((len(row.event.payload) for row in rows), INBOX_BYTES_MAX)
            if fitting < len(rows):
                rows = rows[:fitting]
                more = listing.position(rows[-1])
        items = await self._items(query, rows)
        return Page(tuple(items), None if more is None else write_cursor(*more))

    async def count(self, org_id: UUID | None, query: PagedQuery[T], limit: int = COUNT_MAX) -> Count:
        _check_text(query)
        if isinstance(query, WaitingDeliveries):
            return await self._count_waiting(org_id, query, limit)
        if (with_key := _with_key(query)) is not None:
            return Count(len(await self._rows_of_key(org_id, with_key)), exact=True)
        rows, examined_all = await self._read_all(await self._listing(org_id, query), limit)
        return Count(min(len(rows), limit), exact=examined_all)

    async def count_by_endpoint(
        self, org_id: UUID, query: RetryQueueFilter | DeadLetterFilter, limit: int = COUNT_MAX
    ) -> dict[UUID, int]:
        _check_text(query)
        rows, _ = await self._read_all(await self._listing(org_id, query), limit)
        return dict(Counter(row.delivery.endpoint_id for row in rows[:limit]))

    async def dead_letters_by_hour(
        self, org_id: UUID, causes: Sequence[int], since: Instant, hours: int
    ) -> dict[int, tuple[int, ...]]:
        letters, _ = await self._read_all(await self._listing(org_id, DeadLetterFilter(died_from=since)), COUNT_MAX)
        found = Counter((row.delivery.cause, ((row.delivery.settled_at or 0) - since) // HOUR) for row in letters)
        return {cause: tuple(found[cause, hour] for hour in range(hours)) for cause in causes}

    # -- reading -------------------------------------------------------------------------------------------

    async def _read_page(self, listing: Listing, cursor: str | None, limit: int) -> tuple[list[Any], Position | None]:
        """Matching rows after the cursor, and the position at which the next page starts, if there may be one."""
        start = read_cursor(cursor, *listing.cursor_max)
        found: list[Any] = []
        examined = 0
        while True:
            chunk = min(max(limit - len(found) + 1, _CHUNK_MIN), EXAMINED_MAX - examined)
            entries = await self._entries(listing, start, chunk)
            rows = await self._rows(listing, entries)
            for row in rows:
                if row is not None and listing.matches(row):
                    if len(found) == limit:
                        return found, listing.position(found[-1])
                    found.append(row)
            examined += len(entries)
            if len(entries) < chunk:
                return found, None
            start = _position_of(entries[-1], listing)
            if examined >= EXAMINED_MAX:
                return found, start

    async def _read_all(self, listing: Listing, limit: int) -> tuple[list[Any], bool]:
        """The matching rows among the first `limit` entries, and whether these are all."""
        entries = await self._entries(listing, None, limit + 1)
        rows = [row for row in await self._rows(listing, entries) if row is not None and listing.matches(row)]
        return rows, len(entries) <= limit

    async def _entries(self, listing: Listing, start: Position | None, limit: int) -> list[Item]:
        """The next entries of a list, from all its partitions."""
        after, before = listing.after, listing.before
        if start is not None:
            edge = listing.order(start)
            if listing.newest_first:
                before = edge if before is None else min(before, edge)
            else:
                edge += "$"  # follows everything that continues the sort key with "#"
                after = edge if after is None else max(after, edge)
        found = await gather(
            [
                self._aws.query(
                    partition,
                    index=listing.table_index,
                    after=after,
                    before=before,
                    limit=limit,
                    descending=listing.newest_first,
                )
                for partition in listing.partitions
            ]
        )
        name = SORT_KEY if listing.table_index is None else listing.table_index.sort_key
        entries = (item for items in found for item in items)
        return sorted(entries, key=lambda item: item[name]["S"], reverse=listing.newest_first)[:limit]

    async def _rows(self, listing: Listing, entries: Sequence[Item]) -> list[Any]:
        """The row of each entry, in order; None for an entry that is no longer true."""
        if listing.table_index is None:
            return list(map(listing.read, entries))
        items = await self._aws.get_many(map(key_from, entries)) if entries else {}
        index = listing.table_index

        def row_of(entry: Item) -> Any:
            item = items.get(key_from(entry))
            names = (index.partition_key, index.sort_key)
            return listing.read(item) if item and all(item.get(name) == entry[name] for name in names) else None

        return list(map(row_of, entries))

    async def _items(self, query: PagedQuery[Any], rows: Sequence[Any]) -> Sequence[Any]:
        match query:
            case EventFilter():
                return await self._event_items(EventSummary, rows)
            case InboxFilter():
                return await self._event_items(EventView, rows)
            case EventBodies():
                return [
                    EventBody(event_id=row.event.event_id, metadata=row.event.metadata, payload=row.event.payload)
                    for row in rows
                ]
            case AuditFilter():
                return [entry for _, entry in rows]
        return [row.delivery for row in rows]

    async def _event_items(self, kind: Any, rows: Sequence[EventRow]) -> list[Any]:
        """Events as readers see them. The row of an event with one settled delivery has all there is to know."""
        plain: list[tuple[EventRow, list[DeliveryRow]]] = [
            (row, []) for row in rows if row.deliveries <= 1 and not row.open_count
        ]
        views = {one[0].event.event_id: view for one, view in zip(plain, await self._views(kind, plain), strict=True)}
        others = [row.event.event_id for row in rows if row.event.event_id not in views]
        for view in await self._events(kind, None, others):
            views[view.event_id if kind is EventSummary else view.event.event_id] = view
        return [views[row.event.event_id] for row in rows if row.event.event_id in views]

    # -- lists ---------------------------------------------------------------------------------------------

    async def _listing(self, org_id: UUID | None, query: PagedQuery[Any]) -> Listing:
        orgs = [org_id] if org_id is not None else [org.org_id for org in await self._orgs()]
        match query:
            case EventFilter() | EventBodies():
                chosen = query.filter if isinstance(query, EventBodies) else query
                _check_search(chosen)
                return _ids(
                    "events",
                    orgs,
                    chosen.created_from,
                    chosen.created_before,
                    read=event_from,
                    matches=lambda row: _matches_event(row, chosen),
                    position=lambda row: (row.event.event_id.int,),
                    newest_first=not chosen.oldest_first,
                )
            case InboxFilter():
                return _inbox(orgs, query)
            case DeliveryFilter():
                return _ids(
                    "deliveries",
                    orgs,
                    query.created_from,
                    query.created_before,
                    read=delivery_from,
                    matches=lambda row: _is_listed(row.delivery, query),
                    position=lambda row: (row.delivery.delivery_id.int,),
                    newest_first=True,
                )
            case RetryQueueFilter():
                return _work(
                    ["retry"], orgs, lambda row: _is_queued(row.delivery, query), lambda row: row.delivery.due_at or 0
                )
            case DeadLetterFilter():
                return _dead_letters(orgs, query)
            case AuditFilter():
                return _audit(orgs, query)
            case AttemptFilter():
                raise not_offered(Part.ATTEMPTS)
        raise not_offered(_part_of(query))

    async def _rows_of_key(self, org_id: UUID | None, query: EventFilter) -> list[EventRow]:
        """The event that was sent with an idempotency key, if it matches the rest of the filter."""
        _check_search(query)
        assert query.idempotency_key is not None
        item = await self._aws.get(idempotency_key(org_id, query.idempotency_key)) if org_id else None
        if item is None:
            return []
        events = await self._read_events([receipt_of_key(item)[0]])
        return [row for row in events.values() if _matches_event(row, query)]

    async def _endpoint_page(
        self, org_id: UUID | None, query: EndpointFilter, cursor: str | None, limit: int
    ) -> Page[Any]:
        (after,) = read_cursor(cursor, ID_MAX) or (-1,)
        found = [
            one
            for one in await self._all_endpoints()
            if _matches_endpoint(one, org_id, query.state) and one.endpoint_id.int > after
        ]
        found.sort(key=lambda one: one.endpoint_id)
        more = write_cursor(found[limit - 1].endpoint_id.int) if len(found) > limit else None
        return Page(tuple(found[:limit]), more)

    async def _cause_page(self, org_id: UUID | None, query: CauseGroups, cursor: str | None, limit: int) -> Page[Any]:
        (after,) = read_cursor(cursor, KEY_MAX) or (-1,)
        letters, all_read = await self._read_all(await self._listing(org_id, query.filter), _GROUPED_MAX)
        of_cause: dict[int, list[Delivery]] = {}
        for row in letters:
            of_cause.setdefault(row.delivery.cause or 0, []).append(row.delivery)
        causes = [cause for cause in sorted(of_cause) if cause > after]
        groups = [_group(of_cause[cause], exact=all_read) for cause in causes[:limit]]
        groups.sort(key=lambda group: (group.last_died_at, group.cause), reverse=True)
        return Page(tuple(groups), write_cursor(causes[limit - 1]) if len(causes) > limit else None)

    async def _count_waiting(self, org_id: UUID | None, query: WaitingDeliveries, limit: int) -> Count:
        own = await self.get_many(Endpoint, org_id, [query.endpoint_id])
        waiting = await self._open_rows(query.endpoint_id, limit + 1) if own else []
        older = sum(row.delivery.created_at < query.created_before for row in waiting[: limit + 1])
        return Count(min(older, limit), exact=len(waiting) <= limit)

    async def _open_rows(self, endpoint_id: UUID, limit: int) -> list[DeliveryRow]:
        """Waiting deliveries of an endpoint, those that are due first before the others, those without a time last."""
        rows = (await self._waiting(endpoint_id, limit=limit))[:limit]
        return rows if len(rows) == limit else rows + await self._idle(endpoint_id, limit - len(rows))


def _ids(
    kind: str,
    orgs: Sequence[UUID],
    created_from: Instant | None,
    created_before: Instant | None,
    *,
    read: Callable[[Item], Any],
    matches: Callable[[Any], bool],
    position: Callable[[Any], Position],
    newest_first: bool,
) -> Listing:
    """A list in the order of ids."""
    after = None if created_from is None else str(UUID(int=max(0, earliest_id(created_from).int - 1)))
    return Listing(
        [f"{kind}#{org_id}#{shard}" for org_id in orgs for shard in range(SHARDS)],
        LIST_INDEX,
        read,
        matches,
        position,
        lambda at: str(UUID(int=at[0])),
        after=after,
        before=None if created_before is None else str(earliest_id(created_before)),
        newest_first=newest_first,
    )


def _inbox(orgs: Sequence[UUID], query: InboxFilter) -> Listing:
    if query.user_id is None:
        partitions = [f"{org_id}#{shard}" for org_id in orgs for shard in range(SHARDS)]
    else:
        partitions = [owner_shard(org_id, query.user_id, org_id) for org_id in orgs]
    status = query.status.value

    def matches(row: EventRow) -> bool:
        pushed = query.status is EventStatus.FAILED
        in_list = row.status is query.status and bool(row.deliveries) is pushed and not row.deleted
        return in_list and query.user_id in (None, row.event.user_id)

    return Listing(
        partitions,
        STATUS_INDEX,
        event_from,
        matches,
        lambda row: (row.event.event_id.int,),
        lambda at: f"{status}#{UUID(int=at[0])}",
        after=f"{status}#",
        before=f"{status}$",
    )


def _work(
    kinds: Sequence[str],
    orgs: Sequence[UUID],
    matches: Callable[[Any], bool],
    time: Callable[[Any], Instant],
    *,
    since: Instant | None = None,
    before: Instant | None = None,
    newest_first: bool = False,
) -> Listing:
    """A list of deliveries in the order of a time, then of ids."""
    return Listing(
        [f"{kind}#{org_id}#{shard}" for kind in kinds for org_id in orgs for shard in range(SHARDS)],
        WORK_INDEX,
        delivery_from,
        matches,
        lambda row: (time(row), row.delivery.delivery_id.int),
        lambda at: f"{instant(at[0])}#{UUID(int=at[1])}",
        after=None if since is None else instant(since),
        before=None if before is None else instant(before),
        newest_first=newest_first,
        cursor_max=(KEY_MAX, ID_MAX),
    )


def _dead_letters(orgs: Sequence[UUID], query: DeadLetterFilter) -> Listing:
    return _work(
        ["dead", "archived"] if query.archived else ["dead"],
        orgs,
        lambda row: _is_dead_letter(row.delivery, query),
        lambda row: row.delivery.settled_at or 0,
        since=query.died_from,
        before=query.died_before,
        newest_first=True,
    )


def _audit(orgs: Sequence[UUID], query: AuditFilter) -> Listing:
    def read(item: Item) -> tuple[Position, AuditEntry]:
        at, _, entry_id = item[SORT_KEY]["S"].partition("#")
        return (int(at), UUID(entry_id).int), audit_from(item)

    return Listing(
        [audit_partition(org_id) for org_id in orgs],
        None,
        read,
        lambda row: _matches_entry(row[1], query),
        lambda row: row[0],
        lambda at: f"{instant(at[0])}#{UUID(int=at[1])}",
        after=None if query.since is None else instant(query.since),
        before=None if query.before is None else instant(query.before),
        newest_first=True,
        cursor_max=(KEY_MAX, ID_MAX),
    )


def _position_of(entry: Item, listing: Listing) -> Position:
    """The position of an entry, read from its sort key."""
    order = entry[SORT_KEY if listing.table_index is None else listing.table_index.sort_key]["S"].split("#")
    if listing.table_index is STATUS_INDEX:
        return (UUID(order[1]).int,)
    if len(listing.cursor_max) == 1:
        return (UUID(order[0]).int,)
    return int(order[0]), UUID(order[1]).int


def _part_of(query: PagedQuery[Any]) -> Part:
    name = type(query).__name__
    parts = {"Batch": Part.BATCHES, "Bulk": Part.BULK, "Alert": Part.ALERTS}
    return next((part for word, part in parts.items() if name.startswith(word)), Part.PIPELINES)


# -- filters -----------------------------------------------------------------------------------------------

_TEXTS = ("event_type", "status", "action", "code", "correlation_id", "ordering_key", "idempotency_key", "user_id")


def _check_text(query: PagedQuery[Any]) -> None:
    for name in _TEXTS:
        check_storable(name, getattr(getattr(query, "filter", query), name, None))
    for actor in getattr(query, "actors", ()):
        check_storable("actor", actor)


def _with_key(query: PagedQuery[Any]) -> EventFilter | None:
    """The filter of a list of events that asks for an idempotency key. No event keeps its key; the key leads to it."""
    chosen = query.filter if isinstance(query, EventBodies) else query
    return chosen if isinstance(chosen, EventFilter) and chosen.idempotency_key is not None else None


def _check_search(query: EventFilter) -> None:
    if query.search_keys or query.endpoint_id is not None:
        raise not_offered(Part.SEARCH)


def _matches_type(event_type: str, wanted: str | None) -> bool:
    if wanted is None or not wanted.endswith("*"):
        return wanted in (None, event_type)
    return event_type.startswith(wanted[:-1])


def _matches_event(row: EventRow, query: EventFilter) -> bool:
    event = row.event
    return (
        not row.deleted
        and query.status in (None, row.status)
        and _matches_type(event.event_type, query.event_type)
        and (query.created_from is None or event.event_id >= earliest_id(query.created_from))
        and (query.created_before is None or event.event_id < earliest_id(query.created_before))
        and query.correlation_id in (None, event.correlation_id)
        and query.ordering_key in (None, event.ordering_key)
        and query.user_id in (None, event.user_id)
    )


def _is_listed(delivery: Delivery, query: DeliveryFilter) -> bool:
    old = delivery.state is DeliveryState.DEAD and (delivery.settled_at or 0) < query.archived_before
    return (
        not delivery.deleted
        and query.state in (None, DeliveryState.ARCHIVED if old else delivery.state)
        and query.endpoint_id in (None, delivery.endpoint_id)
        and query.code in (None, delivery.code)
        and _matches_type(delivery.event_type, query.event_type)
    )


def _is_queued(delivery: Delivery, query: RetryQueueFilter) -> bool:
    waiting = delivery.state is DeliveryState.PENDING
    failed_at = delivery.first_failed_at
    return (
        failed_at is not None
        and delivery.settled_at is None
        and query.waiting in (None, waiting)
        and query.endpoint_id in (None, delivery.endpoint_id)
        and _matches_type(delivery.event_type, query.event_type)
        and (query.failed_before is None or failed_at < query.failed_before)
    )


def _is_dead_letter(delivery: Delivery, query: DeadLetterFilter) -> bool:
    died_at = delivery.settled_at or 0
    old = delivery.state is DeliveryState.ARCHIVED or died_at < query.archived_before
    return (
        delivery.state in DEAD_STATES
        and not delivery.deleted
        and old is query.archived
        and query.endpoint_id in (None, delivery.endpoint_id)
        and query.cause in (None, delivery.cause)
        and _matches_type(delivery.event_type, query.event_type)
        and (query.died_from is None or died_at >= query.died_from)
        and (query.died_before is None or died_at < query.died_before)
    )


def _matches_endpoint(endpoint: Endpoint, org_id: UUID | None, state: EndpointState | None) -> bool:
    own = org_id in (None, endpoint.org_id)
    return own and (endpoint.state is state if state else endpoint.state is not EndpointState.DELETED)


def _matches_entry(entry: AuditEntry, query: AuditFilter) -> bool:
    return (
        (not query.actors or entry.actor in query.actors)
        and query.action in (None, entry.action)
        and (query.since is None or entry.at >= query.since)
        and (query.before is None or entry.at < query.before)
        and (not query.about or any(str(one) in entry.subjects for one in query.about))
    )


def _group(letters: Sequence[Delivery], *, exact: bool) -> CauseGroup:
    """The group of dead letters with one cause, given newest first."""
    newest, oldest = letters[0], letters[-1]
    assert newest.cause is not None and newest.settled_at is not None and oldest.settled_at is not None
    return CauseGroup(
        cause=newest.cause,
        endpoint_id=newest.endpoint_id,
        code=newest.code or "",
        reason=newest.reason or "",
        count=Count(len(letters), exact=exact),
        first_died_at=oldest.settled_at,
        last_died_at=newest.settled_at,
        sample_id=newest.delivery_id,
    )
