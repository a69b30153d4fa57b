"""The retry queue: what failed at least once and will be tried again."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.choices import endpoints_of
from doorstep.console.choosing import of_queue
from doorstep.console.filters import AGES, QUEUE_FILTER, queue_of
from doorstep.console.page import Pages
from doorstep.console.questions import Question, declare
from doorstep.console.visit import Visit
from doorstep.model.act import ActKind
from doorstep.model.bulk import BulkKind
from doorstep.model.delivery import WAITING_STATES

PAGES = Pages("/retry-queue")
_LIMIT = 50
_RETRY = Question(BulkKind.RETRY, "Retry now", rate=True)
_SKIP = Question(
    BulkKind.SKIP, "Skip", "They become dead letters, and are not tried again unless you retry them there.", danger=True
)


@PAGES.get()
async def show(visit: Visit) -> Response:
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
async def retry_one(visit: Visit) -> Response:
    delivery_id = visit.id("delivery_id")
    await visit.doorstep.components.deliveries.act_on(
        ActKind.RETRY, visit.org_id, delivery_id, visit.actor, only_in=WAITING_STATES
    )
    return visit.done("It is being tried now.")


declare(PAGES, "/retry", _RETRY, of_queue)
declare(PAGES, "/skip", _SKIP, of_queue)
