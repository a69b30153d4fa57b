"""The queues that are compared. Each uses the worker from its documentation in one process, tuned where that helped.

We tried pgqueuer's batch size, Procrastinate's concurrency, Celery's pools and Dramatiq's threads, and use the cheapest
setting. If that is not the default, the default has its own row, or the text mentions it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.rivals.brokers import BrokerName

Kind = Literal["async", "plain"]


@dataclass(frozen=True)
class Contender:
    name: str
    program: str
    """The module in `programs` that defines and sends the job."""
    kind: Kind
    """Async jobs run in an event loop, plain jobs in threads or processes."""
    broker: BrokerName
    worker: tuple[str, ...]
    """The command. Its first word is a program in the virtual environment."""
    jobs: int
    left: tuple[str, ...]
    """Queries whose results add up to the number of jobs that the broker still holds, waiting or claimed."""
    attempt_log: str
    """The details of each attempt that the queue stores durably by default."""
    gives_back: str
    """When a lost worker's jobs run again by default."""
    ours: bool = False
    variables: tuple[tuple[str, str], ...] = ()


_DELIVERIES = ("SELECT count(*) FROM doorstep_deliveries WHERE state IN ('pending', 'in_progress')",)
_ROWS = "yes: a row for each attempt, with times, worker, result, error and traceback"


def _doorstep(kind: Kind, broker: BrokerName) -> Contender:
    return Contender(
        name=f"Doorstep, {kind} handler, {broker}",
        program="doorstep_jobs",
        kind=kind,
        broker=broker,
        worker=("doorstep", "worker", "--app", "doorstep_jobs:doorstep"),
        jobs=20_000,
        left=_DELIVERIES,
        attempt_log=_ROWS,
        gives_back="when the lease ends: 60 s",
        ours=True,
        variables=(("BENCH_KIND", kind),),
    )


def _pgqueuer(name: str, *options: str) -> Contender:
    return Contender(
        name=name,
        program="pgqueuer_jobs",
        kind="async",
        broker="postgres",
        worker=("pgq", "run", "pgqueuer_jobs:worker", *options),
        jobs=20_000,
        left=("SELECT count(*) FROM pgqueuer",),
        attempt_log="partly: a row for each change of status, with a traceback on failure",
        gives_back="after 30 s without a heartbeat",
    )


def _celery(name: str, *options: str) -> Contender:
    return Contender(
        name=name,
        program="celery_jobs",
        kind="plain",
        broker="redis",
        worker=("celery", "--app", "celery_jobs", "worker", *options),
        jobs=1_000,
        left=("LLEN celery", "HLEN unacked"),
        attempt_log="no",
        gives_back="running jobs never, prefetched jobs after an hour",
    )


ROSTER = (
    _doorstep("async", "sqlite"),
    _doorstep("async", "postgres"),
    _doorstep("plain", "postgres"),
    _pgqueuer("pgqueuer, postgres"),
    _pgqueuer("pgqueuer, batches of 100, postgres", "--batch-size", "100"),
    Contender(
        name="taskiq, stream, redis",
        program="taskiq_jobs",
        kind="async",
        broker="redis",
        worker=("taskiq", "worker", "taskiq_jobs:broker", "--workers", "1"),
        jobs=5_000,
        left=("XPENDING taskiq taskiq",),
        attempt_log="no",
        gives_back="after 10 minutes",
    ),
    Contender(
        name="Dramatiq, 8 threads, redis",
        program="dramatiq_jobs",
        kind="plain",
        broker="redis",
        worker=("dramatiq", "dramatiq_jobs", "--processes", "1"),
        jobs=3_000,
        left=("HLEN dramatiq:default.msgs",),
        attempt_log="no",
        gives_back="after 60 s without a heartbeat; one call in a thousand, chosen at random, checks for this",
    ),
    Contender(
        name="Procrastinate, 10 at once, postgres",
        program="procrastinate_jobs",
        kind="async",
        broker="postgres",
        worker=("procrastinate", "--app", "procrastinate_jobs.app", "worker", "--concurrency", "10"),
        jobs=1_000,
        left=("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",),
        attempt_log="partly: a row for each change of status, without the error",
        gives_back="not automatically: you have to write a periodic task",
    ),
    _celery("Celery, prefork, redis", "--concurrency", "1"),
    _celery("Celery, 8 threads, redis", "--pool", "threads", "--concurrency", "8"),
)
