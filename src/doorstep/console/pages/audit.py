"""The audit log: who did what, when, to which ids, with what result."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.audit_subjects import endpoints_in, subjects_of
from doorstep.console.page import Pages
from doorstep.console.visit import Visit

PAGES = Pages("/audit")
_LIMIT = 100


@PAGES.get()
async def show(visit: Visit) -> Response:
    query = visit.query
    page = await visit.doorstep.reading.audit(
        visit.org_id, query.text("actor"), query.text("action"), query.text("cursor"), _LIMIT
    )
    names = await visit.doorstep.reading.endpoint_names(visit.org_id, endpoints_in(page.items))
    lines = [(line, subjects_of(line, names)) for line in page.items]
    return visit.page("audit.html", lines=lines, next=page.next)
