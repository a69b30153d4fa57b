"""What happens to the claims of a lost worker."""

from __future__ import annotations

import msgspec

from doorstep.engine.reclaim import reclaim
from doorstep.model.attempt import Code
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, EndpointState
from doorstep.model.listing import DeliveryAttempts
from tests.support.shortcuts import put
from tests.unit.engine.scene import PLAIN, Bench

D = DeliveryState


async def reclaimed(bench: Bench) -> int:
    return await reclaim(bench.store, bench.directory, bench.deliverer.settler, bench.clock.now(), lambda: 0.0)


async def test_nothing_is_reclaimed_before_its_lease_ends() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliverer.round()
    bench.clock.advance(PLAIN.lease_seconds - 0.001)
    assert await reclaimed(bench) == 0
    bench.clock.advance(0.001)
    assert await reclaimed(bench) == 1
    assert (await bench.delivery(delivery_id)).state is D.PENDING


async def test_a_lost_try_is_in_the_log_with_the_name_of_the_lost_worker_and_counts() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint, correlation_id="order-17")
    await bench.deliverer.round()
    bench.clock.advance(PLAIN.lease_seconds)
    await reclaimed(bench)
    (row,) = await bench.store.find(bench.org.org_id, DeliveryAttempts(delivery_id=delivery_id))
    assert (row.number, row.code, row.worker, row.late) == (1, Code.WORKER_LOST, "w1", False)
    assert row.request_headers == b"x-correlation-id: order-17"
    assert (await bench.delivery(delivery_id)).attempt == 1


async def test_a_payload_that_kills_every_worker_is_a_dead_letter_after_its_attempts() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    rounds = 0
    while (await bench.delivery(delivery_id)).state is not D.DEAD:
        await bench.deliverer.round()  # and the worker that claimed it disappears
        bench.clock.advance(PLAIN.lease_seconds)
        await reclaimed(bench)
        rounds += 1
    assert rounds == len(PLAIN.policy.delays) + 1


async def test_a_lost_worker_does_not_count_against_the_endpoint() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, 4)
    await bench.deliverer.round()
    bench.clock.advance(PLAIN.lease_seconds)
    assert await reclaimed(bench) == 4
    assert (await bench.store.get(Circuit, None, endpoint.endpoint_id)).failures == 0


async def test_the_lost_try_of_a_deleted_endpoint_is_a_dead_letter_that_says_so() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliverer.round()
    await put(bench.store, msgspec.structs.replace(endpoint, state=EndpointState.DELETED), 1)
    bench.clock.advance(PLAIN.lease_seconds)
    await reclaimed(bench)
    delivery = await bench.delivery(delivery_id)
    assert (delivery.state, delivery.code) == (D.DEAD, Code.ENDPOINT_DELETED)
