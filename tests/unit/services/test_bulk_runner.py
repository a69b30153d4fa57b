"""The BulkRunner: each operation gets its turn, even if others fail or wait."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.errors import StoreUnavailable
from doorstep.model.bulk import Bulk, BulkKind, BulkState, LiveBulks, Selection
from doorstep.operations.bulk_steps import BulkStepper
from doorstep.services.bulk_runner import BulkRunner
from doorstep.stores.store import Features, Store
from doorstep.testing import FakeClock
from tests.support.builders import NOW, new_id


class Live:
    """A store that answers only the query for live bulk operations."""

    features = Features(many_machines=True, notices_posts=False)

    def __init__(self, *bulks: Bulk) -> None:
        self.bulks = bulks

    async def find(self, org_id: None, query: LiveBulks) -> list[Bulk]:
        return list(self.bulks)


class Stumbling:
    """A stepper that fails at the step of one operation."""

    def __init__(self, stone: Bulk) -> None:
        self._stone = stone
        self.advanced: list[Bulk] = []
        self.kept: set[UUID] = set()

    def keep_only(self, bulk_ids: set[UUID]) -> None:
        self.kept = bulk_ids

    async def advance(self, bulk: Bulk) -> float:
        if bulk is self._stone:
            raise StoreUnavailable("away")
        self.advanced.append(bulk)
        return 0.25


async def test_what_is_remembered_of_operations_that_others_ended_is_forgotten() -> None:
    one, other = an_operation(), an_operation()
    live, stepper = Live(one, other), Stumbling(an_operation())
    runner = a_runner(live, stepper, FakeClock())
    await runner.run_once()
    live.bulks = (other,)
    await runner.run_once()
    assert stepper.kept == {other.bulk_id}


def an_operation() -> Bulk:
    return Bulk(
        bulk_id=new_id(), org_id=new_id(), kind=BulkKind.RETRY, selection=Selection(), actor="ops", created_at=NOW
    )


def a_runner(live: Live, stepper: Stumbling, clock: FakeClock) -> BulkRunner:
    return BulkRunner(cast(Store, live), cast(BulkStepper, stepper), clock)


async def test_an_operation_that_fails_holds_up_no_other_and_its_failure_is_told() -> None:
    stone, *others = (an_operation() for _ in range(3))
    stepper = Stumbling(stone)
    with pytest.raises(StoreUnavailable):
        await a_runner(Live(stone, *others), stepper, FakeClock()).run_once()
    assert stepper.advanced == others


async def test_the_next_round_is_when_the_first_operation_wants_it_and_soon_if_there_is_none() -> None:
    one, other = an_operation(), an_operation()
    assert await a_runner(Live(one), Stumbling(other), FakeClock()).run_once() == 0.25
    assert await a_runner(Live(), Stumbling(other), FakeClock()).run_once() == 1.0


async def test_an_operation_that_waits_is_left_alone_until_its_turn_unless_it_has_orders() -> None:
    clock, one = FakeClock(), an_operation()
    live, stepper = Live(one), Stumbling(an_operation())
    runner = a_runner(live, stepper, clock)
    await runner.run_once()
    clock.advance(0.1)
    assert await runner.run_once() == pytest.approx(0.15)
    assert len(stepper.advanced) == 1
    live.bulks = (replace(one, state=BulkState.CANCELLED),)
    await runner.run_once()
    assert len(stepper.advanced) == 2
    clock.advance(0.25)
    await runner.run_once()
    assert len(stepper.advanced) == 3


async def test_many_operations_rest_half_as_long_as_their_steps_took_together() -> None:
    clock = FakeClock()

    class Slow(Stumbling):
        async def advance(self, bulk: Bulk) -> float:
            clock.advance(0.2)
            return 0.2

    bulks = [an_operation() for _ in range(3)]
    assert await a_runner(Live(*bulks), Slow(an_operation()), clock).run_once() == pytest.approx(0.3)
