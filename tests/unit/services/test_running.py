"""The one loop that runs every service. Time is virtual here: nothing waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

from msgspec import UNSET

from doorstep.clock import SECOND
from doorstep.errors import StoreUnavailable
from doorstep.services.worker import keep_running, pause
from doorstep.telemetry.facts import Fact, ServiceTrouble, Telemetry
from tests.simulation.machines import SkewedClock
from tests.simulation.virtual_loop import VirtualLoop


class Counting:
    """A service that records when it runs and calls `act` in each round."""

    name = "counting"

    def __init__(self, loop: VirtualLoop, act: Callable[[int], float | None]) -> None:
        self.wake = asyncio.Event()
        self.rounds: list[float] = []
        self._loop = loop
        self._act = act

    async def run_once(self) -> float | None:
        self.rounds.append(self._loop.now / SECOND)
        await asyncio.sleep(0)
        return self._act(len(self.rounds))


def run(
    act: Callable[[int], float | None], for_seconds: float, disturb: Callable[[Counting], None] | None = None
) -> tuple[list[float], list[Fact]]:
    """Run a service for a while; return the times of its rounds and the facts it published."""
    loop = VirtualLoop()
    told: list[Fact] = []
    service = Counting(loop, act)

    async def main() -> None:
        task = asyncio.create_task(keep_running(service, SkewedClock(loop), Telemetry(told.extend)))
        if disturb is not None:
            loop.call_later(1.25, disturb, service)
        await asyncio.sleep(for_seconds)
        task.cancel()

    loop.run(main())
    return service.rounds, told


def test_a_service_runs_again_after_the_delay_that_it_named() -> None:
    rounds, _ = run(lambda n: 0.5, 2.2)
    assert rounds == [0, 0.5, 1, 1.5, 2]


def test_a_service_that_named_no_delay_sleeps_until_it_is_woken() -> None:
    rounds, _ = run(lambda n: None, 9, lambda service: service.wake.set())
    assert rounds == [0, 1.25]


def test_a_wake_up_ends_the_pause_early() -> None:
    rounds, _ = run(lambda n: 5, 4, lambda service: service.wake.set())
    assert rounds == [0, 1.25]


def test_a_wake_up_during_a_round_is_not_lost() -> None:
    loop = VirtualLoop()
    service = Counting(loop, lambda n: service.wake.set() if n == 1 else None)

    async def main() -> None:
        task = asyncio.create_task(keep_running(service, SkewedClock(loop), Telemetry()))
        await asyncio.sleep(1)
        task.cancel()

    loop.run(main())
    assert service.rounds == [0, 0]


def test_a_service_that_wants_no_pause_lets_others_have_their_turn() -> None:
    rounds, _ = run(lambda n: 0.0 if n < 100 else 60, 1)
    assert rounds == [0] * 100


def away(n: int) -> float:
    if n <= 8:
        raise StoreUnavailable("away")
    return 60


def test_a_failing_round_is_told_and_tried_again_with_growing_pauses_up_to_a_second() -> None:
    rounds, told = run(away, 20)
    gaps = [round(later - earlier, 3) for earlier, later in pairwise(rounds)]
    assert gaps == [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 1]
    troubles = [fact for fact in told if isinstance(fact, ServiceTrouble)]
    assert [fact.retry_in_seconds for fact in troubles] == gaps
    assert troubles[0].error == "StoreUnavailable: away"
    assert troubles[0].traceback is UNSET


def test_an_error_of_our_own_is_told_with_its_traceback() -> None:
    def act(n: int) -> float:
        if n == 1:
            raise KeyError("ours")
        return 60

    (trouble,) = [fact for fact in run(act, 1)[1] if isinstance(fact, ServiceTrouble)]
    assert "in act" in str(trouble.traceback)


def test_after_a_success_the_pauses_begin_small_again() -> None:
    def act(n: int) -> float:
        if n in (1, 2, 4):
            raise StoreUnavailable("away")
        return 1

    rounds, _ = run(act, 3)
    assert [round(at, 3) for at in rounds] == [0, 0.05, 0.15, 1.15, 1.2, 2.2]


def test_wake_ups_do_not_hurry_a_service_whose_store_is_down() -> None:
    def act(n: int) -> float:
        raise StoreUnavailable("away")

    rounds, _ = run(act, 3, lambda service: service.wake.set())
    assert [round(at, 2) for at in rounds] == [0, 0.05, 0.15, 0.35, 0.75, 1.55, 2.55]


def test_a_service_that_is_told_to_stop_finishes_its_round() -> None:
    loop, finished = VirtualLoop(), []

    class Slow(Counting):
        async def run_once(self) -> float | None:
            await asyncio.sleep(1)
            finished.append(loop.now / SECOND)
            return 0

    async def main() -> None:
        stopping, service = asyncio.Event(), Slow(loop, lambda n: 0)
        task = asyncio.create_task(keep_running(service, SkewedClock(loop), Telemetry(), stopping))
        await asyncio.sleep(1.5)
        stopping.set()
        await task

    loop.run(main())
    assert finished == [1, 2]


def test_a_pause_leaves_no_timer_behind_that_could_wake_the_next_round() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        wake = asyncio.Event()
        loop.call_later(0.1, wake.set)
        await pause(wake, 5)
        wake.clear()
        await asyncio.sleep(10)
        assert not wake.is_set()

    loop.run(main())
