"""Doorstep: one event for each job, one handler, `doorstep worker --app`."""

from __future__ import annotations

import os

import job

from doorstep import Doorstep
from doorstep.transports.handler_replies import Received

doorstep = Doorstep()
_BATCH = 500

if os.environ["BENCH_KIND"] == "plain":

    @doorstep.handler("job")
    def work(event: Received) -> None:
        content = event.json()
        job.run(content["number"], content["seconds"])
else:

    @doorstep.handler("job")
    async def work(event: Received) -> None:
        content = event.json()
        await job.run_async(content["number"], content["seconds"])


async def send(count: int, seconds: float) -> None:
    await doorstep.open()
    events = [("job", content) for content in job.payloads(count, seconds)]
    for start in range(0, count, _BATCH):
        await doorstep.send_many(events[start : start + _BATCH])
    await doorstep.close()


if __name__ == "__main__":
    job.main_async(send)
