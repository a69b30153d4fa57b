"""Extends time limits on an overloaded machine.

Two measurements complement each other. The load average covers the last minute, but not CPU time lost to a quota or to
other machines on the same host. Timing a fixed piece of work shows that loss, but only at this moment.
"""

from __future__ import annotations

import os
import time

_STEPS = 4_000_000
_STEPS_SECONDS = 0.1
"""The longest time for `_STEPS` on an idle core of the machine that the promises were measured on: many time slices."""


def stretched(seconds: float) -> float:
    """The promised time if every task has a core; on an overloaded machine, longer in proportion to the overload."""
    return seconds * max(1.0, _crowding(), _slowness())


def _crowding() -> float:
    """Tasks per core: the load average or, if higher, the number of test processes, which may have just started."""
    at_once = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(os.getloadavg()[0], at_once) / (os.cpu_count() or 1)


def _slowness() -> float:
    """The factor by which a fixed piece of work takes longer now than on an idle core."""
    began = time.perf_counter()
    for _ in range(_STEPS):
        pass
    return (time.perf_counter() - began) / _STEPS_SECONDS
