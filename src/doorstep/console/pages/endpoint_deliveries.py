"""The deliveries of one endpoint in any state, and its attempts: both newest first, filtered, and live."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.request import PageRequest, Pages
from doorstep.model.delivery import DeliveryState
from doorstep.model.listing import AttemptFilter, DeliveryFilter

PAGES = Pages("/endpoints/{endpoint_id}")
_LIMIT = 50
_RESULTS = {"succeeded": True, "failed": False}


@PAGES.get("/deliveries")
async def show_deliveries(request: PageRequest) -> Response:
    query = request.query
    endpoint = await request.reader.endpoint(request.org_id, request.id("endpoint_id"))
    filter = DeliveryFilter(
        endpoint_id=endpoint.endpoint_id,
        state=query.choice("state", DeliveryState),
        event_type=query.text("event_type"),
        code=query.text("code"),
        created_from=query.moment("since"),
        created_before=query.moment("until"),
    )
    page = await request.reader.delivery_page(request.org_id, filter, query.text("cursor"), _LIMIT)
    return request.page(
        "endpoint_deliveries.html", endpoint=endpoint, rows=page.items, next=page.next, states=DeliveryState
    )


@PAGES.get("/attempts")
async def show_attempts(request: PageRequest) -> Response:
    query = request.query
    endpoint = await request.reader.endpoint(request.org_id, request.id("endpoint_id"))
    filter = AttemptFilter(
        endpoint_id=endpoint.endpoint_id,
        succeeded=query.option("state", _RESULTS),
        event_type=query.text("event_type"),
        code=query.text("code"),
        started_from=query.moment("since"),
        started_before=query.moment("until"),
    )
    page = await request.reader.attempt_page(request.org_id, filter, query.text("cursor"), _LIMIT)
    return request.page("endpoint_attempts.html", endpoint=endpoint, rows=page.items, next=page.next, states=_RESULTS)
