"""Keeps stored waits valid when the clock is set, or when this process stood still.

Leases, retries and pauses are stored as instants, but they are durations: setting the clock must neither end them all
at once nor extend them by hours.
"""

from __future__ import annotations

import asyncio

from doorstep.clock import JUMP, SECOND, AnchoredClock, Clock, Instant
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

_STANDSTILL: Instant = 3 * SECOND
"""If the time between two looks was longer than this, the clock was set forward or the process stood still. It looks
about once a second."""
_BATCH_MAX = 500
_HOLD_SECONDS = 3.0
_HOLD_SECONDS_SHARED = 35.0
"""How long leases do not count as expired after a jump of the clock, so that every process can adjust its own. Processes
that share a machine notice the jump within a second; machines that share a database compare clocks every 30 seconds."""


class ClockWatch:
    """Compares each reading of the clock with the last one.

    If more time has passed than expected, the leases of this worker are renewed: its attempts are still running, and
    nobody could report their results in the meantime. If the clock was set back, waits that seem to have begun
    more than a second later than now begin now.
    """

    def __init__(self, store: Store, clock: Clock, telemetry: Telemetry, worker: str) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._worker = worker
        self._seen: Instant | None = None
        self._jumps = self._jumps_now()
        self._missed = False
        """Whether the leases of this worker must be renewed."""
        self._set_back = True
        """Whether there may be waits that begin later than now, also from before this process was started."""
        self._hold_until = 0.0

    async def look(self, now: Instant) -> float:
        """Adjust what is stored to the time `now`. Returns for how many seconds expired leases prove nothing yet."""
        self._compare(now)
        if self._set_back:
            self._set_back = await self._store.shift_waits(now, _BATCH_MAX) >= _BATCH_MAX
        if self._missed:
            await self._store.renew_leases(self._worker, now)
            self._missed = False
        return 0.001 if self._set_back else max(0.0, self._hold_until - asyncio.get_running_loop().time())

    def _compare(self, now: Instant) -> None:
        seen, self._seen = self._seen, now
        moved = 0 if seen is None else now - seen
        if moved >= _STANDSTILL:
            self._missed = True
        elif moved <= -JUMP:
            self._set_back = True
        jumps, self._jumps = self._jumps, self._jumps_now()
        if jumps != self._jumps:
            shared = self._store.features.many_machines
            seconds = _HOLD_SECONDS_SHARED if shared else _HOLD_SECONDS
            self._hold_until = asyncio.get_running_loop().time() + seconds
            message = "the clock was set; signatures and due times follow it"
            self._telemetry.note(now, "warning", message, moved_seconds=round(moved / SECOND, 3))

    def _jumps_now(self) -> int:
        return self._clock.jumps if isinstance(self._clock, AnchoredClock) else 0
