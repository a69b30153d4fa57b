"""Celery on Redis: `celery worker`, no results kept."""

from __future__ import annotations

import os

import job
from celery import Celery

app = Celery("celery_jobs", broker=os.environ["BENCH_REDIS_URL"])


@app.task(name="work", ignore_result=True)
def work(number: int, seconds: float, text: str) -> None:
    job.run(number, seconds)


def send(count: int, seconds: float) -> None:
    for content in job.payloads(count, seconds):
        work.delay(**content)


if __name__ == "__main__":
    job.main(send)
