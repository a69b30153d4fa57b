"""The workers: which processes deliver, how busy they are, and which were lost. For those who look after all of it."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.page import Pages
from doorstep.console.request import PageRequest

PAGES = Pages("/workers")
TASKS = {
    "outbox": "takes events from the outbox",
    "roller": "adds up the figures",
    "watch": "watches for alerts",
    "meter": "sends the metrics",
}
"""What one process at a time does; a newer worker may have others."""


@PAGES.get(default_org=True)
async def show(visit: PageRequest) -> Response:
    workers, now = await visit.doorstep.components.reader.workers(), visit.now
    living = [one for one in workers if not one.is_lost(now)]
    return visit.page(
        "workers.html",
        living=living,
        lost=[one for one in workers if one.is_lost(now)],
        places=sum(one.places for one in living),
        in_use=sum(one.places_in_use for one in living),
        versions=sorted({one.version for one in living}),
        tasks=TASKS,
        own_name=visit.doorstep.components.worker_name,
        lease_seconds=visit.doorstep.components.tuning.lease_seconds,
    )
