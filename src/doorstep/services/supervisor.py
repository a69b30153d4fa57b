"""The Supervisor: keeps a number of worker processes running, and ends them together.

The workers are separate programs that share only the store, so one that dies harms nobody: its deliveries are due
again when their leases end. Each holds the reading end of a pipe to us and ends itself when we are gone, even if we
were killed without a chance to say so.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from doorstep.clock import SECOND, Clock, Instant, seconds, to_iso
from doorstep.telemetry.facts import Notice, Telemetry

_LOOK_EVERY_SECONDS = 0.2
_BACKOFF_MIN_SECONDS = 0.5
_BACKOFF_MAX_SECONDS = 30.0
_STEADY_SECONDS = 60.0
"""A worker that lived this long is restarted without a pause: it was no crash loop."""


class Process(Protocol):
    """What is needed of a subprocess.Popen."""

    pid: int

    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


Spawn = Callable[[], Process]


def spawn(command: Sequence[str], environment: Mapping[str, str]) -> Process:
    """Start a worker: its own session, so that Ctrl-C in a terminal reaches only us, who then end it in order."""
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, start_new_session=True)


class _Place:
    """One worker's place, whoever fills it at the moment."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self.started_at: Instant = 0
        self.restart_at: Instant = 0
        self.backoff_seconds = 0.0


class Supervisor:
    name = "supervisor"

    def __init__(self, spawn: Spawn, count: int, clock: Clock, telemetry: Telemetry) -> None:
        self._spawn = spawn
        self._clock = clock
        self._telemetry = telemetry
        self._places = [_Place() for _ in range(count)]
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Fill the empty places whose pause is over."""
        now = self._clock.now()
        for place in self._places:
            self._notice_death(place, now)
            if place.process is None and place.restart_at <= now:
                place.process = self._spawn()
                place.started_at = now
        return _LOOK_EVERY_SECONDS if self._places else None

    async def stop(self, timeout_seconds: float) -> None:
        """Ask all workers to end, and kill those that have not when the time is up."""
        for process in self._running():
            process.terminate()
        for _ in range(round(timeout_seconds / _LOOK_EVERY_SECONDS)):
            if not self._running():
                return
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
        for process in self._running():
            process.kill()

    def _running(self) -> list[Process]:
        processes = [place.process for place in self._places if place.process is not None]
        return [process for process in processes if process.poll() is None]

    def _notice_death(self, place: _Place, now: Instant) -> None:
        code = place.process.poll() if place.process is not None else None
        if place.process is None or code is None:
            return
        steady = now - place.started_at >= seconds(_STEADY_SECONDS)
        longer = min(max(place.backoff_seconds * 2, _BACKOFF_MIN_SECONDS), _BACKOFF_MAX_SECONDS)
        place.backoff_seconds = 0.0 if steady else longer
        place.restart_at = now + seconds(place.backoff_seconds)
        self._tell(place.process.pid, code, place, now)
        place.process = None

    def _tell(self, pid: int, code: int, place: _Place, now: Instant) -> None:
        fields: dict[str, object] = {
            "pid": pid,
            "exit_code": code,
            "lived_seconds": (now - place.started_at) / SECOND,
            "restart_in_seconds": place.backoff_seconds,
        }
        message = "a worker process ended and will be replaced"
        self._telemetry.emit(Notice(at=to_iso(now), level="warning", message=message, fields=fields))
