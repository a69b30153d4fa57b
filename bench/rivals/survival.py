"""What happens to accepted jobs when the worker is killed while it runs them, and another worker is started.

All queues run with their defaults, as on the first page of their documentation. Some return a lost worker's jobs only
after a long time, so we also check whether the broker still holds them.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.databases import Databases
from bench.rivals.brokers import fresh_broker
from bench.rivals.roster import Contender
from bench.rivals.running import Run

JOBS = 20
_JOB_SECONDS = 1.0
_INTO_SECONDS = 0.3
"""How long after the start of the first jobs the worker is killed."""
PATIENCE_SECONDS = 100
"""How long to wait for the jobs. Every queue returns jobs within this time, except the queues that need minutes."""
_START_SECONDS_MAX = 30


@dataclass(frozen=True)
class Survival:
    begun: int
    """The number of jobs that were running when the worker was killed."""
    done: int
    """The number of jobs that were done in the end."""
    left: int
    """The number of jobs that the broker still holds."""

    @property
    def lost(self) -> int:
        return JOBS - self.done - self.left

    def __str__(self) -> str:
        if self.done == JOBS:
            return f"all {JOBS} done"
        lost = f", {self.lost} lost" if self.lost else ""
        return f"{self.done} done, {self.left} still held{lost}"


def survivals(contenders: Sequence[Contender], databases: Databases) -> list[Survival]:
    """Test all queues at the same time, because the tests mostly wait."""
    with databases.fresh("postgres"), ThreadPoolExecutor(len(contenders)) as pool:
        # The database server ends with the thread that started it. Creating a database here starts the server in this
        # thread, not in a thread of the pool.
        return list(pool.map(lambda contender: _survival(contender, databases), contenders))


def _survival(contender: Contender, databases: Databases) -> Survival:
    with tempfile.TemporaryDirectory() as folder, fresh_broker(contender.broker, databases) as broker:
        run = Run(contender, broker, Path(folder))
        run.send(JOBS, _JOB_SECONDS)
        begun = _kill_midway(run)
        with run.worker():
            run.await_until(lambda: len(run.numbers(b"d")) == JOBS and not run.left(), PATIENCE_SECONDS, pause=0.5)
        return Survival(begun, len(run.numbers(b"d")), run.left())


def _kill_midway(run: Run) -> int:
    """Kill every process of the worker; returns how many jobs were running."""
    with run.worker() as worker:
        if not run.await_until(lambda: bool(run.numbers(b"b")), _START_SECONDS_MAX):
            raise RuntimeError(f"{run.contender.name} began no job:\n{run.last_words()}")
        time.sleep(_INTO_SECONDS)
        os.killpg(worker.pid, signal.SIGKILL)
        return len(run.numbers(b"b") - run.numbers(b"d"))
