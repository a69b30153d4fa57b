"""The walk of a bulk operation through its selection: which deliveries come next.

A retry leaves out what has no place yet (bulk_places.py), goes on, and comes back for it on another walk from the
start. It finds nothing twice: what was taken is no longer dead, or has died again since the operation began, or is
known to be under way, or has failed again meanwhile.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.bulk import Bulk, BulkKind
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.listing import Page
from doorstep.path.bulk_places import Places
from doorstep.path.bulk_selection import Chooser, before_start
from doorstep.stores.protocol.bulk import BulkStore

_SEARCH_PAGES = (200, 200)
"""How far one step looks for a delivery that has a place, past those of endpoints that have enough."""

Chosen = tuple[UUID, ...]


class Walker:
    def __init__(self, store: BulkStore, chooser: Chooser) -> None:
        self._store = store
        self._chooser = chooser
        self._places: dict[UUID, Places] = {}
        """Of each operation, as this process last saw them."""

    async def next(self, bulk: Bulk, room: int) -> tuple[Chosen, Bulk]:
        """The deliveries that come next, and the operation as it stands once they have been taken."""
        if (named := bulk.selection.delivery_ids) is not None:
            begin = int(bulk.cursor or 0)
            end = begin + room
            return named[begin:end], replace(bulk, cursor=str(end), all_taken=end >= len(named))
        if bulk.kind is not BulkKind.RETRY:
            page = await self._page(bulk, room)
            return tuple(one.delivery_id for one in page.items), _past(bulk, page)
        return await self._search(bulk, await self._look(bulk), room)

    def forget(self, bulk_id: UUID) -> None:
        self._places.pop(bulk_id, None)

    def keep_only(self, bulk_ids: AbstractSet[UUID]) -> None:
        self._places = {bulk_id: places for bulk_id, places in self._places.items() if bulk_id in bulk_ids}

    async def _look(self, bulk: Bulk) -> Places:
        under_way = await self._store.bulk_under_way(bulk.org_id, bulk.bulk_id) if bulk.in_flight else ()
        places = self._places[bulk.bulk_id] = Places(under_way, self._places.get(bulk.bulk_id))
        return places

    async def _search(self, bulk: Bulk, places: Places, room: int) -> tuple[Chosen, Bulk]:
        """Go on page by page until there is enough, or the walk or this step is at its end.

        A page is looked at again while endpoints that get on have something left in it. Behind those that do not, the
        next pages are searched: their letters may be many, and come first.
        """
        chosen: Chosen = ()
        for size in (room, *_SEARCH_PAGES):
            page = await self._page(bulk, size)
            wanted = [one for one in page.items if _untried_since(one, bulk.created_at) and not places.has(one)]
            found = _with_place(wanted, places, room - len(chosen))
            left = [one for one in wanted if not places.has(one)]
            chosen += found
            if found and left and (len(chosen) == room or any(map(places.gets_on, left))):
                break
            bulk = _past(replace(bulk, passed_over=bulk.passed_over or bool(left)), page)
            if len(chosen) == room or bulk.all_taken or (bulk.cursor is None and not bulk.causes_done):
                break
        return chosen, bulk

    async def _page(self, bulk: Bulk, size: int) -> Page[Delivery]:
        causes = bulk.good_causes
        selection = before_start(bulk, None if causes is None else causes[0])
        return await self._chooser.page(bulk.org_id, selection, bulk.cursor, size)


def _with_place(wanted: list[Delivery], places: Places, room: int) -> Chosen:
    chosen: list[UUID] = []
    for delivery in wanted:
        if len(chosen) == room:
            break
        if places.take(delivery):
            chosen.append(delivery.delivery_id)
    return tuple(chosen)


def _past(bulk: Bulk, page: Page[Delivery]) -> Bulk:
    """The operation behind a page: at the next page, else at the next cause, else at the start again or at the end."""
    if page.next is not None:
        return replace(bulk, cursor=page.next)
    if bulk.good_causes is not None and len(bulk.good_causes) > 1:
        return replace(bulk, cursor=None, causes_done=bulk.causes_done + 1)
    if bulk.passed_over:
        return replace(bulk, cursor=None, causes_done=0, passed_over=False)
    return replace(bulk, cursor=None, all_taken=True)


def _untried_since(delivery: Delivery, instant: Instant) -> bool:
    """One that failed again meanwhile has had its retry."""
    return delivery.state is not DeliveryState.PENDING or (delivery.last_attempt_at or 0) <= instant
