"""Batches: what is handed over as a whole, how it stands, what the carrier said each time, and once more."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.confirm import Confirmation, confirmed
from doorstep.console.page import Pages
from doorstep.console.request import PageRequest
from doorstep.model.batch import BatchStatus
from doorstep.model.delivery import DEAD_STATES, OPEN_STATES

PAGES = Pages("/batches")
_LIMIT = 50
_RESUBMIT = Confirmation(
    "Resubmit",
    "It is handed over again at once, and has all its retries again. The log of the earlier submissions stays.",
    final=False,
)


@PAGES.get()
async def show_all(visit: PageRequest) -> Response:
    query = visit.query
    status, event_type = query.choice("status", BatchStatus), query.text("event_type")
    page = await visit.doorstep.batches.list(
        status, event_type, cursor=query.text("cursor"), limit=_LIMIT, org_id=visit.org_id
    )
    names = await visit.doorstep.components.reader.endpoint_names(visit.org_id, {one.endpoint_id for one in page.items})
    return visit.page("batches.html", rows=page.items, next=page.next, names=names, statuses=BatchStatus)


@PAGES.get("/{batch_id}")
async def show(visit: PageRequest) -> Response:
    batch = await visit.doorstep.batches.batch(visit.id("batch_id"), org_id=visit.org_id)
    assert batch.delivery_id is not None, "one that was read has its delivery"
    delivery = await visit.doorstep.components.reader.delivery(visit.org_id, batch.delivery_id)
    log = await visit.doorstep.batches.attempts(batch.batch_id, org_id=visit.org_id)
    return visit.page(
        "batch.html",
        batch=batch,
        delivery=delivery,
        endpoint=await visit.doorstep.components.reader.endpoint(visit.org_id, batch.endpoint_id),
        held=await visit.doorstep.components.reader.why_held(delivery),
        log=log[::-1],
        resubmittable=delivery.state in DEAD_STATES and not delivery.deleted,
        seconds=2 if delivery.state in OPEN_STATES else 15,
    )


async def _asking_to_resubmit(visit: PageRequest) -> tuple[str, Confirmation]:
    batch = await visit.doorstep.batches.batch(visit.id("batch_id"), org_id=visit.org_id)
    return f"Resubmit the batch {batch.event_type}?", _RESUBMIT


@confirmed(PAGES, "/{batch_id}/resubmit", _asking_to_resubmit)
async def resubmit(visit: PageRequest, reason: str) -> Response:
    await visit.doorstep.batches.resubmit(visit.id("batch_id"), visit.actor, reason, org_id=visit.org_id)
    return visit.done("The batch is being submitted again.")
