"""The retry queue: what failed at least once and will be tried again."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.bulk_confirm import BulkConfirmation, declare
from doorstep.console.fields import AGES, QUEUE_FILTER, queue_of
from doorstep.console.page import Pages
from doorstep.console.request import PageRequest
from doorstep.console.selection import endpoints_of, of_queue
from doorstep.model.action import ActionKind
from doorstep.model.bulk import BulkKind
from doorstep.model.delivery import WAITING_STATES

PAGES = Pages("/retry-queue")
_LIMIT = 50
_RETRY = BulkConfirmation(BulkKind.RETRY, "Retry now", rate=True)
_SKIP = BulkConfirmation(
    BulkKind.SKIP, "Skip", "They become dead letters, and are not tried again unless you retry them there.", danger=True
)


@PAGES.get()
async def show(visit: PageRequest) -> Response:
    wanted = queue_of(visit.query, visit.now)
    reading = visit.doorstep.components.reader
    page, count = await reading.retry_queue(visit.org_id, wanted, visit.query.text("cursor"), _LIMIT)
    return visit.page(
        "retry_queue.html",
        rows=await reading.described(visit.org_id, page.items),
        filter=visit.query.only(*QUEUE_FILTER),
        actable=visit.may("act") and wanted.waiting is not False,
        next=page.next,
        count=count,
        ages=AGES,
        endpoints=await endpoints_of(visit),
    )


@PAGES.post("/{delivery_id}/retry")
async def retry_one(visit: PageRequest) -> Response:
    delivery_id = visit.id("delivery_id")
    await visit.doorstep.components.deliveries.act_on(
        ActionKind.RETRY, visit.org_id, delivery_id, visit.actor, only_in=WAITING_STATES
    )
    return visit.done("It is being tried now.")


declare(PAGES, "/retry", _RETRY, of_queue)
declare(PAGES, "/skip", _SKIP, of_queue)
