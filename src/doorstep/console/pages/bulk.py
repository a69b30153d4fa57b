"""Bulk operations: who began what and why, how far it is, and how it is steered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from starlette.responses import Response

from doorstep.clock import to_iso
from doorstep.console.confirm import Confirmation, confirmed
from doorstep.console.page import Pages
from doorstep.console.request import PageRequest
from doorstep.model.bulk import Bulk, Selection
from doorstep.model.listing import DeadLetterFilter, EventFilter, RetryQueueFilter

PAGES = Pages("/bulk")
_LIMIT = 50
_CANCEL = Confirmation("Cancel it", "No more are taken, and it cannot be resumed. What it has done stays done.")
_FAILURES = 25
_UNSAID = frozenset({"archived_before", "waiting"})
"""Fields of a filter that an operation has anyway: only what waits can be acted upon."""
_FIELDS = {"endpoint_id": "endpoint"}
_WHAT: dict[str, type[RetryQueueFilter | DeadLetterFilter | EventFilter]] = {
    "queue": RetryQueueFilter,
    "letters": DeadLetterFilter,
    "events": EventFilter,
}


@PAGES.get()
async def show_all(visit: PageRequest) -> Response:
    page = await visit.doorstep.components.store.list_bulk(visit.org_id, visit.query.text("cursor"), _LIMIT)
    names = await _names(visit, page.items)
    rows = [(one, about(one, names)) for one in page.items]
    people = await visit.doorstep.components.reader.key_names(visit.org_id, (one.actor for one in page.items))
    return visit.page("bulks.html", rows=rows, next=page.next, people=people)


@PAGES.get("/{bulk_id}")
async def show(visit: PageRequest) -> Response:
    bulk_id = visit.id("bulk_id")
    bulk = await visit.doorstep.components.store.bulk(visit.org_id, bulk_id)
    failures = await visit.doorstep.components.store.bulk_failures(
        visit.org_id, bulk_id, visit.query.text("cursor"), _FAILURES
    )
    reading, names = visit.doorstep.components.reader, await _names(visit, [bulk])
    return visit.page(
        "bulk.html",
        bulk=bulk,
        about=about(bulk, names),
        names=names,
        people=await reading.key_names(visit.org_id, [bulk.actor]),
        next=failures.next,
        failures=await reading.described(visit.org_id, [reading.seen(one) for one in failures.items]),
    )


@PAGES.post("/{bulk_id}/pause")
async def pause(visit: PageRequest) -> Response:
    await visit.doorstep.components.bulk.pause(visit.org_id, visit.id("bulk_id"), visit.actor)
    return visit.done("Paused. What is under way goes on.")


@PAGES.post("/{bulk_id}/resume")
async def resume(visit: PageRequest) -> Response:
    await visit.doorstep.components.bulk.resume(visit.org_id, visit.id("bulk_id"), visit.actor)
    return visit.done("It goes on.")


async def _asking_to_cancel(visit: PageRequest) -> tuple[str, Confirmation]:
    bulk = await visit.doorstep.components.store.bulk(visit.org_id, visit.id("bulk_id"))
    return f"Cancel the bulk {bulk.kind}: {bulk.progress}?", _CANCEL


@confirmed(PAGES, "/{bulk_id}/cancel", _asking_to_cancel)
async def cancel(visit: PageRequest, reason: str) -> Response:
    await visit.doorstep.components.bulk.cancel(visit.org_id, visit.id("bulk_id"), visit.actor, reason)
    return visit.done("Cancelled. What it has done stays done.")


async def _names(visit: PageRequest, bulks: Sequence[Bulk]) -> dict[UUID, str]:
    """The endpoints that these name, as far as there are any: a filter may have the id of none."""
    naming = (one for bulk in bulks for one in (bulk.selection.letters, bulk.selection.queue, bulk))
    named = {one.endpoint_id for one in naming if one and one.endpoint_id}
    return await visit.doorstep.components.reader.endpoint_names(visit.org_id, named)


def about(bulk: Bulk, names: Mapping[UUID, str]) -> str:
    """What was selected, in words: `all dead letters with event type order.*, endpoint crm`."""
    selection = bulk.selection
    if selection.delivery_ids is not None:
        return f"{len(selection.delivery_ids)} deliveries chosen one by one"
    what, wanted = _wanted(selection)
    said = [
        f"{_FIELDS.get(field, field.replace('_', ' '))} {_said(field, value, names)}" for field, value in wanted.items()
    ]
    target = "" if bulk.endpoint_id is None else f", to {names.get(bulk.endpoint_id, bulk.endpoint_id)}"
    return f"all {what}" + (f" with {', '.join(said)}" if said else "") + target


def _wanted(selection: Selection) -> tuple[str, dict[str, object]]:
    """What kind of list, and those of its filters that say something."""
    for name, words in (("letters", "dead letters"), ("queue", "waiting deliveries"), ("events", "events")):
        if (chosen := getattr(selection, name)) is not None:
            plain = _WHAT[name]()
            fields = {field: getattr(chosen, field) for field in chosen.__struct_fields__ if field not in _UNSAID}
            return words, {field: value for field, value in fields.items() if value != getattr(plain, field)}
    return "deliveries", {}


def _said(field: str, value: object, names: Mapping[UUID, str]) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:016x}" if field == "cause" else to_iso(value)
    return names.get(value, str(value)) if isinstance(value, UUID) else str(value)
