"""The one loop that runs every service, waits between its rounds, and outlives its failures."""

from __future__ import annotations

import asyncio
from typing import Protocol

from doorstep.clock import Clock, to_iso
from doorstep.telemetry.facts import ServiceTrouble, Telemetry
from doorstep.telemetry.redaction import safe_message

_BACKOFF_MIN_SECONDS = 0.05
_BACKOFF_MAX_SECONDS = 1.0
"""After the database returns everything must resume within ten seconds; asking once a second hurts nobody."""


class Service(Protocol):
    name: str
    wake: asyncio.Event
    """Set by whoever has work for it; ends its pause early."""

    async def run_once(self) -> float | None:
        """One round; returns the seconds until the next, or None to sleep until woken."""


async def keep_running(
    service: Service, clock: Clock, telemetry: Telemetry, stopping: asyncio.Event | None = None
) -> None:
    """Run a service until `stopping` is set. A failing round is told and tried again, with growing pauses.

    A round that has begun is finished: cancelled in the middle, it would leave claims that nobody knows of.
    """
    backoff = 0.0
    while stopping is None or not stopping.is_set():
        service.wake.clear()
        try:
            delay = await service.run_once()
            backoff = 0.0
        except Exception as error:  # noqa: BLE001  whatever a round did, the service goes on
            delay, backoff = 0.0, min(max(backoff * 2, _BACKOFF_MIN_SECONDS), _BACKOFF_MAX_SECONDS)
            telemetry.emit(
                ServiceTrouble(
                    at=to_iso(clock.now()),
                    service=service.name,
                    error=safe_message(error),
                    retry_in_seconds=backoff,
                )
            )
            await asyncio.sleep(backoff)  # not ended early by a wake-up: a store that is down has plenty of those
        await pause(service.wake, delay)


async def pause(wake: asyncio.Event, delay: float | None) -> None:
    """Wait until woken, or for `delay` seconds; other tasks get a turn even when there is no delay at all."""
    if delay is not None and delay <= 0:
        await asyncio.sleep(0)
        return
    timer = None if delay is None else asyncio.get_running_loop().call_later(delay, wake.set)
    try:
        await wake.wait()
    finally:
        if timer is not None:
            timer.cancel()
