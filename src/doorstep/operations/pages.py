"""Fills pages by calling the store several times, because each call examines only a limited number of entries. Also
keeps totals consistent with the pages."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

import msgspec

from doorstep.clock import Clock, Instant, seconds
from doorstep.model.listing import CauseGroups, Count, Page, PagedQuery
from doorstep.stores.store import Store

T = TypeVar("T")

_FILLING: Instant = seconds(0.03)
"""How long a page is filled up after its first items."""
SEARCHING_SECONDS = 1.0
"""How long a page without any item goes on. Examining a million events without an index takes about this long."""


async def full_page(
    store: Store,
    clock: Clock,
    org_id: UUID,
    query: PagedQuery[T],
    cursor: str | None,
    limit: int,
    searching_seconds: float = SEARCHING_SECONDS,
) -> Page[T]:
    """A page of a list, read on until it is full, the list ends or the time is up. It is empty only if there are no
    matches, or if the first one was not found in `searching_seconds`."""
    page, started = await store.page(org_id, query, cursor, limit), clock.now()
    items = page.items
    while page.next is not None and len(items) < limit:
        if clock.now() - started >= (_FILLING if items else seconds(searching_seconds)):
            break
        if items and isinstance(query, CauseGroups):
            break  # groups are sorted within a page, so pages cannot be joined
        page = await store.page(org_id, query, page.next, limit - len(items))
        items += page.items
    return Page(items, page.next)


def at_least_shown(count: Count, page: Page[T], cursor: str | None) -> Count:
    """The total that is shown with a page: never less than the items on the page."""
    shown = len(page.items)
    if cursor is None and page.next is None:
        return Count(shown, exact=True)
    return count if count.exact else msgspec.structs.replace(count, value=max(count.value, shown))
