"""R6.3, promise 3: a deleted endpoint's waiting deliveries become dead letters with a clear reason; none disappears."""

from __future__ import annotations

from msgspec.structs import replace

from doorstep.model.attempt import Category, Code
from doorstep.model.claim import Moved
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.model.listing import Count, WaitingDeliveries
from tests.contract.scene import Scene
from tests.support.builders import new_id

REASON = "its endpoint was deleted"


async def bury(scene: Scene, limit: int = 100, created_before: int | None = None) -> Moved:
    endpoint_id = scene.endpoint.endpoint_id
    return await scene.store.dead_letter_waiting(
        endpoint_id, Code.ENDPOINT_DELETED, REASON, scene.now, limit, created_before
    )


async def test_buried_deliveries_are_dead_letters_with_the_reason_and_untried(scene: Scene) -> None:
    (submission,) = await scene.accept(due_at=scene.now + 999)
    buried = await bury(scene)
    delivery = await scene.delivery(submission.deliveries[0].delivery_id)

    assert buried.delivery_ids == (delivery.delivery_id,)
    assert [(one.event_id, one.new_status) for one in buried.changes] == [
        (submission.event.event_id, EventStatus.FAILED)
    ]
    assert (delivery.state, delivery.settled_at, delivery.due_at) == (DeliveryState.DEAD, scene.now, None)
    assert (delivery.category, delivery.code, delivery.reason) == (Category.PERMANENT, Code.ENDPOINT_DELETED, REASON)
    assert delivery.attempt == 0


async def test_only_waiting_deliveries_of_that_endpoint_are_buried(scene: Scene) -> None:
    other = await scene.add_endpoint()
    await scene.accept(2, endpoints=[scene.endpoint, other])
    held = await scene.claim_one()
    assert len((await bury(scene)).delivery_ids) == 1
    assert (await scene.deliver(held)).late == (), "what is being tried may still succeed"
    assert (await scene.counts())[DeliveryState.PENDING] == 2


async def test_burying_is_bounded_and_goes_on_until_nothing_is_left(scene: Scene) -> None:
    made = await scene.accept(5)
    rounds = [len((await bury(scene, limit=2)).delivery_ids) for _ in range(4)]
    assert rounds == [2, 2, 1, 0]
    assert await scene.counts() == {DeliveryState.DEAD: len(made)}


async def test_deliveries_that_are_not_old_enough_are_spared(scene: Scene) -> None:
    (old,) = await scene.accept(created_at=scene.now - 10)
    (new,) = await scene.accept(created_at=scene.now)
    buried = await bury(scene, created_before=scene.now)
    assert buried.delivery_ids == (old.deliveries[0].delivery_id,)
    assert (await scene.delivery(new.deliveries[0].delivery_id)).state is DeliveryState.PENDING


async def test_what_would_be_buried_can_be_counted_beforehand(scene: Scene) -> None:
    """Deliveries blocked by their ordering group count too. Deliveries in progress or for other endpoints do not."""
    other = await scene.add_endpoint()
    await scene.accept(created_at=scene.now - 10)
    await scene.claim_one()
    await scene.accept(2, created_at=scene.now - 10, due_at=scene.now + 999, endpoints=[scene.endpoint, other])
    await scene.accept(2, created_at=scene.now - 10, ordering_key="line")
    await scene.accept(created_at=scene.now)
    older = WaitingDeliveries(endpoint_id=scene.endpoint.endpoint_id, created_before=scene.now)
    assert await scene.store.count(scene.org_id, older) == Count(4, exact=True)
    assert await scene.store.count(scene.org_id, older, 3) == Count(3, exact=False)
    assert await scene.store.count(scene.org_id, replace(older, created_before=scene.now - 10)) == Count(0, exact=True)
    assert await scene.store.count(new_id(), older) == Count(0, exact=True), "of another organization"
    buried = 0
    while moved := (await bury(scene, created_before=scene.now)).delivery_ids:
        buried += len(moved)
    assert buried == 4
    assert await scene.store.count(scene.org_id, older) == Count(0, exact=True)


async def test_an_endpoint_without_waiting_deliveries_has_nothing_to_bury(scene: Scene) -> None:
    assert await bury(scene) == Moved()
    assert await scene.store.dead_letter_waiting(new_id(), "X", "x", scene.now, 10) == Moved()
