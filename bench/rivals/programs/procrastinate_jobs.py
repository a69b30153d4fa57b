"""Procrastinate on PostgreSQL: `procrastinate worker`."""

from __future__ import annotations

import os

import job
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_DATABASE_URL"]))
_BATCH = 500


@app.task(name="work")
async def work(number: int, seconds: float, text: str) -> None:
    await job.run_async(number, seconds)


async def send(count: int, seconds: float) -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        contents = list(job.payloads(count, seconds))
        for start in range(0, count, _BATCH):
            await work.batch_defer_async(*contents[start : start + _BATCH])


if __name__ == "__main__":
    job.main_async(send)
