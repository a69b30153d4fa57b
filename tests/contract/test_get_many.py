"""Reading several things by id in one call gives the same as one by one; missing things are left out."""

from __future__ import annotations

from doorstep.model.action import ActionKind
from doorstep.model.delivery import Delivery, DeliveryPayload, DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState
from tests.contract.scene import Scene
from tests.support.builders import new_id


async def test_deliveries_are_as_each_of_them_is_alone(scene: Scene) -> None:
    ids = [await scene.in_state(state) for state in DeliveryState]
    await scene.act(ActionKind.DELETE, await scene.in_state(DeliveryState.DEAD))
    found = await scene.store.get_many(Delivery, scene.org_id, [*ids, new_id(), ids[0]])
    assert sorted(found, key=lambda one: ids.index(one.delivery_id)) == [await scene.delivery(one) for one in ids]
    assert await scene.store.get_many(Delivery, scene.org_id, []) == []


async def test_payloads_are_what_goes_out_for_each(scene: Scene) -> None:
    plain, edited = [await scene.in_state(DeliveryState.DEAD) for _ in range(2)]
    await scene.act(ActionKind.RETRY, edited, payload=b'{"edited":1}')
    found = {
        one.delivery_id: one.payload
        for one in await scene.store.get_many(DeliveryPayload, scene.org_id, [plain, edited, new_id(), plain])
    }
    assert found == {
        one: (await scene.store.get(DeliveryPayload, scene.org_id, one)).payload for one in (plain, edited)
    }
    assert found[edited] == b'{"edited":1}'


async def test_a_deleted_event_has_no_payloads_and_still_its_deliveries(scene: Scene) -> None:
    delivery_id = await scene.in_state(DeliveryState.DELIVERED)
    event_id = (await scene.delivery(delivery_id)).event_id
    await scene.store.delete_event(scene.org_id, event_id, "ops", scene.now)
    assert {
        one.delivery_id: one.payload for one in await scene.store.get_many(DeliveryPayload, scene.org_id, [delivery_id])
    } == {}
    assert len(await scene.store.get_many(Delivery, scene.org_id, [delivery_id])) == 1


async def test_endpoints_are_there_also_when_they_are_deleted(scene: Scene) -> None:
    other = await scene.add_endpoint()
    gone = await scene.change_endpoint(state=EndpointState.DELETED)
    ids = [gone.endpoint_id, other.endpoint_id]
    found = await scene.store.get_many(Endpoint, scene.org_id, [*ids, new_id(), ids[0]])
    assert {one.endpoint_id: one for one in found} == {
        one: await scene.store.get(Endpoint, scene.org_id, one) for one in ids
    }
    assert len(found) == 2


async def test_those_of_another_organization_are_not_there(scene: Scene) -> None:
    stranger = await Scene(scene.store).prepare()
    delivery_id = await scene.in_state(DeliveryState.PENDING)
    assert await scene.store.get_many(Delivery, stranger.org_id, [delivery_id]) == []
    assert {
        one.delivery_id: one.payload
        for one in await scene.store.get_many(DeliveryPayload, stranger.org_id, [delivery_id])
    } == {}
    assert await scene.store.get_many(Endpoint, stranger.org_id, [scene.endpoint.endpoint_id]) == []


async def test_a_thousand_can_be_asked_for_at_once(scene: Scene) -> None:
    ids = [one.deliveries[0].delivery_id for one in await scene.accept(1_000)]
    assert {one.delivery_id for one in await scene.store.get_many(Delivery, scene.org_id, ids)} == set(ids)
    assert (
        {one.delivery_id: one.payload for one in await scene.store.get_many(DeliveryPayload, scene.org_id, ids)}
    ).keys() == set(ids)
