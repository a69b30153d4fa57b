"""Finds events by their fields and anything by its id. Declared fields have an index; others are searched in the events
themselves, newest first, for a limited time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Clock, Instant, seconds
from doorstep.engine.directory import Directory
from doorstep.errors import InvalidInput, NotFound
from doorstep.model.action import audit_entry
from doorstep.model.alert import Alert
from doorstep.model.bulk import Bulk
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventBody, EventSummary
from doorstep.model.listing import EventBodies, EventFilter, Page, ShortIds
from doorstep.model.org import Org
from doorstep.model.record import earliest_id, short_id_ranges
from doorstep.operations.pages import SEARCHING_SECONDS, full_page
from doorstep.policy.search import FIELDS_MAX, check_name, check_value, has_values, search_key
from doorstep.schemas.search import ID_PATTERN
from doorstep.stores.limits import cursor_time, write_cursor
from doorstep.stores.store import Put, Store

SCAN_SECONDS = 0.03
_SCANNED_MAX = 20_000
_SCANNED_BYTES_MAX = 32 * 2**20
"""The maximum number of events, and of bytes in them, that one search reads."""
_CHUNK = 200
_DECLARING: Instant = seconds(60)
"""A field's index is complete a minute after its declaration: by then, every event has been stored that other processes
were accepting at that moment."""
_FIELDS_IN_SEARCH_MAX = 8
_ROUNDS_MAX = 250
"""Short ids are found among the events of the last two years."""
_TWINS_MAX = 20
SHORT_ID = re.compile(r"[0-9a-f]{8}")
_ID = re.compile(ID_PATTERN)

ItemKind: TypeAlias = Literal["event", "delivery", "endpoint", "alert", "bulk"]


class Found(NamedTuple):
    """One page of a search."""

    page: Page[EventSummary]
    examined: int | None = None
    """The number of events whose content was read; None if an index answered the whole search."""
    searched_until: Instant | None = None
    """All events since this time have been searched; None if all events have."""


class Item(NamedTuple):
    """Something that has an id."""

    kind: ItemKind
    item_id: UUID
    label: str
    event_id: UUID | None = None
    """The event of a delivery."""


class Search:
    def __init__(self, store: Store, directory: Directory, clock: Clock) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock

    # -- events by their fields ----------------------------------------------------------------------------

    async def events(
        self,
        org_id: UUID,
        filter: EventFilter,
        fields: Mapping[str, str],
        cursor: str | None,
        limit: int,
        scan_seconds: float = SCAN_SECONDS,
        searching_seconds: float = SEARCHING_SECONDS,
    ) -> Found:
        """One page of the events that match the filter and have these values in these fields, newest first."""
        if not fields:
            read = full_page(self._store, self._clock, org_id, filter, cursor, limit, searching_seconds)
            return Found(await read)
        _check_fields(fields)
        until = self._clock.now() + seconds(scan_seconds)
        declared = (await self.org(org_id)).search_fields
        indexed = [name for name in fields if name in declared]
        complete_from = max((declared[name] for name in indexed), default=None)
        if complete_from is None:
            return await self._scan(org_id, filter, fields, cursor, limit, until)
        rest = {name: fields[name] for name in fields if name not in declared}
        keys = tuple(search_key(name, fields[name]) for name in indexed)
        begin = max(filter.created_from or 0, complete_from)
        newer = replace(filter, search_keys=keys, created_from=begin)
        before = min(complete_from, complete_from if filter.created_before is None else filter.created_before)
        older = replace(filter, created_before=before)
        found = Found(Page(()))
        if cursor is None or cursor_time(cursor) >= complete_from:
            found = await self._newer(org_id, newer, rest, cursor, limit, until)
            if found.page.next is not None:
                return found
            cursor = write_cursor(earliest_id(complete_from).int)
            if len(found.page.items) == limit:
                return found._replace(page=Page(found.page.items, cursor))
        scanned = await self._scan(org_id, older, fields, cursor, limit - len(found.page.items), until)
        items = found.page.items + scanned.page.items
        return scanned._replace(
            page=Page(items, scanned.page.next), examined=(found.examined or 0) + (scanned.examined or 0) or None
        )

    async def _newer(
        self, org_id: UUID, filter: EventFilter, rest: Mapping[str, str], cursor: str | None, limit: int, until: Instant
    ) -> Found:
        """The events that the index covers."""
        if rest:
            return await self._scan(org_id, filter, rest, cursor, limit, until)
        return Found(await full_page(self._store, self._clock, org_id, filter, cursor, limit))

    async def _scan(
        self,
        org_id: UUID,
        filter: EventFilter,
        fields: Mapping[str, str],
        cursor: str | None,
        limit: int,
        until: Instant,
    ) -> Found:
        """Read events until the page is full or a limit is reached."""
        query, ids = EventBodies(filter=filter), list[UUID]()
        examined = size = 0
        while True:
            page = await self._store.page(org_id, query, cursor, _CHUNK)
            places = await asyncio.to_thread(_places, page.items, fields)
            room = limit - len(ids)
            if len(places) > room:  # the page is cut after its last match, to get the cursor of that position
                page = await self._store.page(org_id, query, cursor, places[room - 1] + 1)
            ids += [page.items[place].event_id for place in places[:room]]
            examined += len(page.items)
            size += sum(len(one.payload) + len(one.metadata) for one in page.items)
            cursor = page.next
            enough = len(ids) == limit or examined >= _SCANNED_MAX or size >= _SCANNED_BYTES_MAX
            if cursor is None or enough or self._clock.now() >= until:
                break
        summaries = {one.event_id: one for one in await self._store.get_many(EventSummary, org_id, ids)} if ids else {}
        found = tuple(summaries[one] for one in ids if one in summaries)
        return Found(Page(found, cursor), examined, None if cursor is None else cursor_time(cursor))

    async def endpoint_id(self, org_id: UUID, id_or_name: str) -> UUID:
        """The id of the only endpoint with this name, or the id itself, which may be that of a deleted endpoint."""
        with suppress(ValueError):
            return UUID(id_or_name)
        named = [one for one in await self._directory.endpoints_of(org_id) if one.name == id_or_name]
        if len(named) != 1:
            message = f"{len(named) or 'no'} endpoints are named {id_or_name[:100]!r}; give the id of one"
            raise InvalidInput("endpoint", message)
        return named[0].endpoint_id

    # -- declared fields -----------------------------------------------------------------------------------

    async def org(self, org_id: UUID) -> Org:
        await self._directory.refresh()
        await self._directory.check_org(org_id)
        org = self._directory.org(org_id)
        assert org is not None, "check_org has just found it"
        return org

    async def declare(self, org_id: UUID, names: Sequence[str], actor: str) -> Org:
        """Set the fields that have an index. Events that were accepted before keep the values that they had then."""
        for name in names:
            check_name("search_fields", name)
        if len(names) > FIELDS_MAX:
            raise InvalidInput("search_fields", f"must be at most {FIELDS_MAX} fields, got {len(names)}")
        org, now = await self.org(org_id), self._clock.now()
        fields = {name: org.search_fields.get(name, now + _DECLARING) for name in names}
        changed = replace(org, search_fields=fields)
        entry = audit_entry(now, org_id, actor, "org.search_fields", org_id, result=", ".join(fields) or "none")
        await self._store.write([Put(document=changed)], entry)
        await self._directory.reload((org_id,))
        return changed

    # -- anything by its id --------------------------------------------------------------------------------

    async def by_id(self, org_id: UUID, text: str) -> list[Item]:
        """What has this id. A short id, the last eight digits, may belong to several things, but rarely does."""
        if not _ID.fullmatch(text):
            raise InvalidInput("id", f"must be a whole id or its last eight digits, got {text[:100]!r}")
        text = text.strip().lower()
        if SHORT_ID.fullmatch(text):
            return await self._by_short_id(org_id, text)
        item_id = UUID(text)
        found = [item for kind in _LABELS if (item := await self._by_kind(org_id, kind, item_id)) is not None]
        events = await self._described(org_id, EventSummary, [item_id])
        return [*events, *found]

    async def _by_short_id(self, org_id: UUID, text: str) -> list[Item]:
        tail = int(text, 16)
        ranges = short_id_ranges(tail, self._clock.now(), _ROUNDS_MAX)
        ids = [
            await self._store.find(org_id, ShortIds(kind=kind, tail=tail, ranges=ranges, limit=_TWINS_MAX))
            for kind in ("event", "delivery")
        ]
        own = await self._directory.endpoints_of(org_id)
        endpoints = [_item(one) for one in own if one.endpoint_id.hex.endswith(text)]
        events = await self._described(org_id, EventSummary, ids[0])
        return [*events, *await self._described(org_id, Delivery, ids[1]), *endpoints]

    async def _described(self, org_id: UUID, kind: type[Any], ids: Sequence[UUID]) -> list[Item]:
        return [_item(one) for one in (await self._store.get_many(kind, org_id, ids) if ids else ())]

    async def _by_kind(self, org_id: UUID, kind: type[Any], item_id: UUID) -> Item | None:
        with suppress(NotFound):
            return _item(await self._store.get(kind, org_id, item_id))
        return None


def fields_named(payload: Mapping[str, str], metadata: Mapping[str, str]) -> dict[str, str]:
    """Values by the whole names of their fields."""
    sources = {"payload": payload, "metadata": metadata}
    return {f"{source}.{path}": value for source, values in sources.items() for path, value in values.items()}


def _check_fields(fields: Mapping[str, str]) -> None:
    if len(fields) > _FIELDS_IN_SEARCH_MAX:
        raise InvalidInput("payload", f"at most {_FIELDS_IN_SEARCH_MAX} fields can be searched at once")
    for name, value in fields.items():
        check_name(name.partition(".")[0], name)
        check_value(name, value)


def _places(bodies: Sequence[EventBody], fields: Mapping[str, str]) -> list[int]:
    return [place for place, one in enumerate(bodies) if has_values(one.payload, one.metadata, fields)]


_LABELS: dict[type[Any], Any] = {
    Delivery: lambda one: Item("delivery", one.delivery_id, f"{one.event_type}, {one.state}", one.event_id),
    Endpoint: lambda one: Item("endpoint", one.endpoint_id, one.name),
    Alert: lambda one: Item("alert", one.alert_id, one.rule),
    Bulk: lambda one: Item("bulk", one.bulk_id, one.kind),
}


def _item(one: Any) -> Item:
    if isinstance(one, EventSummary):
        return Item("event", one.event_id, f"{one.event_type}, {one.status}")
    item: Item = _LABELS[type(one)](one)
    return item
