"""Runs an opened Doorstep by hand: what is due is done to its end, and only then time passes.

The parts are those of every worker; only the loops that wait between their rounds are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from doorstep.app import Doorstep
from doorstep.clock import Instant, seconds
from doorstep.services.bulk_runner import BulkRunner
from doorstep.services.runner import Service, pause
from doorstep.telemetry.facts import Fact
from doorstep.testing.fake_clock import FakeClock
from doorstep.transports.transport import Transport

_ROUNDS_MAX = 1_000
_LOOK_AGAIN_SECONDS = 0.05
_STEP_SECONDS = 0.01
"""At least so much time passes from one step of a bulk operation to the next: on a clock that stands still the stepper
measures that a step took none, and asks for no pause."""
_NO_JITTER = 0.5
"""The middle of the dice: every delay is exactly what the policy says."""


class Drainer:
    """For a Doorstep that was opened on this clock and not started."""

    def __init__(self, doorstep: Doorstep, clock: FakeClock, http: Transport) -> None:
        self._clock = clock
        self._store = doorstep.components.store
        self._directory = doorstep.components.directory
        self._worker = doorstep.components.make_worker(http, lambda: _NO_JITTER)
        self._deliverer = self._worker.deliverer
        self._settler = self._deliverer.settler
        own = (self._worker.dispatcher, self._settler)
        self._others = [service for service in self._worker.services if service not in own]
        self._told = 0
        doorstep.telemetry.subscribe(self._hear)

    def open(self) -> None:
        """Make ready to deliver, without starting anything."""
        self._worker.open()

    async def close(self) -> None:
        """Give up what is under way."""
        await self._deliverer.drain(grace_seconds=0)

    async def drain(self, until: float = 0) -> None:
        """Do everything that is due, and all that follows from it, to its end.

        With `until`, also what becomes due within so many seconds, leaping from one due time to the next. At the end
        exactly these seconds have passed.
        """
        end = self._clock.now() + seconds(until)
        while (next_at := await self._come_to_rest()) is not None and next_at <= end:
            self._clock.leap_to(next_at)
        if self._clock.now() < end:
            self._clock.leap_to(end)
            await self._come_to_rest()

    async def _come_to_rest(self) -> Instant | None:
        """Rounds until one in which nothing happens; returns when the next thing is due."""
        for _ in range(_ROUNDS_MAX):
            before = self._told
            next_at = await self._round()
            if self._told == before:
                return next_at
        raise AssertionError(
            f"still busy after {_ROUNDS_MAX} rounds without time passing; does a handler send what it handles?"
        )

    async def _round(self) -> Instant | None:
        """One round of everything; returns when there will be something for another."""
        await self._directory.refresh()
        next_at = await self._deliverer.round()
        while self._deliverer.under_way or self._settler.backlog:
            await self._settle()
        turns = [await self._run(service) for service in self._others]
        return min((at for at in (next_at, *turns) if at is not None), default=None)

    async def _settle(self) -> None:
        if not self._settler.backlog:
            await pause(self._settler.wake, _LOOK_AGAIN_SECONDS)
        self._settler.wake.clear()
        await self._settler.run_once()

    async def _run(self, service: Service) -> Instant | None:
        """One turn of a service. Those that only look now and then whether there is something do not count as due."""
        delay = await service.run_once()
        if delay is None or not isinstance(service, BulkRunner) or not await self._store.live_bulks():
            return None
        return self._clock.now() + seconds(max(delay, _STEP_SECONDS))

    def _hear(self, facts: Sequence[Fact]) -> None:
        """Whatever becomes of a delivery is told: where nothing is, there was nothing left to do."""
        self._told += len(facts)
