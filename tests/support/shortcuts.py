"""Shortcuts for common test operations on a store that take more than one method call or value."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.alert import AlertWrite
from doorstep.model.claim import WorkerEntry
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.inbox import InboxAnswer, InboxAnswered
from doorstep.model.listing import EventDeliveries, EventFilter, Orgs, PagedQuery, RoutingChanges
from doorstep.model.outbox import OutboxMessage
from doorstep.model.rollup import Figures
from doorstep.stores.store import Document, Put, Store

T = TypeVar("T")


def call_name(verb: str, *args: Any) -> str:
    """The name of a store call in tests. Where a method accepts several kinds, it includes the kind: `find OrgKeys`."""
    match verb:
        case "get" | "get_many":
            return f"{verb} {args[0].__name__}"
        case "page" | "count" | "count_by_endpoint" | "find":
            return f"{verb} {type(args[1]).__name__}"
        case "figures" | "series":
            return f"{verb} of {'the whole' if None in args[1] else 'endpoints'}"
        case "write":
            return f"write {'+'.join(sorted(type(one.document).__name__ for one in args[0])) or 'AuditEntry'}"
    return verb


async def put(
    store: Store,
    document: Document,
    version: int | None = None,
    *,
    entry: AuditEntry | None = None,
    limit: int | None = None,
) -> bool:
    """Write one document. By default, the expected version is the one that the document itself carries."""
    if version is None and not isinstance(document, WorkerEntry):
        version = getattr(document, "version", None)
    return await store.write([Put(document=document, expected_version=version, limit=limit)], entry)


async def post(store: Store, messages: Sequence[OutboxMessage]) -> None:
    """Put messages into the outbox. A known organization posts those of an unknown one, as a program could do."""
    known = {org.org_id for org in await store.find(None, Orgs())}
    poster = next((one.org_id for one in messages if one.org_id in known), next(iter(known)))
    assert await store.write_alerts(AlertWrite(org_id=poster, messages=tuple(messages)))


async def routing_versions(store: Store) -> dict[UUID, int]:
    """The routing version of every organization, as `accept` expects it."""
    return dict(await store.find(None, RoutingChanges(since=0)))


async def living_endpoints(store: Store) -> list[Endpoint]:
    """All endpoints of all organizations that are not deleted, those of one organization oldest first."""
    everyone = dict.fromkeys(await routing_versions(store), -1)
    found = sorted(await store.routing(everyone), key=lambda routing: routing.org.org_id)
    return [one for routing in found for one in routing.endpoints]


async def totals(store: Store, org_id: UUID | None = None) -> Figures:
    """The all-time figures of an organization or, without one, of all organizations."""
    return (await store.figures(org_id, [None]))[None]


async def all_items(store: Store, org_id: UUID | None, query: PagedQuery[T], limit: int = 500) -> AsyncIterator[T]:
    """Yield every item of a list, reading it page by page."""
    cursor: str | None = None
    while True:
        page = await store.page(org_id, query, cursor, limit)
        for item in page.items:
            yield item
        if page.next is None:
            return
        cursor = page.next


async def count_states(store: Store) -> dict[DeliveryState, int]:
    """How many deliveries are in each state, zeros included. Deliveries of deleted events are not counted."""
    counts = dict.fromkeys(DeliveryState, 0)
    for org in await store.find(None, Orgs()):
        async for event in all_items(store, org.org_id, EventFilter()):
            for delivery in await store.find(org.org_id, EventDeliveries(event_id=event.event_id)):
                counts[delivery.state] += 1
    return counts


async def acknowledge(store: Store, org_id: UUID, event_id: UUID, now: Instant) -> InboxAnswered:
    """Acknowledge one inbox event without a lease."""
    return await store.answer_inbox(org_id, [InboxAnswer(event_id)], "consumer", now)
