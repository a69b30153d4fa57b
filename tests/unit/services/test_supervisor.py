"""The Supervisor keeps the set number of workers running, pauses between restarts, and stops what it started."""

from __future__ import annotations

import pytest

from doorstep.clock import SECOND, Instant
from doorstep.services.supervisor import Supervisor
from doorstep.telemetry.facts import Fact, Notice, Telemetry


class FakeClock:
    def __init__(self) -> None:
        self.time: Instant = 1_000_000 * SECOND

    def now(self) -> Instant:
        return self.time

    def pass_seconds(self, seconds: float) -> None:
        self.time += round(seconds * SECOND)


class FakeProcess:
    def __init__(self, pid: int, *, stubborn: bool = False) -> None:
        self.pid = pid
        self.code: int | None = None
        self.stubborn = stubborn
        self.signals: list[str] = []

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.signals.append("terminate")
        if not self.stubborn:
            self.code = 0

    def kill(self) -> None:
        self.signals.append("kill")
        self.code = -9


class Scene:
    """A supervisor whose processes exit only when a test makes them exit."""

    def __init__(self, count: int, *, stubborn: bool = False) -> None:
        self.clock = FakeClock()
        self.facts: list[Fact] = []
        self.started: list[FakeProcess] = []
        self._stubborn = stubborn
        self.supervisor = Supervisor(self._spawn, count, self.clock, Telemetry(self.facts.extend))

    def _spawn(self) -> FakeProcess:
        self.started.append(FakeProcess(len(self.started) + 1, stubborn=self._stubborn))
        return self.started[-1]

    @property
    def running(self) -> list[int]:
        return [process.pid for process in self.started if process.code is None]

    async def pause_before_replacement(self) -> float:
        """Kill the newest process and return the seconds until its replacement starts."""
        self.started[-1].code = 1
        count, begun = len(self.started), self.clock.time
        await self.supervisor.run_once()
        while len(self.started) == count:
            self.clock.pass_seconds(0.1)
            await self.supervisor.run_once()
        return (self.clock.time - begun) / SECOND


async def test_all_places_are_filled_at_once_and_stay_filled() -> None:
    scene = Scene(3)
    for _ in range(5):
        await scene.supervisor.run_once()
    assert [process.pid for process in scene.started] == scene.running == [1, 2, 3]


async def test_without_places_there_is_nothing_to_look_after() -> None:
    assert await Scene(0).supervisor.run_once() is None


async def test_a_worker_that_dies_is_told_of_and_replaced_after_a_pause() -> None:
    scene = Scene(1)
    await scene.supervisor.run_once()
    scene.started[0].code = -9
    await scene.supervisor.run_once()
    (notice,) = scene.facts
    assert isinstance(notice, Notice)
    assert (notice.level, notice.fields["pid"], notice.fields["exit_code"]) == ("warning", 1, -9)
    assert len(scene.started) == 1
    scene.clock.pass_seconds(0.5)
    await scene.supervisor.run_once()
    assert scene.running == [2]


async def test_the_pauses_of_a_crash_loop_grow_up_to_half_a_minute() -> None:
    scene = Scene(1)
    await scene.supervisor.run_once()
    pauses = [await scene.pause_before_replacement() for _ in range(9)]
    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30, 30])


async def test_a_worker_that_lived_long_is_replaced_at_once_and_forgiven() -> None:
    scene = Scene(1)
    await scene.supervisor.run_once()
    for _ in range(4):
        await scene.pause_before_replacement()
    scene.clock.pass_seconds(60)
    assert await scene.pause_before_replacement() == 0
    assert await scene.pause_before_replacement() == pytest.approx(0.5)


async def test_a_crash_loop_in_one_place_does_not_delay_the_others() -> None:
    scene = Scene(2)
    await scene.supervisor.run_once()
    for _ in range(4):
        scene.started[0].code = scene.started[-1].code = 1
        await scene.supervisor.run_once()
        scene.clock.pass_seconds(60)
        await scene.supervisor.run_once()
    assert len(scene.running) == 2


async def test_a_stop_asks_every_worker_to_end() -> None:
    scene = Scene(2)
    await scene.supervisor.run_once()
    await scene.supervisor.stop(timeout_seconds=0)
    assert [process.signals for process in scene.started] == [["terminate"], ["terminate"]]


async def test_a_worker_that_does_not_end_is_killed() -> None:
    scene = Scene(1, stubborn=True)
    await scene.supervisor.run_once()
    await scene.supervisor.stop(timeout_seconds=0)
    assert scene.started[0].signals == ["terminate", "kill"]
