"""The cost of one worker, like a separate process, that delivers everything in a database."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable

from bench.bare_client import Cost
from bench.delivered import Delivered
from bench.timing import Stopwatch
from doorstep.app import Doorstep
from doorstep.cli.run import freeze_startup_objects
from doorstep.telemetry.facts import Telemetry
from doorstep.telemetry.logs import open_log

_SECONDS_MAX = 120


async def work_off(doorstep_with: Callable[[Telemetry], Doorstep], count: int) -> Cost:
    """Deliver `count` waiting events, with the log written to a file."""
    with tempfile.TemporaryFile() as file:
        log = open_log("info", "json", file.fileno())
        delivered = Delivered(count)
        doorstep = doorstep_with(Telemetry(log, delivered))
        await doorstep.open(migrate=False)
        freeze_startup_objects()
        watch = Stopwatch()
        doorstep.start()
        await asyncio.wait_for(delivered.complete.wait(), _SECONDS_MAX)
        elapsed = watch.wall_seconds
        log.close()
        cost = Cost(1e6 * watch.cpu_seconds / count, count / elapsed)
        assert os.fstat(file.fileno()).st_size > 4 * 100 * count, "every delivery must have four lines in the log"
        await doorstep.close()
    return cost
