"""One round of one queue: a worker runs no-op jobs that are already queued, until all are done."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.databases import Databases
from bench.rivals.brokers import fresh_broker
from bench.rivals.roster import Contender
from bench.rivals.running import Run
from bench.timing import cpu_seconds_of

_SECONDS_MAX = 60
_TAIL_SECONDS = 0.5
"""How long to wait for the last acknowledgements, which come after the last job. The worker does almost nothing else in
that time."""


@dataclass(frozen=True)
class Lap:
    per_second: float
    worker_us: float
    """CPU of all processes of the worker, per job."""
    server_us: float
    """CPU of the database server or of Redis, per job."""

    @property
    def cpu_us(self) -> float:
        return self.worker_us + self.server_us


def run_lap(contender: Contender, databases: Databases, jobs: int) -> Lap:
    """Measure from the end of the first tenth of the jobs to the end, so that start and imports do not count."""
    with tempfile.TemporaryDirectory() as folder, fresh_broker(contender.broker, databases) as broker:
        run = Run(contender, broker, Path(folder))
        run.send(jobs)
        with run.worker() as worker:
            _await(run, worker, jobs // 10)
            begun, first = time.monotonic(), run.done()
            worker_cpu, server_cpu = cpu_seconds_of(worker), broker.cpu_seconds()
            _await(run, worker, jobs)
            elapsed, counted = time.monotonic() - begun, jobs - first
            time.sleep(_TAIL_SECONDS)
            worker_cpu, server_cpu = cpu_seconds_of(worker) - worker_cpu, broker.cpu_seconds() - server_cpu
        if run.numbers(b"d") != set(range(jobs)) or run.left():
            raise RuntimeError(f"{contender.name} did not do every job, or has not settled {run.left()} of them")
    return Lap(counted / elapsed, 1e6 * worker_cpu / counted, 1e6 * server_cpu / counted)


def _await(run: Run, worker: psutil.Popen, wanted: int) -> None:
    run.await_until(lambda: run.done() >= wanted or worker.poll() is not None, _SECONDS_MAX)
    if run.done() < wanted:
        raise RuntimeError(f"{run.contender.name}: {run.done()} of {wanted} jobs were done:\n{run.last_words()}")
