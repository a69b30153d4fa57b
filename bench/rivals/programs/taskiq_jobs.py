"""taskiq on Redis, with the stream broker, which its documentation recommends because it acknowledges messages."""

from __future__ import annotations

import os

import job
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(url=os.environ["BENCH_REDIS_URL"])


@broker.task(task_name="work")
async def work(number: int, seconds: float, text: str) -> None:
    await job.run_async(number, seconds)


async def send(count: int, seconds: float) -> None:
    await broker.startup()
    for content in job.payloads(count, seconds):
        await work.kiq(**content)
    await broker.shutdown()


if __name__ == "__main__":
    job.main_async(send)
