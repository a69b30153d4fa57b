"""pgqueuer on PostgreSQL: `pgq run`, as in its quick-start guide."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import job
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

_URL = os.environ["BENCH_DATABASE_URL"]
_BATCH = 500


@asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(_URL)))

    @queuer.entrypoint("job")
    async def work(taken: Job) -> None:
        content = json.loads(taken.payload or b"")
        await job.run_async(content["number"], content["seconds"])

    yield queuer


async def send(count: int, seconds: float) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(_URL)))
    await queries.install()
    payloads: list[bytes | None] = [json.dumps(content).encode() for content in job.payloads(count, seconds)]
    for start in range(0, count, _BATCH):
        batch = payloads[start : start + _BATCH]
        await queries.enqueue(["job"] * len(batch), batch, [0] * len(batch))


if __name__ == "__main__":
    job.main_async(send)
