"""The selection of a bulk operation: counting it examines only a bounded number of rows."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import pytest

from doorstep.engine.directory import Tuning
from doorstep.model.bulk import Selection
from doorstep.model.listing import Count, EventFilter
from doorstep.operations.bulk_steps import Selector
from doorstep.stores.store import Store
from doorstep.testing import FakeClock
from tests.support.builders import new_id


class Endless:
    """An endless list in which no row matches."""

    async def count(self, _org_id: UUID, _query: EventFilter, limit: int) -> Count:
        self.examined = limit
        return Count(0, exact=False)


@pytest.mark.parametrize(("asked", "examined"), [(10_000, 50_000), (100_000, 100_000)])
async def test_events_that_are_rare_are_looked_for_among_many_and_no_further_than_somebody_waits(
    asked: int, examined: int
) -> None:
    store = Endless()
    chooser = Selector(cast(Store, store), FakeClock(), Tuning())
    counted = await chooser.count(new_id(), Selection(events=EventFilter()), asked)
    assert (counted, store.examined) == (Count(0, exact=False), examined)
