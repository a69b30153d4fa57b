"""What a bulk operation is about: counting it never takes more than a bounded look."""

from __future__ import annotations

from typing import cast

from doorstep.model.bulk import Selection
from doorstep.model.event import EventSummary
from doorstep.model.listing import Count, EventFilter, Page
from doorstep.path.bulk_selection import Chooser
from doorstep.path.tuning import Tuning
from doorstep.stores.store import Store
from doorstep.testing import FakeClock
from tests.builders import new_id


class Endless:
    """A list in which nothing matches and that never ends."""

    def __init__(self) -> None:
        self.pages = 0

    async def list_events(self, *_: object) -> Page[EventSummary]:
        self.pages += 1
        return Page((), "1")


async def test_a_filter_that_matches_nothing_in_a_long_list_is_counted_no_further_than_somebody_waits() -> None:
    store = Endless()
    chooser = Chooser(cast(Store, store), FakeClock(), Tuning())
    counted = await chooser.count(new_id(), Selection(events=EventFilter()), 1_000_000)
    assert (counted, store.pages) == (Count(0, exact=False), 100)
