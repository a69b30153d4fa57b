"""Replay: an event of the past is sent again, to one endpoint, as a new event.

It is a new event, with an id of its own, because what was delivered stays delivered, and because a receiver that
has seen the first one would take the same id for a duplicate. It keeps the correlation id.
"""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from msgspec.structs import replace

from doorstep.errors import NotFound
from doorstep.model.bulk import Bulk, Selection
from doorstep.model.event import Event
from doorstep.model.listing import EventFilter
from doorstep.model.submission import Receipt
from doorstep.path.accept import Accepter, Draft
from doorstep.stores.store import Store


class Replayer:
    def __init__(self, store: Store, accepter: Accepter) -> None:
        self._store = store
        self._accepter = accepter

    async def replay_one(self, org_id: UUID, event_id: UUID, endpoint_id: UUID) -> Receipt:
        view = await self._store.event(org_id, event_id)
        return (await self._accepter.accept([_again(view.event, endpoint_id)]))[0]

    async def replay(self, bulk: Bulk, room: int) -> Bulk:
        """Send the next events of a bulk operation, oldest first; returns it as it stands then.

        Each has an idempotency key of its own, so a step that is repeated after a crash sends nothing twice.
        """
        assert bulk.endpoint_id is not None, "a replay has a target"
        page = await self._store.list_events(bulk.org_id, _oldest_first(bulk.selection, bulk), bulk.cursor, room)
        drafts = []
        for summary in page.items:
            with suppress(NotFound):  # deleted or cleaned away a moment ago
                view = await self._store.event(bulk.org_id, summary.event_id)
                key = f"replay:{bulk.bulk_id}:{summary.event_id}"
                drafts.append(replace(_again(view.event, bulk.endpoint_id), idempotency_key=key))
        if drafts:
            await self._accepter.accept(drafts)
        sent = len(drafts)
        return replace(
            bulk,
            cursor=page.next,
            all_taken=page.next is None,
            taken=bulk.taken + sent,
            succeeded=bulk.succeeded + sent,
        )


def _oldest_first(selection: Selection, bulk: Bulk) -> EventFilter:
    chosen = selection.events or EventFilter()
    before = bulk.created_at if chosen.created_before is None else min(chosen.created_before, bulk.created_at)
    return replace(chosen, created_before=before, oldest_first=True)


def _again(event: Event, endpoint_id: UUID) -> Draft:
    return Draft(
        org_id=event.org_id,
        event_type=event.event_type,
        payload=event.payload,
        correlation_id=event.correlation_id,
        endpoint_ids=(endpoint_id,),
        metadata=event.metadata,
        ordering_key=event.ordering_key,
    )
