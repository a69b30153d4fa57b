"""The BulkRunner: each operation gets its turn, whatever becomes of the others."""

from __future__ import annotations

from typing import cast

import pytest

from doorstep.errors import StoreUnavailable
from doorstep.model.bulk import Bulk, BulkKind, Selection
from doorstep.path.bulk_steps import BulkStepper
from doorstep.services.bulk_runner import BulkRunner
from doorstep.stores.store import Store
from tests.builders import NOW, new_id


class Live:
    """A store of which only the operations under way are asked for."""

    def __init__(self, *bulks: Bulk) -> None:
        self._bulks = bulks

    async def live_bulks(self) -> list[Bulk]:
        return list(self._bulks)


class Stumbling:
    """A stepper that cannot take the step of one operation."""

    def __init__(self, stone: Bulk) -> None:
        self._stone = stone
        self.advanced: list[Bulk] = []

    async def advance(self, bulk: Bulk) -> float:
        if bulk is self._stone:
            raise StoreUnavailable("away")
        self.advanced.append(bulk)
        return 0.25


def an_operation() -> Bulk:
    return Bulk(
        bulk_id=new_id(), org_id=new_id(), kind=BulkKind.RETRY, selection=Selection(), actor="ops", created_at=NOW
    )


async def test_an_operation_that_fails_holds_up_no_other_and_its_failure_is_told() -> None:
    stone, *others = (an_operation() for _ in range(3))
    stepper = Stumbling(stone)
    runner = BulkRunner(cast(Store, Live(stone, *others)), cast(BulkStepper, stepper))
    with pytest.raises(StoreUnavailable):
        await runner.run_once()
    assert stepper.advanced == others


async def test_the_next_round_is_when_the_first_operation_wants_it_and_soon_if_there_is_none() -> None:
    one, other = an_operation(), an_operation()
    assert await BulkRunner(cast(Store, Live(one)), cast(BulkStepper, Stumbling(other))).run_once() == 0.25
    assert await BulkRunner(cast(Store, Live()), cast(BulkStepper, Stumbling(other))).run_once() == 1.0
