"""What a bulk operation is about: found page by page, and counted."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import DAY, Clock
from doorstep.model.bulk import Bulk, Selection
from doorstep.model.delivery import Delivery
from doorstep.model.listing import Count, EventFilter, Letters, Page, Queue
from doorstep.path.tuning import Tuning
from doorstep.stores.protocol.lists import ListStore

_EVENTS_EXAMINED = 50_000
"""Somebody waits for the count of events, among which those that are wanted may be rare."""


class Chooser:
    """Finds what is selected, as it stands now."""

    def __init__(self, store: ListStore, clock: Clock, tuning: Tuning) -> None:
        self._store = store
        self._clock = clock
        self._archive_after = round(tuning.archive_after_days * DAY)

    async def page(self, org_id: UUID, selection: Selection, cursor: str | None, limit: int) -> Page[Delivery]:
        if selection.queue is not None:
            return await self._store.retry_queue(org_id, _waiting(selection.queue), cursor, limit)
        return await self._store.dead_letters(org_id, self.dated(selection.letters), cursor, limit)

    async def count(self, org_id: UUID, selection: Selection, limit: int) -> Count:
        if selection.delivery_ids is not None:
            return Count(len(selection.delivery_ids), exact=True)
        if selection.queue is not None:
            return await self._store.count_retry_queue(org_id, _waiting(selection.queue), limit)
        if selection.letters is not None:
            return await self._store.count_dead_letters(org_id, self.dated(selection.letters), limit)
        return await self._store.count_events(org_id, selection.events or EventFilter(), max(limit, _EVENTS_EXAMINED))

    async def by_endpoint(self, org_id: UUID, selection: Selection, limit: int) -> dict[UUID, int]:
        """For which endpoints it is; of more than `limit`, of so many of them."""
        if selection.queue is not None:
            return await self._store.retry_queue_by_endpoint(org_id, _waiting(selection.queue), limit)
        return await self._store.dead_letters_by_endpoint(org_id, self.dated(selection.letters), limit)

    def dated(self, letters: Letters | None) -> Letters:
        assert letters is not None, "a selection names deliveries, dead letters, the retry queue or events"
        return replace(letters, archived_before=self._clock.now() - self._archive_after)


def before_start(bulk: Bulk, cause: int | None = None) -> Selection:
    """The selection as it was when the operation began: what dies again or fails again later is not its own."""
    letters = bulk.selection.letters
    if letters is None:
        return bulk.selection
    before = bulk.created_at + 1 if letters.died_before is None else min(letters.died_before, bulk.created_at + 1)
    return replace(
        bulk.selection,
        letters=replace(letters, died_before=before, cause=letters.cause if cause is None else cause),
    )


def _waiting(queue: Queue) -> Queue:
    """What is being tried at this moment cannot be acted upon."""
    return replace(queue, waiting=True)
