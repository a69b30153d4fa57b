"""Bulk operations: who started them and why, their progress, and how to pause, resume or cancel them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from starlette.responses import Response

from doorstep.clock import to_iso
from doorstep.console.confirm import Confirmation, confirmed
from doorstep.console.request import PageRequest, Pages
from doorstep.model.bulk import Bulk, Selection
from doorstep.model.listing import DeadLetterFilter, EventFilter, RetryQueueFilter

PAGES = Pages("/bulk")
_LIMIT = 50
_CANCEL = Confirmation("Cancel it", "It stops and cannot be resumed. What is done stays done.")
_FAILURES = 25
_IMPLIED = frozenset({"archived_before", "waiting"})
"""Filter fields that every operation sets automatically. They are not shown, because users did not choose them."""
_LISTS: dict[str, tuple[str, RetryQueueFilter | DeadLetterFilter | EventFilter]] = {
    "letters": ("dead letters", DeadLetterFilter()),
    "queue": ("waiting deliveries", RetryQueueFilter()),
    "events": ("events", EventFilter()),
}
"""For each kind of filter that a selection can have: what it selects, and a filter with default values."""


@PAGES.get()
async def show_all(request: PageRequest) -> Response:
    page = await request.components.bulk.list(request.org_id, request.query.text("cursor"), _LIMIT)
    names = await _names(request, page.items)
    rows = [(one, about(one, names)) for one in page.items]
    people = await request.reader.key_names(request.org_id, (one.actor for one in page.items))
    return request.page("bulks.html", rows=rows, next=page.next, people=people)


@PAGES.get("/{bulk_id}")
async def show(request: PageRequest) -> Response:
    reader, bulk_id = request.reader, request.id("bulk_id")
    bulk = await request.components.bulk.get(request.org_id, bulk_id)
    failures = await reader.bulk_failures(request.org_id, bulk_id, request.query.text("cursor"), _FAILURES)
    names = await _names(request, [bulk])
    return request.page(
        "bulk.html",
        bulk=bulk,
        about=about(bulk, names),
        names=names,
        people=await reader.key_names(request.org_id, [bulk.actor]),
        next=failures.next,
        failures=failures.items,
    )


PAGES.act("/{bulk_id}/pause", lambda components: components.bulk.pause, "Paused. Deliveries in progress continue.")
PAGES.act("/{bulk_id}/resume", lambda components: components.bulk.resume, "Resumed.")


async def _ask_cancel(request: PageRequest) -> tuple[str, Confirmation]:
    bulk = await request.components.bulk.get(request.org_id, request.id("bulk_id"))
    return f"Cancel the bulk {bulk.kind}: {bulk.progress}?", _CANCEL


@confirmed(PAGES, "/{bulk_id}/cancel", _ask_cancel)
async def cancel(request: PageRequest, reason: str) -> Response:
    await request.components.bulk.cancel(request.org_id, request.id("bulk_id"), request.actor, reason)
    return request.done("Cancelled. What is done stays done.")


async def _names(request: PageRequest, bulks: Sequence[Bulk]) -> dict[UUID, str]:
    """The names of the endpoints that the operations refer to. An unknown id in a filter has no name."""
    naming = (one for bulk in bulks for one in (bulk.selection.letters, bulk.selection.queue, bulk))
    named = {one.endpoint_id for one in naming if one and one.endpoint_id}
    return await request.reader.endpoint_names(request.org_id, named)


def about(bulk: Bulk, names: Mapping[UUID, str]) -> str:
    """The selection in words: `all dead letters with event type order.*, endpoint crm`."""
    selection = bulk.selection
    if selection.delivery_ids is not None:
        return f"{len(selection.delivery_ids)} selected deliveries"
    what, fields = _filter_fields(selection)
    texts = [
        f"{field.removesuffix('_id').replace('_', ' ')} {_text(field, value, names)}" for field, value in fields.items()
    ]
    target = "" if bulk.endpoint_id is None else f", to {names.get(bulk.endpoint_id, bulk.endpoint_id)}"
    return f"all {what}" + (f" with {', '.join(texts)}" if texts else "") + target


def _filter_fields(selection: Selection) -> tuple[str, dict[str, object]]:
    """The list that the operation selects from, and the filter fields that differ from their defaults."""
    for name, (items, plain) in _LISTS.items():
        if (chosen := getattr(selection, name)) is not None:
            fields = {field: getattr(chosen, field) for field in chosen.__struct_fields__ if field not in _IMPLIED}
            return items, {field: value for field, value in fields.items() if value != getattr(plain, field)}
    return "deliveries", {}


def _text(field: str, value: object, names: Mapping[UUID, str]) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:016x}" if field == "cause" else to_iso(value)
    return names.get(value, str(value)) if isinstance(value, UUID) else str(value)
