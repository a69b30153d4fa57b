"""The retry queue: deliveries that failed at least once and will be retried."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.confirm import BulkConfirmation, bulk_confirmed, endpoints_of, of_queue
from doorstep.console.fields import AGES, QUEUE_FILTER, queue_of
from doorstep.console.request import PageRequest, Pages
from doorstep.model.action import ActionKind
from doorstep.model.bulk import BulkKind
from doorstep.model.delivery import WAITING_STATES

PAGES = Pages("/retry-queue")
_LIMIT = 50
_RETRY = BulkConfirmation(BulkKind.RETRY, "Retry now", rate=True)
_SKIP = BulkConfirmation(
    BulkKind.SKIP, "Skip", "They become dead letters, and are not retried unless you retry them there.", danger=True
)


@PAGES.get()
async def show(request: PageRequest) -> Response:
    filter = queue_of(request.query, request.now)
    reader = request.reader
    page, count = await reader.retry_queue(request.org_id, filter, request.query.text("cursor"), _LIMIT)
    return request.page(
        "retry_queue.html",
        rows=await reader.described(request.org_id, page.items),
        fields=request.query.only(*QUEUE_FILTER),
        actable=request.may("act") and filter.waiting is not False,
        next=page.next,
        count=count,
        ages=AGES,
        endpoints=await endpoints_of(request),
    )


@PAGES.post("/{delivery_id}/retry")
async def retry_one(request: PageRequest) -> Response:
    delivery_id = request.id("delivery_id")
    await request.components.deliveries.act_on(
        ActionKind.RETRY, request.org_id, delivery_id, request.actor, only_in=WAITING_STATES
    )
    return request.done("The delivery is retried now.")


bulk_confirmed(PAGES, "/retry", _RETRY, of_queue)
bulk_confirmed(PAGES, "/skip", _SKIP, of_queue)
