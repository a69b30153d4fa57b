"""How long something may take on a machine that has more to do than it can.

The load average knows the last minute, and nothing of what other machines on the same host take away, nor of a quota;
a piece of work that is done now knows these, and nothing of what was before.
"""

from __future__ import annotations

import os
import time

_STEPS = 4_000_000
_STEPS_SECONDS = 0.1
"""What they take at most on an idle core of the machine that the promises were measured on; many of its time slices."""


def stretched(seconds: float) -> float:
    """The promise itself where there is a core for everybody; else as much more as there is too much to do."""
    return seconds * max(1.0, _crowding(), _slowness())


def _crowding() -> float:
    """How many there are for each core: those that were seen, or the tests that run at once if it has just begun."""
    at_once = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(os.getloadavg()[0], at_once) / (os.cpu_count() or 1)


def _slowness() -> float:
    """How many times longer a known piece of work takes at this moment."""
    began = time.perf_counter()
    for _ in range(_STEPS):
        pass
    return (time.perf_counter() - began) / _STEPS_SECONDS
