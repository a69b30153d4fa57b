"""Claim rounds: they are fair, respect the limits of each endpoint, and return when to look again."""

from __future__ import annotations

import msgspec
import pytest

from doorstep.clock import MILLISECOND, SECOND
from doorstep.engine.claim import rate_of
from doorstep.model.action import Action, ActionKind
from doorstep.model.attempt import Code
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, CircuitRules, CircuitState, EndpointState
from tests.support.builders import NOW, an_endpoint, an_org, new_id
from tests.support.shortcuts import put
from tests.support.transports import FakeTransport
from tests.unit.engine.scene import PLAIN, Bench

LARGE = msgspec.structs.replace(PLAIN, slots=512, connections_per_endpoint=64)


async def test_with_nothing_to_do_nothing_is_claimed_and_no_time_is_named() -> None:
    bench = Bench()
    await bench.prepare()
    assert await bench.deliverer.round() is None


async def test_the_next_look_is_when_the_first_delivery_is_due() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, due_at=NOW + 30 * SECOND)
    await bench.accept(endpoint, due_at=NOW + 20 * SECOND)
    assert await bench.deliverer.round() == NOW + 20 * SECOND
    assert not bench.http.started


async def test_a_delivery_is_claimed_at_its_due_time_and_not_before() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, due_at=NOW + 20 * SECOND)
    bench.clock.advance(19.999)
    await bench.deliverer.round()
    assert not bench.http.started
    bench.clock.advance(0.001)
    await bench.deliverer.round()
    assert len(bench.http.started) == 1


@pytest.mark.parametrize("state", [EndpointState.PAUSED, EndpointState.DISABLED])
async def test_the_deliveries_of_a_stopped_endpoint_are_held(state: EndpointState) -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(state=state)
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliverer.round()
    assert (await bench.delivery(delivery_id)).state is DeliveryState.PENDING


async def test_the_deliveries_of_a_deleted_endpoint_become_dead_letters_that_say_why() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    await put(bench.store, msgspec.structs.replace(endpoint, state=EndpointState.DELETED), 1)
    await bench.directory.refresh()
    await bench.deliverer.round()
    delivery = await bench.delivery(delivery_id)
    assert (delivery.state, delivery.code) == (DeliveryState.DEAD, Code.ENDPOINT_DELETED)
    assert delivery.reason == "The endpoint was deleted while the delivery was waiting."


async def test_an_endpoint_made_by_another_process_is_noticed_and_not_taken_for_deleted() -> None:
    bench = Bench()
    await bench.prepare()
    created = an_endpoint(bench.org.org_id)
    await put(bench.store, created, 0)
    (delivery_id,) = await bench.accept(created)
    await bench.deliver()
    assert (await bench.delivery(delivery_id)).state is DeliveryState.DELIVERED


async def test_concurrency_is_limited_over_all_workers_together() -> None:
    bench = Bench(LARGE)
    (endpoint,) = await bench.prepare(concurrency_max=3)
    await bench.accept(endpoint, 20)
    other_http = FakeTransport(bench.clock)
    other = bench.another_worker("w2", other_http)
    for _ in range(3):
        await bench.deliverer.round()
        await other.round()
    assert len(bench.http.unanswered) + len(other_http.unanswered) == 3


async def test_an_endpoint_that_is_full_elsewhere_is_looked_at_again_soon() -> None:
    bench = Bench(LARGE)
    (endpoint,) = await bench.prepare(concurrency_max=1)
    await bench.accept(endpoint, 2)
    await bench.another_worker("w2", FakeTransport(bench.clock)).round()
    assert await bench.deliverer.round() == NOW + SECOND // 10


async def test_a_rate_is_kept_over_time() -> None:
    bench = Bench(LARGE)
    (endpoint,) = await bench.prepare(rate_per_second=5.0)
    await bench.accept(endpoint, 100)
    for _ in range(100):
        bench.clock.advance(0.1)
        await bench.deliver()
    assert 45 <= len(bench.http.started) <= 51


async def test_a_rate_limited_endpoint_is_looked_at_again_when_its_next_ration_is_due() -> None:
    bench = Bench(LARGE)
    (endpoint,) = await bench.prepare(rate_per_second=4.0)
    await bench.accept(endpoint, 3)
    assert await bench.deliverer.round() == NOW + SECOND // 4


def test_the_lower_of_rate_limit_and_draining_rate_counts_until_the_backlog_is_gone() -> None:
    draining = an_endpoint(new_id(), rate_per_second=10.0, drain_per_second=2.0, drain_before=NOW)
    assert rate_of(draining, NOW - 1) == 2.0
    assert rate_of(draining, NOW) == 10.0
    assert rate_of(an_endpoint(new_id(), drain_per_second=2.0, drain_before=NOW), NOW - 1) == 2.0
    assert rate_of(an_endpoint(new_id()), NOW) is None


async def test_a_flood_of_one_organization_leaves_places_for_a_newcomer() -> None:
    bench = Bench(LARGE)
    flooded = await bench.prepare(20)
    for endpoint in flooded:
        await bench.accept(endpoint, 100)
    await bench.deliverer.round()
    assert len(bench.http.started) <= LARGE.slots // 2
    newcomer = an_org()
    await put(bench.store, newcomer)
    theirs = an_endpoint(newcomer.org_id)
    await put(bench.store, theirs, 0)
    await bench.accept(theirs)
    bench.http.started.clear()
    await bench.deliverer.round()
    assert [one.claim.endpoint_id for one in bench.http.started] == [theirs.endpoint_id]


async def test_an_endpoint_that_has_just_recovered_gets_one_place_then_two_then_four() -> None:
    bench = Bench(LARGE)
    (endpoint,) = await bench.prepare()
    await bench.store.put_circuit(Circuit(endpoint_id=endpoint.endpoint_id, changed_at=NOW), 0)
    await bench.accept(endpoint, 50)
    ramp = []
    for _ in range(3):
        await bench.deliverer.round()
        ramp.append(len(bench.http.unanswered))
        bench.http.answer()
        await bench.write_down()
        bench.clock.advance(0.25)
    assert ramp == [1, 2, 4]


async def test_a_fast_endpoint_is_claimed_ahead_so_that_claims_come_by_the_batch() -> None:
    bench = Bench(LARGE)
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, 600)
    for _ in range(4):
        await bench.deliverer.round()
        bench.http.answer()
        bench.clock.advance(0.05)
    await bench.deliverer.round()
    assert bench.deliverer.buffer.waiting > LARGE.connections_per_endpoint


async def test_an_organization_with_hundreds_of_due_endpoints_leaves_half_the_places_to_others() -> None:
    bench = Bench(LARGE)
    for endpoint in await bench.prepare(600):
        await bench.accept(endpoint)
    await bench.deliverer.round()
    assert LARGE.slots // 4 <= len(bench.http.started) <= LARGE.slots // 2


async def test_endpoints_that_flood_one_after_another_take_no_more_together_than_all_at_once() -> None:
    """The attempts of the first endpoints hang. They have nothing else due but still count as busy."""
    bench = Bench(LARGE)
    for endpoint in await bench.prepare(8):
        await bench.accept(endpoint, LARGE.connections_per_endpoint)
        await bench.deliverer.round()
    assert len(bench.http.unanswered) <= LARGE.slots // 2


async def test_a_healthy_endpoint_finds_a_place_beside_the_hanging_ones_of_its_own_organization() -> None:
    bench = Bench(LARGE)
    *hanging, healthy = await bench.prepare(9)
    for endpoint in hanging:
        await bench.accept(endpoint, LARGE.connections_per_endpoint)
        await bench.deliverer.round()
    await bench.accept(healthy)
    bench.http.started.clear()
    await bench.deliverer.round()
    assert [one.claim.endpoint_id for one in bench.http.started] == [healthy.endpoint_id]


async def test_a_probe_is_not_spent_while_its_organization_has_no_place_for_it() -> None:
    bench = Bench(LARGE)
    *flooding, broken = await bench.prepare(301)
    for endpoint in flooding:
        await bench.accept(endpoint)
    await bench.deliverer.round()
    opened = Circuit(endpoint_id=broken.endpoint_id, state=CircuitState.OPEN, failures=5, until=NOW, changed_at=NOW)
    await bench.store.put_circuit(opened, 0)
    await bench.accept(broken)
    await bench.deliverer.round()
    assert (await bench.store.get(Circuit, None, broken.endpoint_id)).state is CircuitState.OPEN
    bench.http.answer()
    await bench.deliverer.round()
    assert (await bench.store.get(Circuit, None, broken.endpoint_id)).state is CircuitState.HALF_OPEN


# -- bytes -------------------------------------------------------------------------------------------------

HEAVY = msgspec.structs.replace(LARGE, payload_bytes_max=100, buffer_bytes_max=2_000)
PAYLOAD = b"7" * HEAVY.payload_bytes_max


async def test_a_worker_holds_no_more_payloads_than_fit_into_its_memory_and_delivers_all_in_the_end() -> None:
    bench = Bench(HEAVY)
    (endpoint,) = await bench.prepare()
    delivery_ids = await bench.accept(endpoint, 60, payload=PAYLOAD)
    most = 0
    for _ in range(60):
        await bench.deliverer.round()
        most = max(most, bench.deliverer.buffer.bytes_of.total())
        bench.http.answer()
        await bench.write_down()
    assert HEAVY.buffer_bytes_max // 4 <= most <= HEAVY.buffer_bytes_max
    assert set(await bench.states(delivery_ids)) == {DeliveryState.DELIVERED}
    assert bench.deliverer.buffer.bytes_of.total() == 0


async def test_long_payloads_that_hang_leave_memory_for_those_of_another_organization() -> None:
    bench = Bench(HEAVY)
    for endpoint in await bench.prepare(20):
        await bench.accept(endpoint, 20, payload=PAYLOAD)
    for _ in range(10):
        await bench.deliverer.round()
    assert bench.deliverer.buffer.bytes_of.total() <= HEAVY.buffer_bytes_max
    newcomer = an_org()
    await put(bench.store, newcomer)
    theirs = an_endpoint(newcomer.org_id)
    await put(bench.store, theirs, 0)
    await bench.accept(theirs, 3, payload=PAYLOAD)
    bench.http.started.clear()
    await bench.deliverer.round()
    assert theirs.endpoint_id in {one.claim.endpoint_id for one in bench.http.started}


async def test_operators_retries_fit_into_the_memory_of_a_worker_too() -> None:
    bench = Bench(HEAVY)
    endpoints = await bench.prepare(20)
    delivery_ids = [one for endpoint in endpoints for one in await bench.accept(endpoint, 5, payload=PAYLOAD)]
    await bench.store.act(
        Action(kind=ActionKind.RETRY, org_id=bench.org.org_id, delivery_ids=tuple(delivery_ids), actor="ops", at=NOW)
    )
    for _ in range(10):
        await bench.deliverer.round()
    assert bench.deliverer.buffer.bytes_of.total() <= HEAVY.buffer_bytes_max


async def test_memory_is_free_again_for_what_was_claimed_and_not_tried() -> None:
    bench = Bench(HEAVY)
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, 9, payload=PAYLOAD, expires_at=NOW + SECOND)
    await bench.deliverer._claimer.claim()
    assert bench.deliverer.buffer.bytes_of.total() > 0
    bench.clock.advance(1)
    bench.deliverer._fill_slots()
    assert bench.deliverer.buffer.bytes_of.total() == 0


# -- endpoints that keep failing ---------------------------------------------------------------------------


async def test_an_endpoint_that_fails_all_the_time_is_tried_again_a_few_at_a_time() -> None:
    """Attempts that start together also time out together; a delivery that arrives meanwhile waits for all of them."""
    bench = Bench(LARGE)
    (endpoint,) = await bench.prepare(circuit=CircuitRules(failures_max=1_000))
    failing = Circuit(endpoint_id=endpoint.endpoint_id, failures=9, failing_since=NOW - SECOND)
    await bench.store.put_circuit(failing, 0)
    await bench.accept(endpoint, 200)
    under_way = []
    for _ in range(10):
        assert await bench.deliverer.round() in (NOW + 5 * MILLISECOND, None)
        under_way.append(len(bench.http.unanswered))
    assert under_way == [8, 16, 24, 32, 40, 48, 56, 64, 64, 64]


async def test_operators_retries_at_many_hanging_endpoints_leave_places_for_other_organizations() -> None:
    bench = Bench()
    endpoints = await bench.prepare(20)
    waiting = [(await bench.accept(endpoint, due_at=bench.clock.now() + 60 * SECOND))[0] for endpoint in endpoints]
    retry = Action(
        kind=ActionKind.RETRY, org_id=bench.org.org_id, delivery_ids=tuple(waiting), actor="ops", at=bench.clock.now()
    )
    await bench.store.act(retry)
    for _ in range(3):
        await bench.deliverer.round()
    assert bench.deliverer.buffer.busy < bench.tuning.slots
    other = an_org()
    await put(bench.store, other)
    neighbour = an_endpoint(other.org_id)
    await put(bench.store, neighbour, 0)
    await bench.directory.refresh()
    await bench.accept(neighbour)
    await bench.deliverer.round()
    assert bench.deliverer.buffer.busy_of(neighbour.endpoint_id) == 1
