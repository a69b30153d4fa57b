"""R7.3 and R5.5: in a bulk retry over many endpoints, no endpoint holds up the others. The scene plays the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import pytest

from doorstep.clock import SECOND
from doorstep.model.bulk import IN_FLIGHT_MAX, Bulk, BulkInFlight, BulkState, Selection
from doorstep.model.claim import Quota, Settlement
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import AuditFilter, DeadLetterFilter, RetryQueueFilter
from doorstep.operations import bulk_steps
from doorstep.operations.bulk_steps import EndpointSlots
from doorstep.stores.store import Store
from tests.contract.desk import Desk, work
from tests.contract.scene import Scene
from tests.support.builders import refusal

_DEAD, _LIVING = 3, 7
_OF_DEAD, _OF_LIVING = 70, 20
"""The number of dead letters of each dead endpoint, and of each living one."""
_TOTAL = _DEAD * _OF_DEAD + _LIVING * _OF_LIVING


class Street:
    """Three endpoints with open circuits, whose deliveries nobody claims, and seven healthy ones."""

    def __init__(self, scene: Scene, endpoints: Sequence[Endpoint]) -> None:
        self.scene = scene
        self.dead, self.living = endpoints[:_DEAD], endpoints[_DEAD:]
        self.letters: Counter[UUID] = Counter()

    @property
    def all(self) -> list[Endpoint]:
        return [*self.dead, *self.living]

    def assert_all_arrived(self, *endpoints: Endpoint, but: int = 0) -> None:
        """Check that all deliveries of these endpoints arrived once, and no others."""
        counts = {one.endpoint_id: _OF_DEAD if one in self.dead else _OF_LIVING for one in endpoints}
        assert self.letters == {endpoint_id: count - but for endpoint_id, count in counts.items()}

    async def fail(self, *, for_good: bool) -> None:
        """Create failed deliveries for each endpoint, such that those of the dead endpoints come first in the list."""
        for endpoint in (*self.living, *self.dead) if for_good else self.all:
            await self.scene.accept(_OF_DEAD if endpoint in self.dead else _OF_LIVING, [endpoint])
            quota = Quota(endpoint.endpoint_id, _OF_DEAD)
            claims = await self.scene.store.claim([quota], self.scene.now, self.scene.now + SECOND, "w1")
            if for_good:
                await self.scene.settle(*(Settlement.dead(claim, refusal(self.scene.now)) for claim in claims))
            else:
                await self.scene.fail(*claims)
            self.scene.wait(1)

    async def go_on(self, desk: Desk, bulk: Bulk, steps: int, *endpoints: Endpoint) -> Bulk:
        """Run some steps of the operation. After each, the workers of these endpoints deliver what is due."""
        for _ in range(steps):
            bulk = await desk.step(bulk)
            quotas = [Quota(endpoint.endpoint_id, 1_000) for endpoint in endpoints]
            claims = await self.scene.store.claim(quotas, self.scene.now, self.scene.now + SECOND, "w1")
            self.letters.update(claim.endpoint_id for claim in claims)
            await self.scene.deliver(*claims)
        return bulk


@pytest.fixture
async def street(scene: Scene) -> Street:
    return Street(scene, [await scene.add_endpoint() for _ in range(_DEAD + _LIVING)])


@pytest.mark.parametrize(
    "selection", [Selection(letters=DeadLetterFilter()), Selection(queue=RetryQueueFilter())], ids=["dead", "queue"]
)
async def test_all_letters_of_living_endpoints_are_retried_while_dead_ones_hold_theirs(
    street: Street, desk: Desk, selection: Selection
) -> None:
    await street.fail(for_good=selection.letters is not None)
    bulk = await street.go_on(desk, await desk.begin(selection=selection), 30, *street.living)
    street.assert_all_arrived(*street.living)
    assert (bulk.succeeded, bulk.all_taken) == (_LIVING * _OF_LIVING, False)
    assert bulk.in_flight <= _DEAD * 25, "and of each dead one only so many wait"

    bulk = await street.go_on(desk, bulk, 30, *street.all)
    bulk = await desk.step(bulk, 2)
    assert (bulk.state, bulk.taken, bulk.refused) == (BulkState.FINISHED, _TOTAL, 0)
    street.assert_all_arrived(*street.all)
    await assert_each_was_retried_once(street.scene)


class FirstCome(EndpointSlots):
    """A broken rule: 200 slots, first come, first served."""

    def take(self, delivery: Delivery) -> bool:
        if self.free <= IN_FLIGHT_MAX - 200:
            return False
        self._add(delivery.delivery_id, delivery.endpoint_id, waiting=True)
        return True


async def test_control_with_places_for_whoever_comes_first_three_dead_endpoints_hold_up_all_others(
    street: Street, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_steps, "EndpointSlots", FirstCome)
    await street.fail(for_good=True)
    bulk = await street.go_on(desk, await desk.begin(), 30, *street.living)
    assert (bulk.in_flight, street.letters) == (200, {})


async def assert_each_was_retried_once(scene: Scene) -> None:
    """Check this in the audit log, in which every action names its subject."""
    lines = (await scene.store.page(scene.org_id, AuditFilter(), limit=1_000)).items
    subjects = Counter(subject for line in lines if line.action == "retry" for subject in line.subjects)
    assert len(subjects) == _TOTAL
    assert set(subjects.values()) == {1}


async def test_another_process_goes_on_in_the_middle_and_still_takes_each_letter_once(
    street: Street, desk: Desk, other_store: Store
) -> None:
    await street.fail(for_good=True)
    bulk = await street.go_on(desk, await desk.begin(), 7, *street.living)
    assert 0 < bulk.taken < _TOTAL
    successor = Desk(street.scene, other_store)
    bulk = await street.go_on(successor, bulk, 30, *street.living)
    street.assert_all_arrived(*street.living)
    bulk = await street.go_on(successor, bulk, 30, *street.all)
    assert (bulk.taken, bulk.refused) == (_TOTAL, 0)
    await assert_each_was_retried_once(street.scene)


async def test_a_cause_whose_endpoint_is_dead_again_after_its_canary_holds_up_no_other_cause(
    street: Street, desk: Desk
) -> None:
    await street.fail(for_good=True)
    bulk = await desk.step(await desk.begin(canary=True))
    await work(street.scene, *street.all)
    bulk = await street.go_on(desk, bulk, 30, *street.living)
    street.assert_all_arrived(*street.living, but=1)
    bulk = await street.go_on(desk, bulk, 30, *street.all)
    assert bulk.taken == _TOTAL


async def test_named_deliveries_are_all_taken_whoever_holds_them(street: Street, desk: Desk) -> None:
    await street.fail(for_good=True)
    page = await street.scene.store.page(street.scene.org_id, DeadLetterFilter(), None, 1_000)
    named = tuple(one.delivery_id for one in page.items)
    bulk = await street.go_on(desk, await desk.begin(selection=Selection(delivery_ids=named)), 20, *street.living)
    assert (bulk.taken, bulk.all_taken) == (_TOTAL, True)
    street.assert_all_arrived(*street.living)


async def test_what_is_under_way_is_told_with_its_endpoint_until_its_result_is_there(scene: Scene, desk: Desk) -> None:
    other = await scene.add_endpoint()
    for endpoint in (scene.endpoint, other):
        await scene.accept(2, [endpoint])
        await scene.kill(*await scene.store.claim([Quota(endpoint.endpoint_id, 9)], scene.now, scene.now + 9, "w1"))
    scene.wait(1)
    bulk = await desk.step(await desk.begin(), 3)
    assert [one.waiting for one in await scene.store.find(scene.org_id, BulkInFlight(bulk_id=bulk.bulk_id))] == [
        True
    ] * 4
    quota = Quota(other.endpoint_id, 9)
    claims = await scene.store.claim([quota], scene.now, scene.now + SECOND, "w1", 9)
    seen = await scene.store.find(scene.org_id, BulkInFlight(bulk_id=bulk.bulk_id))
    assert {one.delivery_id for one in seen if not one.waiting} == {claim.delivery_id for claim in claims}
    await scene.fail(*claims)
    left = await scene.store.find(scene.org_id, BulkInFlight(bulk_id=bulk.bulk_id))
    assert {one.delivery_id for one in left} == {one.delivery_id for one in seen if one.waiting}
    assert {one.endpoint_id for one in left} == {scene.endpoint.endpoint_id}
    assert len(left) < IN_FLIGHT_MAX
