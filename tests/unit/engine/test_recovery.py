"""R6.4: when the receiver is back, the deliveries that waited because of the outage follow at once."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from doorstep.clock import SECOND
from doorstep.errors import StoreUnavailable
from doorstep.model.claim import Quota
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, CircuitRules, CircuitState, Endpoint, RetryPolicy
from doorstep.model.listing import DeliveryAttempts
from tests.unit.engine.scene import PLAIN, Bench

POLICY = RetryPolicy((600, 3_600), jitter=0, retry_on_recovery=True)
RULES = CircuitRules(failures_max=2)
LARGE = msgspec.structs.replace(PLAIN, slots=256, connections_per_endpoint=64)


async def down(bench: Bench, waiting: int = 4, policy: RetryPolicy = POLICY) -> tuple[Endpoint, list[UUID]]:
    """An endpoint whose receiver went down: every delivery has failed once, and the circuit has just opened."""
    (endpoint,) = await bench.prepare(circuit=RULES, policy=policy)
    deliveries = await bench.accept(endpoint, waiting)
    await bench.deliver(503)
    assert await state(bench, endpoint) is CircuitState.OPEN
    assert {(await bench.delivery(one)).attempt for one in deliveries} == {1}
    return endpoint, deliveries


async def state(bench: Bench, endpoint: Endpoint) -> CircuitState:
    return (await bench.store.get(Circuit, None, endpoint.endpoint_id)).state


async def step(bench: Bench, status: int = 200, seconds: float = 0.02) -> int:
    """One round; returns how many attempts it made."""
    await bench.deliverer.round()
    made = len(bench.http.unanswered)
    bench.http.answer(status)
    await bench.write_down()
    bench.clock.advance(seconds)
    return made


async def test_when_nothing_is_due_a_waiting_delivery_is_the_probe_and_the_failure_costs_it_nothing() -> None:
    bench = Bench()
    endpoint, deliveries = await down(bench)
    before = [await bench.delivery(one) for one in deliveries]
    bench.clock.advance(1)
    assert await step(bench, 503) == 1
    after = [await bench.delivery(one) for one in deliveries]
    (probed,) = [one for one in after if one.attempt == 2]
    (unprobed,) = [one for one in before if one.delivery_id == probed.delivery_id]
    assert (probed.state, probed.due_at) == (DeliveryState.PENDING, unprobed.due_at)
    assert (probed.retry_attempts, probed.retries_max) == (0, 2)
    log = await bench.store.find(endpoint.org_id, DeliveryAttempts(delivery_id=probed.delivery_id))
    assert [(one.number, one.response_code) for one in log] == [(1, 503), (2, 503)]


async def test_probes_take_turns_so_that_one_bad_delivery_does_not_keep_the_circuit_open() -> None:
    bench = Bench()
    _, deliveries = await down(bench)
    for _ in range(4):
        bench.clock.advance(2)
        await step(bench, 503)
    assert [(await bench.delivery(one)).attempt for one in deliveries] == [2, 2, 2, 2]


async def test_a_due_delivery_that_fails_as_a_probe_makes_way_for_the_next_and_uses_no_retry() -> None:
    bench = Bench()
    endpoint, _ = await down(bench)
    fresh = await bench.accept(endpoint, 3)
    for _ in range(3):
        bench.clock.advance(2)
        await step(bench, 503)
    found = [await bench.delivery(one) for one in fresh]
    assert [(one.attempt, one.retry_attempts) for one in found] == [(1, 0)] * 3
    assert all(one.due_at is not None and one.due_at <= bench.clock.now() for one in found)


async def test_under_any_other_policy_a_probe_is_an_ordinary_attempt_and_nothing_is_brought_forward() -> None:
    bench = Bench()
    plain = msgspec.structs.replace(POLICY, retry_on_recovery=False)
    endpoint, deliveries = await down(bench, policy=plain)
    (probe,) = await bench.accept(endpoint)
    bench.clock.advance(1)
    assert await step(bench, 503) == 1
    due_at = (await bench.delivery(probe)).due_at
    assert due_at is not None and due_at > bench.clock.now() + 599 * SECOND
    bench.clock.advance(60)
    (other,) = await bench.accept(endpoint)
    await step(bench)
    assert (await bench.delivery(other)).state is DeliveryState.DELIVERED
    for _ in range(20):
        assert await step(bench, seconds=0.25) == 0
    assert {(await bench.delivery(one)).attempt for one in deliveries} == {1}


async def test_when_the_circuit_closes_all_that_waited_follow_at_the_pace_of_the_ramp() -> None:
    bench = Bench(LARGE)
    _, deliveries = await down(bench, 60)
    bench.clock.advance(1)
    made = [await step(bench, seconds=0.25) for _ in range(8)]
    assert made[:6] == [1, 2, 4, 8, 16, 29], "the probe, then twice as many in each quarter of a second"
    assert {one for one in await bench.states(deliveries)} == {DeliveryState.DELIVERED}


async def test_one_that_fails_again_returns_to_its_due_time_and_is_not_brought_forward_again() -> None:
    bench = Bench(LARGE)
    endpoint, deliveries = await down(bench)
    due_at = (await bench.delivery(deliveries[0])).due_at
    bench.clock.advance(1)
    assert await step(bench) == 1
    assert await step(bench, 503, 0.25) == 1
    assert await step(bench) == 2
    for _ in range(20):
        assert await step(bench, seconds=0.25) == 0
    (left,) = [one for one in [await bench.delivery(key) for key in deliveries] if one.state is DeliveryState.PENDING]
    assert (left.due_at, left.attempt, left.retry_attempts) == (due_at, 2, 0)
    assert await state(bench, endpoint) is CircuitState.CLOSED


async def test_fresh_deliveries_share_every_round_with_the_backlog() -> None:
    bench = Bench(LARGE)
    endpoint, waited = await down(bench, 60)
    held = await bench.accept(endpoint, 60)
    bench.clock.advance(1)
    await step(bench)
    for _ in range(4):
        await step(bench, seconds=0.25)
    fresh = await bench.accept(endpoint, 12)
    assert await step(bench) == 16
    done = [sum(one is DeliveryState.DELIVERED for one in await bench.states(some)) for some in (fresh, held, waited)]
    assert done[0] == 8, "half of the sixteen slots"
    await step(bench)
    assert set(await bench.states(fresh)) == {DeliveryState.DELIVERED}


async def test_claims_of_fresh_deliveries_are_attempted_although_the_claim_of_the_backlog_fails() -> None:
    bench = Bench(LARGE)
    endpoint, _ = await down(bench, 60)
    bench.clock.advance(1)
    for _ in range(4):
        await step(bench, seconds=0.25)
    fresh = await bench.accept(endpoint, 2)
    bench.failing.refuses = lambda name, args: name == "claim" and any(one.attempted_before for one in args[0])
    with pytest.raises(StoreUnavailable):
        await bench.deliverer.round()
    assert set(await bench.states(fresh)) == {DeliveryState.IN_PROGRESS}
    bench.failing.refuses = lambda name, args: False
    await step(bench)
    assert set(await bench.states(fresh)) == {DeliveryState.DELIVERED}


async def test_with_a_single_slot_fresh_deliveries_and_the_backlog_take_turns() -> None:
    bench = Bench()
    endpoint, _ = await down(bench)
    bench.clock.advance(0.01)
    await bench.store.put_circuit(
        Circuit(endpoint_id=endpoint.endpoint_id, changed_at=bench.clock.now()), await version(bench, endpoint)
    )
    bench.clock.advance(0.01)
    fresh = await bench.accept(endpoint, 4)
    for _ in range(4):
        assert await step(bench, seconds=0.01) == 1
    assert sum(one is DeliveryState.DELIVERED for one in await bench.states(fresh)) == 2


async def version(bench: Bench, endpoint: Endpoint) -> int:
    return (await bench.store.get(Circuit, None, endpoint.endpoint_id)).version


async def test_claims_that_an_opening_circuit_sends_back_keep_their_due_time() -> None:
    bench = Bench(msgspec.structs.replace(LARGE, connections_per_endpoint=2))
    endpoint, deliveries = await down(bench, 2)
    due_at = (await bench.delivery(deliveries[0])).due_at
    (claim, *_) = await bench.store.claim(
        [_all_of(endpoint, bench)], bench.clock.now(), bench.clock.now() + SECOND, "w"
    )
    assert claim.early
    await bench.store.release([claim], bench.clock.now())
    assert (await bench.delivery(claim.delivery_id)).due_at == due_at


def _all_of(endpoint: Endpoint, bench: Bench) -> Quota:
    return Quota(endpoint.endpoint_id, 9, attempted_before=bench.clock.now() + 1)


async def test_a_circuit_that_is_switched_off_lets_everything_through() -> None:
    off = CircuitRules(failures_max=1, enabled=False)
    bench = Bench()
    (endpoint,) = await bench.prepare(circuit=off, policy=RetryPolicy((0,) * 9, jitter=0))
    await bench.accept(endpoint)
    assert [await step(bench, 503) for _ in range(5)] == [1] * 5
    assert await state(bench, endpoint) is CircuitState.CLOSED


async def test_the_setting_switches_all_circuits_off_even_open_ones() -> None:
    bench = Bench(msgspec.structs.replace(PLAIN, circuits=False))
    (endpoint,) = await bench.prepare(circuit=RULES)
    opened = Circuit(
        endpoint_id=endpoint.endpoint_id, state=CircuitState.OPEN, failures=9, until=bench.clock.now() + 300 * SECOND
    )
    await bench.store.put_circuit(opened, 0)
    await bench.accept(endpoint)
    assert await step(bench, 503) == 1
    assert await state(bench, endpoint) is CircuitState.CLOSED
