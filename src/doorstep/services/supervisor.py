"""The Supervisor: keeps a number of worker processes running, and stops them together.

The workers are separate processes that share only the store, so a crash of one worker does not affect the others. The
deliveries of the crashed worker are due again when their leases expire. Each worker reads a pipe that the supervisor
keeps open, and stops when the pipe closes. The workers therefore stop even if the supervisor is killed.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.telemetry.facts import Telemetry

_POLL_SECONDS = 0.2
_BACKOFF_MIN_SECONDS = 0.5
_BACKOFF_MAX_SECONDS = 30.0
_STABLE_SECONDS = 60.0
"""A worker that ran for at least this long before it ended is restarted without a pause, because it is not in a crash
loop."""


Process = subprocess.Popen[bytes]
Spawn = Callable[[], Process]


def spawn(command: Sequence[str], environment: Mapping[str, str]) -> Process:
    """Start a worker in its own session, so that Ctrl-C reaches only the supervisor, which then stops the worker
    gracefully."""
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, start_new_session=True)


@dataclass(eq=False)
class _Child:
    """One of the workers that the supervisor keeps running, across its restarts."""

    process: Process | None = None
    started_at: Instant = 0
    restart_at: Instant = 0
    backoff_seconds: float = 0.0


class Supervisor:
    name = "supervisor"

    def __init__(self, spawn: Spawn, count: int, clock: Clock, telemetry: Telemetry) -> None:
        self._spawn = spawn
        self._clock = clock
        self._telemetry = telemetry
        self._children = [_Child() for _ in range(count)]
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Start every worker that is not running and whose restart delay is over."""
        now = self._clock.now()
        for child in self._children:
            self._check_exit(child, now)
            waits = 0 < child.restart_at - now <= seconds(_BACKOFF_MAX_SECONDS)  # the clock may be set back
            if child.process is None and not waits:
                child.process = self._spawn()
                child.started_at = now
        return _POLL_SECONDS if self._children else None

    async def stop(self, timeout_seconds: float) -> None:
        """Ask all workers to stop, and kill those that are still running after the timeout."""
        for process in self._running():
            process.terminate()
        for _ in range(round(timeout_seconds / _POLL_SECONDS)):
            if not self._running():
                return
            await asyncio.sleep(_POLL_SECONDS)
        for process in self._running():
            process.kill()

    def _running(self) -> list[Process]:
        processes = [child.process for child in self._children if child.process is not None]
        return [process for process in processes if process.poll() is None]

    def _check_exit(self, child: _Child, now: Instant) -> None:
        code = child.process.poll() if child.process is not None else None
        if child.process is None or code is None:
            return
        stable = now - child.started_at >= seconds(_STABLE_SECONDS)
        longer = min(max(child.backoff_seconds * 2, _BACKOFF_MIN_SECONDS), _BACKOFF_MAX_SECONDS)
        child.backoff_seconds = 0.0 if stable else longer
        child.restart_at = now + seconds(child.backoff_seconds)
        self._telemetry.note(
            now,
            "warning",
            "a worker process ended and will be replaced",
            pid=child.process.pid,
            exit_code=code,
            lived_seconds=(now - child.started_at) / SECOND,
            restart_in_seconds=child.backoff_seconds,
        )
        child.process = None
