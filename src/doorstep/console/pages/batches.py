"""Batches: the status of each batch, the response to each submission, and resubmission."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.confirm import Confirmation, confirmed
from doorstep.console.request import PageRequest, Pages
from doorstep.model.batch import BatchStatus
from doorstep.model.delivery import DEAD_STATES, OPEN_STATES

PAGES = Pages("/batches")
_LIMIT = 50
_RESUBMIT = Confirmation(
    "Resubmit",
    "It is submitted again immediately, with its retry count reset. The log of the earlier submissions is kept.",
    final=False,
)


@PAGES.get()
async def show_all(request: PageRequest) -> Response:
    query = request.query
    status, event_type = query.choice("status", BatchStatus), query.text("event_type")
    page = await request.doorstep.batches.list(
        status, event_type, cursor=query.text("cursor"), limit=_LIMIT, org_id=request.org_id
    )
    names = await request.reader.endpoint_names(request.org_id, {one.endpoint_id for one in page.items})
    return request.page("batches.html", rows=page.items, next=page.next, names=names, statuses=BatchStatus)


@PAGES.get("/{batch_id}")
async def show(request: PageRequest) -> Response:
    batch = await request.doorstep.batches.batch(request.id("batch_id"), org_id=request.org_id)
    assert batch.delivery_id is not None, "a stored batch has a delivery"
    delivery = await request.reader.delivery(request.org_id, batch.delivery_id)
    log = await request.doorstep.batches.attempts(batch.batch_id, org_id=request.org_id)
    return request.page(
        "batch.html",
        batch=batch,
        delivery=delivery,
        endpoint=await request.reader.endpoint(request.org_id, batch.endpoint_id),
        held=batch.held,
        log=log[::-1],
        resubmittable=delivery.state in DEAD_STATES and not delivery.deleted,
        seconds=2 if delivery.state in OPEN_STATES else 15,
    )


async def _ask_resubmit(request: PageRequest) -> tuple[str, Confirmation]:
    batch = await request.doorstep.batches.batch(request.id("batch_id"), org_id=request.org_id)
    return f"Resubmit the batch {batch.event_type}?", _RESUBMIT


@confirmed(PAGES, "/{batch_id}/resubmit", _ask_resubmit)
async def resubmit(request: PageRequest, reason: str) -> Response:
    await request.doorstep.batches.resubmit(request.id("batch_id"), request.actor, reason, org_id=request.org_id)
    return request.done("The batch will be submitted again.")
