"""Rounds of claiming: fair, within the limits of each endpoint, and when to look again."""

from __future__ import annotations

import msgspec
import pytest

from doorstep.clock import SECOND
from doorstep.model.circuit import Circuit
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import EndpointState
from doorstep.model.outcome import Code
from doorstep.path.claim import rate_of
from doorstep.testing import FakeTransport
from tests.builders import NOW, an_endpoint, an_org, new_id
from tests.unit.path.scene import PLAIN, Bench

LARGE = msgspec.structs.replace(PLAIN, places=512, connections_per_endpoint=64)


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
    await bench.store.put_endpoint(msgspec.structs.replace(endpoint, state=EndpointState.DELETED))
    await bench.directory.reload()
    await bench.deliverer.round()
    delivery = await bench.delivery(delivery_id)
    assert (delivery.state, delivery.code) == (DeliveryState.DEAD, Code.ENDPOINT_DELETED)
    assert delivery.reason == "The endpoint was deleted while this waited."


async def test_an_endpoint_made_by_another_process_is_noticed_and_not_taken_for_deleted() -> None:
    bench = Bench()
    await bench.prepare()
    created = an_endpoint(bench.org.org_id)
    await bench.store.put_endpoint(created)
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
    assert len(bench.http.started) <= LARGE.places // 2
    newcomer = an_org()
    await bench.store.put_org(newcomer)
    theirs = an_endpoint(newcomer.org_id)
    await bench.store.put_endpoint(theirs)
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
        bench.clock.advance(1)
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
    assert bench.deliverer.hand.waiting > LARGE.connections_per_endpoint
