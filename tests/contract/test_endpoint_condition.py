"""The condition of many endpoints in one call: their circuits and their oldest waiting deliveries."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from doorstep.clock import DAY, SECOND
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, CircuitState, EndpointState
from doorstep.model.event import owed_since
from doorstep.model.listing import BusiestEndpoints, UnhealthyEndpoints
from doorstep.model.rollup import HOUR, Span
from doorstep.stores.limits import WAITING_EXAMINED_MAX
from tests.contract.scene import Scene
from tests.support.builders import an_endpoint, an_org, new_id
from tests.support.shortcuts import put


async def test_the_stored_circuits_are_read_together_and_those_that_never_failed_are_left_out(scene: Scene) -> None:
    other = an_endpoint(scene.org.org_id)
    await put(scene.store, other, 0)
    opened = Circuit(endpoint_id=other.endpoint_id, state=CircuitState.OPEN, failures=5, changed_at=scene.now)
    await scene.store.put_circuit(opened, 0)
    found = {
        one.endpoint_id: one
        for one in await scene.store.get_many(
            Circuit, scene.org.org_id, [scene.endpoint.endpoint_id, other.endpoint_id, new_id()]
        )
    }
    assert found == {other.endpoint_id: await scene.store.get(Circuit, None, other.endpoint_id)}


async def test_the_oldest_open_delivery_tells_since_when_an_endpoint_waits(scene: Scene) -> None:
    endpoint_id, org_id = scene.endpoint.endpoint_id, scene.org.org_id
    assert await scene.store.waiting_since(org_id, [endpoint_id]) == {}
    first = scene.now
    await scene.accept(created_at=scene.now)
    scene.now += 10 * SECOND
    await scene.accept(created_at=scene.now)
    assert await scene.store.waiting_since(org_id, [endpoint_id]) == {endpoint_id: first}
    (claim, *_) = await scene.claim(1)
    assert await scene.store.waiting_since(org_id, [endpoint_id]) == {endpoint_id: first}, "in progress is open too"
    await scene.deliver(claim)
    assert await scene.store.waiting_since(org_id, [endpoint_id]) == {endpoint_id: first + 10 * SECOND}


async def test_what_was_sent_for_later_waits_since_then_and_a_time_before_the_acceptance_means_that(
    scene: Scene,
) -> None:
    endpoint_id, org_id, now = scene.endpoint.endpoint_id, scene.org.org_id, scene.now
    await scene.accept(created_at=now, deliver_at=now + 9 * SECOND, due_at=now + 9 * SECOND)
    assert await scene.store.waiting_since(org_id, [endpoint_id]) == {endpoint_id: now + 9 * SECOND}
    await scene.accept(created_at=now + SECOND, deliver_at=now - SECOND)
    assert await scene.store.waiting_since(org_id, [endpoint_id]) == {endpoint_id: now + SECOND}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("at_once", [0, 1, 30], ids=["all for later", "one at once", "many at once"])
async def test_the_oldest_is_found_among_many_whenever_they_were_sent_and_for_whenever(
    scene: Scene, seed: int, at_once: int
) -> None:
    random, owed = Random(seed), []
    for number in range(30):
        created_at = scene.now + random.randrange(60) * SECOND
        deliver_at = scene.now + random.randrange(60, 600) * SECOND if number >= at_once else None
        owed.append(owed_since(created_at, deliver_at))
        await scene.accept(created_at=created_at, deliver_at=deliver_at, due_at=scene.now + random.randrange(DAY))
    found = await scene.store.waiting_since(scene.org.org_id, [scene.endpoint.endpoint_id])
    assert found == {scene.endpoint.endpoint_id: min(owed)}


async def test_the_busiest_endpoints_are_those_with_the_most_deliveries_folded_or_not(scene: Scene) -> None:
    quiet, busy, gone, idle = [await scene.add_endpoint() for _ in range(4)]
    await scene.accept(2, [busy, gone])
    await scene.store.aggregate(scene.now + 60 * SECOND, 100)
    await scene.accept(1, [busy, scene.endpoint, quiet, gone])
    await scene.accept(1, [scene.endpoint])
    await put(scene.store, replace(gone, state=EndpointState.DELETED), gone.version)
    found = [busy.endpoint_id, scene.endpoint.endpoint_id, quiet.endpoint_id]
    assert await scene.store.find(None, BusiestEndpoints(limit=10)) == found, f"{idle.name} has had none"
    assert await scene.store.find(None, BusiestEndpoints(limit=2)) == found[:2]


async def test_channels_are_not_among_the_busiest_endpoints(scene: Scene) -> None:
    reserved = Scene(scene.store)
    reserved.org = an_org(org_id=OPERATIONS_ORG)
    reserved.endpoint = an_endpoint(OPERATIONS_ORG)
    await reserved.prepare()
    await reserved.accept(3)
    await scene.accept()
    for _ in range(2):
        assert await scene.store.find(None, BusiestEndpoints(limit=1)) == [scene.endpoint.endpoint_id]
        await scene.store.aggregate(scene.now + 60 * SECOND, 100)


async def test_who_is_disabled_barred_or_lost_something_is_found_among_any_number_the_worst_first(scene: Scene) -> None:
    store, since = scene.store, Span.HOUR.start(scene.now) - HOUR
    open_, half, off, gone, old = [await scene.add_endpoint() for _ in range(5)]
    for one, state in ((half, "half_open"), (open_, "open"), (gone, "open"), (off, "half_open"), (old, "closed")):
        await store.put_circuit(
            Circuit(endpoint_id=one.endpoint_id, state=CircuitState(state), changed_at=scene.now), 0
        )
    await put(store, replace(off, state=EndpointState.DISABLED), 1)
    await put(store, replace(gone, state=EndpointState.DELETED), 1)
    recent, scene.endpoint = scene.endpoint, old
    scene.now -= 3 * HOUR
    await scene.in_state(DeliveryState.DEAD)
    scene.now, scene.endpoint = scene.now + 3 * HOUR, recent
    await scene.in_state(DeliveryState.DEAD)
    expected = [off.endpoint_id, open_.endpoint_id, half.endpoint_id]
    for _ in range(2):
        assert await store.find(scene.org_id, UnhealthyEndpoints(since=since, hours=2, limit=10)) == [
            *expected,
            recent.endpoint_id,
        ]
        found = await store.find(scene.org_id, UnhealthyEndpoints(since=since - 3 * HOUR, hours=5, limit=10))
        assert found == [*expected, recent.endpoint_id, old.endpoint_id]
        assert await store.find(scene.org_id, UnhealthyEndpoints(since=since, hours=2, limit=2)) == expected[:2]
        assert await store.find(new_id(), UnhealthyEndpoints(since=since, hours=2, limit=10)) == []
        await store.aggregate(scene.now + DAY, 100)


async def test_another_organization_learns_nothing_of_either(scene: Scene) -> None:
    stranger = an_org()
    await put(scene.store, stranger)
    await scene.accept(created_at=scene.now)
    await scene.store.put_circuit(Circuit(endpoint_id=scene.endpoint.endpoint_id, failures=1), 0)
    ids = [scene.endpoint.endpoint_id]
    assert {one.endpoint_id: one for one in await scene.store.get_many(Circuit, stranger.org_id, ids)} == {}
    assert {one.endpoint_id: one for one in await scene.store.get_many(Circuit, None, ids)} == {
        ids[0]: await scene.store.get(Circuit, None, ids[0])
    }, "the engine asks for all"
    assert await scene.store.waiting_since(stranger.org_id, ids) == {}


async def test_however_many_wait_the_oldest_first_try_is_found(scene: Scene) -> None:
    first = scene.now
    await scene.accept(created_at=scene.now)
    scene.now += SECOND
    await scene.accept(WAITING_EXAMINED_MAX + 1, created_at=scene.now)
    found = await scene.store.waiting_since(scene.org.org_id, [scene.endpoint.endpoint_id])
    assert found == {scene.endpoint.endpoint_id: first}
