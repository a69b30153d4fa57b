"""What the watch over the clock does about a jump, and about a process that stood still."""

from __future__ import annotations

import pytest

from doorstep.clock import SECOND, AnchoredClock, Instant
from doorstep.engine.reclaim import reclaim
from doorstep.errors import StoreUnavailable
from doorstep.model.delivery import DeliveryState
from doorstep.services.clock_watch import ClockWatch
from doorstep.telemetry.facts import Notice
from tests.unit.engine.scene import PLAIN, Bench

D = DeliveryState


class Watched:
    """A bench whose worker looks at the clock as its reclaimer does, and its claimed delivery."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.watch = ClockWatch(self.bench.store, self.bench.clock, self.bench.telemetry, "w1")

    async def look(self) -> int:
        """One round of the reclaimer; returns how many attempts it settled as lost."""
        bench, now = self.bench, self.bench.clock.now()
        assert await self.watch.look(now) == 0
        return await reclaim(bench.store, bench.directory, bench.deliverer.settler, now, lambda: 0.0)

    async def start(self) -> None:
        (endpoint,) = await self.bench.prepare()
        (self.delivery_id,) = await self.bench.accept(endpoint)
        await self.bench.deliverer.round()
        await self.look()


@pytest.mark.parametrize("jump", [600, 3_600, -600, -3_600])
async def test_an_attempt_in_flight_survives_a_jump_of_the_clock_without_a_second_delivery(jump: int) -> None:
    watched = Watched()
    bench = watched.bench
    await watched.start()
    bench.clock.advance(jump)
    assert await watched.look() == 0, "its worker is alive"
    await bench.deliverer.round()
    assert len(bench.http.started) == 1
    bench.http.answer(200)
    await bench.write_down()
    assert (await bench.delivery(watched.delivery_id)).state is D.DELIVERED


@pytest.mark.parametrize("jump", [600, -600])
async def test_an_attempt_that_is_lost_after_a_jump_is_settled_when_its_lease_would_have_ended(jump: int) -> None:
    watched = Watched()
    await watched.start()
    watched.bench.clock.advance(jump)
    await watched.look()
    for _ in range(int(PLAIN.lease_seconds) - 1):
        watched.bench.clock.advance(1)
        assert await watched.look() == 0
    watched.bench.clock.advance(1)
    assert await watched.look() == 1


async def test_the_leases_of_a_process_that_stood_still_are_renewed() -> None:
    watched = Watched()
    bench = watched.bench
    await watched.start()
    bench.clock.advance(PLAIN.lease_seconds + 60)
    assert await watched.look() == 0
    bench.http.answer(200)
    await bench.write_down()
    assert (await bench.delivery(watched.delivery_id)).state is D.DELIVERED


async def test_after_the_clock_was_set_back_waiting_deliveries_are_due_at_once() -> None:
    watched = Watched()
    bench = watched.bench
    (endpoint,) = await bench.prepare()
    await watched.look()
    await bench.accept(endpoint)
    bench.clock.advance(-3_600)
    await watched.look()
    await bench.deliverer.round()
    assert len(bench.http.started) == 1


async def test_a_process_that_starts_repairs_what_was_written_while_the_clock_was_ahead() -> None:
    watched = Watched()
    bench = watched.bench
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint)
    bench.clock.advance(-3_600)
    await watched.look()
    await bench.deliverer.round()
    assert len(bench.http.started) == 1


async def test_a_jump_is_not_forgotten_when_the_store_is_away() -> None:
    watched = Watched()
    bench = watched.bench
    await watched.start()
    bench.clock.advance(600)
    bench.failing.away.add("renew_leases")
    with pytest.raises(StoreUnavailable):
        await watched.look()
    bench.clock.advance(1)
    bench.failing.away.clear()
    assert await watched.look() == 0
    bench.http.answer(200)
    await bench.write_down()
    assert (await bench.delivery(watched.delivery_id)).state is D.DELIVERED


class SetClock(AnchoredClock):
    """A clock whose wall clock a test sets."""

    ahead: Instant = 0

    @classmethod
    def _wall(cls) -> Instant:
        return AnchoredClock._wall() + cls.ahead


@pytest.fixture
def clock() -> SetClock:
    SetClock.ahead = 0
    return SetClock()


async def test_a_jump_is_told_and_leases_prove_nothing_until_other_processes_have_noticed_it_too(
    clock: SetClock,
) -> None:
    bench = Bench()
    watch = ClockWatch(bench.store, clock, bench.telemetry, "w1")
    assert await watch.look(clock.now()) == 0
    SetClock.ahead = 600 * SECOND
    assert 2 < await watch.look(clock.now()) <= 3
    (told,) = bench.heard(Notice)
    assert told.level == "warning" and "clock was set" in told.message
    assert 599 < told.fields["moved_seconds"] < 601
    assert await watch.look(clock.now()) > 0
    assert len(bench.heard(Notice)) == 1
