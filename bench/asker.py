"""A load of reading clients: each client makes a random request from a list, pauses, and repeats this."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import uvloop

from bench.calling import call_for
from bench.setting import ADMIN_KEY
from bench.timing import Stopwatch, percentile


@dataclass(frozen=True)
class Answers:
    """The results."""

    count: int
    per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    refused: int
    """Responses other than 200."""
    cpu_share: float
    """The share of a core that the clients used."""


def ask_all(port: int, paths: Sequence[str], clients: int, think_seconds: float, seconds: float) -> Answers:
    """Make requests for this many seconds. Call this in a separate process.

    The pauses are exponentially distributed, with the mean `think_seconds`.
    """
    chance = random.Random(1)
    watch = Stopwatch()
    requests = [_requests(paths, random.Random(number)) for number in range(clients)]
    think = (lambda: chance.expovariate(1 / think_seconds)) if think_seconds else (lambda: 0.0)
    tally = uvloop.run(call_for(seconds, port, requests, b"HTTP/1.1 200", think))
    taken = tally.milliseconds
    return Answers(
        count=len(taken),
        per_second=tally.per_second,
        p50_ms=percentile(taken, 0.5),
        p95_ms=percentile(taken, 0.95),
        p99_ms=percentile(taken, 0.99),
        refused=tally.refused,
        cpu_share=watch.cpu_seconds / watch.wall_seconds,
    )


def _requests(paths: Sequence[str], chance: random.Random) -> Iterator[bytes]:
    while True:
        yield f"GET {chance.choice(paths)} HTTP/1.1\r\nHost: bench\r\nX-API-Key: {ADMIN_KEY}\r\n\r\n".encode()
