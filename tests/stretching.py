"""How long something may take on a machine that has more to do than it can."""

from __future__ import annotations

import os


def stretched(seconds: float) -> float:
    """The promise itself where there is a core for everybody; else as much more as there is too much to do."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
