"""The audit log: who did what, when, to which ids, with what result."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response

from doorstep.console.audit_subjects import Subject, endpoints_in, subjects_of, told
from doorstep.console.page import Pages
from doorstep.console.request import PageRequest
from doorstep.model.action import AuditEntry

PAGES = Pages("/audit")
_LIMIT = 100
_CALLED_MAX = 20


class Row(NamedTuple):
    """A line, and what it names, with the ways there."""

    line: AuditEntry
    subjects: list[Subject]
    result: list[str | Subject]
    reason: list[str | Subject]


@PAGES.get()
async def show(visit: PageRequest) -> Response:
    query, reading = visit.query, visit.doorstep.components.reader
    about, called = query.id("about"), await _called(visit, query.text("actor"))
    page = await reading.audit(
        visit.org_id,
        called[0] if called else query.text("actor"),
        query.text("action"),
        query.text("cursor"),
        _LIMIT,
        () if about is None else (about,),
    )
    names = await reading.endpoint_names(visit.org_id, endpoints_in(page.items))
    rows = [Row(line, subjects_of(line, names), told(line.result), told(line.reason)) for line in page.items]
    people = await reading.key_names(visit.org_id, (line.actor for line in page.items))
    return visit.page("audit.html", rows=rows, next=page.next, people=people, called=called)


async def _called(visit: PageRequest, name: str | None) -> list[str]:
    """The keys of this name by their beginnings, the newest first: the log has those, and people know the names.

    What a link took from a line says so, and is nobody's name: a key may be called like an actor that has none.
    """
    if name is None or name == visit.query.text("literal"):
        return []
    return await visit.doorstep.components.reader.keys_called(visit.org_id, name, _CALLED_MAX)
