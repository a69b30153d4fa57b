"""A worker that lacks descriptors or ports claims less; the attempts that it could not make count for nothing."""

from __future__ import annotations

from doorstep.clock import SECOND
from doorstep.engine.capacity import Capacity
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit
from doorstep.model.listing import DeliveryAttempts
from doorstep.telemetry.facts import Notice, Telemetry
from tests.support.builders import NOW
from tests.unit.engine.scene import Bench

D = DeliveryState
LACK = "this process has no free file descriptors"


async def test_an_attempt_that_we_could_not_make_uses_up_nothing_however_often_and_the_receiver_is_not_blamed() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    for _ in range(20):
        await bench.deliverer.round()
        bench.http.fall_short(LACK)
        await bench.write_down()
        bench.clock.advance(60)
    delivery = await bench.delivery(delivery_id)
    assert (delivery.state, delivery.attempt, delivery.retry_attempts) == (D.PENDING, 0, 0)
    assert await bench.store.find(bench.org.org_id, DeliveryAttempts(delivery_id=delivery_id)) == []
    assert (await bench.store.get(Circuit, None, endpoint.endpoint_id)).failures == 0
    await bench.deliver()
    assert (await bench.delivery(delivery_id)).state is D.DELIVERED


async def test_after_a_shortage_nothing_is_claimed_for_a_moment_and_then_only_as_much_as_was_running() -> None:
    bench = Bench()
    endpoints = await bench.prepare(4)
    for endpoint in endpoints:
        await bench.accept(endpoint, 4)
    await bench.deliverer.round()
    running = len(bench.http.unanswered)
    bench.http.fall_short(LACK, count=running - 2)
    await bench.write_down()
    started = len(bench.http.started)
    assert await bench.deliverer.round() == bench.clock.now() + SECOND // 4
    assert len(bench.http.started) == started
    bench.clock.advance(0.25)
    await bench.deliverer.round()
    assert len(bench.http.unanswered) <= 3
    (told,) = bench.heard(Notice)
    assert LACK in told.message and told.fields["running"] == 2
    assert bench.telemetry.timings.attempts_prevented == running - 2


def test_the_slots_come_back_while_nothing_is_short_and_the_log_is_not_flooded() -> None:
    told: list[object] = []
    capacity = Capacity(64, Telemetry(told.extend))
    now = NOW
    assert (capacity.slots(now), capacity.pause_left(now)) == (64, 0)
    capacity.fall_short(LACK, 40, 24, now)
    assert capacity.slots(now) == 24
    capacity.fall_short(LACK, 1, 24, now + 1)
    assert len(told) == 1
    seen = [capacity.slots(now + second * SECOND) for second in range(1, 25)]
    assert seen == sorted(seen) and seen[0] < 30 and seen[-1] == 64
    assert capacity.pause_left(now + 60 * SECOND) == 0


def test_while_nothing_runs_at_all_the_pause_grows_to_seconds() -> None:
    capacity, now, pauses = Capacity(64, Telemetry()), NOW, []
    for _ in range(8):
        capacity.fall_short(LACK, 1, 0, now)
        pauses.append(capacity.pause_left(now) / SECOND)
        now += capacity.pause_left(now)
        assert capacity.slots(now) >= 1
    assert pauses == [0.25, 0.5, 1, 2, 4, 5, 5, 5]


def test_a_clock_that_is_set_back_prolongs_no_pause() -> None:
    capacity = Capacity(64, Telemetry())
    capacity.fall_short(LACK, 1, 0, NOW)
    assert capacity.pause_left(NOW - 3_600 * SECOND) == 0
    assert capacity.slots(NOW - 3_600 * SECOND) == 1
    assert capacity.slots(NOW - 3_500 * SECOND) > 1
