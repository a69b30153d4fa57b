"""Dramatiq on Redis: `dramatiq` with one process."""

from __future__ import annotations

import os

import dramatiq
import job
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=os.environ["BENCH_REDIS_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor
def work(number: int, seconds: float, text: str) -> None:
    job.run(number, seconds)


def send(count: int, seconds: float) -> None:
    for content in job.payloads(count, seconds):
        work.send(**content)


if __name__ == "__main__":
    job.main(send)
