"""Dead letters: edit the payload and retry, and export."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from difflib import unified_diff
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response, StreamingResponse

from doorstep.clock import Instant, to_iso
from doorstep.console.confirm import reason_of
from doorstep.console.fields import letters_of, one_of
from doorstep.console.formatting import pretty
from doorstep.console.page import ACT, Pages
from doorstep.console.request import PageRequest
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.action import ActionKind
from doorstep.model.delivery import DEAD_STATES, Delivery
from doorstep.model.listing import DeadLetterFilter, Page
from doorstep.operations.reader import Described
from doorstep.policy.payload import check_payload

EDIT_PAGES = Pages("/dead-letters")
_COMPARED_LINES_MAX = 2_000
"""Comparing takes a time that grows with the square of the lines: so many of them up to a second."""


class Line(NamedTuple):
    """A line of a comparison."""

    kind: str
    """`added`, `removed`, `place` or `same`."""
    text: str


class Difference(NamedTuple):
    """The lines that differ, and some around them."""

    lines: Sequence[Line] = ()
    too_long: bool = False
    """To be compared while somebody waits."""


_CHANGED = Conflict(
    "somebody has changed the payload since you began; below is how yours differs from it. Retry again to send yours"
)
_KINDS = {"+": "added", "-": "removed", "@": "place"}


@EDIT_PAGES.get("/{delivery_id}/edit", ACT)
async def ask_edit(visit: PageRequest) -> Response:
    letter, sent = await _found(visit)
    return _form(visit, letter, sent, pretty(sent))


@EDIT_PAGES.post("/{delivery_id}/edit")
async def edit(visit: PageRequest) -> Response:
    letter, sent = await _found(visit)
    before, typed = pretty(sent), (visit.form.raw("payload") or "").replace("\r\n", "\n")
    changed = None if visit.form.text("made_of") == digest(sent) else _CHANGED
    if changed or visit.form.flag("compare"):
        return _form(visit, letter, sent, typed, await asyncio.to_thread(compared, before, typed), changed)
    try:
        payload, reason = None if typed == before else checked(typed), reason_of(visit.form)
        await visit.doorstep.components.deliveries.act_on(
            ActionKind.RETRY, visit.org_id, letter.delivery_id, visit.actor, reason, payload, only_in=DEAD_STATES
        )
    except InvalidInput as error:
        return _form(visit, letter, sent, typed, error=error)
    how = "as it was" if payload is None else "with the new payload"
    return visit.done(f"It is tried again in {visit.doorstep.components.tuning.revive_after_seconds:g} seconds, {how}.")


def _form(
    visit: PageRequest,
    letter: Delivery,
    sent: bytes,
    text: str,
    difference: Difference | None = None,
    error: InvalidInput | Conflict | None = None,
) -> Response:
    """It says what it was made of, so that nobody writes over what another has written meanwhile."""
    return visit.filled(
        "dead_letters_edit.html",
        visit.form,
        error,
        letter=letter,
        made_of=digest(sent),
        text=text,
        difference=difference,
    )


async def _found(visit: PageRequest) -> tuple[Delivery, bytes]:
    """The letter, and what would go out for it."""
    delivery_id = visit.id("delivery_id")
    letter = await visit.doorstep.components.store.delivery(visit.org_id, delivery_id)
    if letter.deleted or letter.state not in DEAD_STATES:
        state = "deleted" if letter.deleted else letter.state
        raise Conflict(f"delivery {delivery_id} is {state} and cannot be retried with another payload")
    return letter, await visit.doorstep.components.store.payload(visit.org_id, delivery_id)


# -- payloads as text: pure ----------------------------------------------------------------------------------


def digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def checked(text: str) -> bytes:
    """To be sent. That it is no JSON is told before its size: what is none keeps the blanks of the layout."""
    payload = compact(text)
    check_payload(payload, len(payload))
    return payload


def compact(text: str) -> bytes:
    """To be sent: without the blanks of the layout. What is no JSON stays as it is, to be refused with the reason."""
    try:
        return msgspec.json.format(text.encode(), indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return text.encode()


def compared(before: str, after: str) -> Difference:
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _COMPARED_LINES_MAX:
        return Difference(too_long=True)
    changes = list(unified_diff(old, new, n=2, lineterm=""))[2:]
    return Difference([Line(_KINDS.get(one[:1], "same"), one) for one in changes])


EXPORT_PAGES = Pages("/dead-letters")
_PAGE = 200
_PAGE_WITH_PAYLOADS = 20
"""A payload may have a quarter of a megabyte."""
_ACTIVE = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What begins so, a spreadsheet takes for a formula."""

ExportRow = dict[str, Any]
"""What is told of one letter."""
ExportRows = list[ExportRow]


@EXPORT_PAGES.get("/export")
async def export(visit: PageRequest) -> Response:
    wanted = letters_of(visit.query)
    format = visit.query.text("format") or "jsonl"
    write, kind = one_of("format", format, _FORMATS)
    with_payloads = visit.query.flag("payload") and format == "jsonl"
    first = await _page(visit, wanted, None, with_payloads)  # a filter that cannot be used is told on a page
    name = f"dead-letters-{to_iso(visit.now)[:19].replace(':', '')}.{format}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    pages = _read(visit, wanted, first, with_payloads)
    return StreamingResponse(_written(pages, write), media_type=kind, headers=headers)


async def _written(
    pages: AsyncIterator[ExportRows], write: Callable[[ExportRows, bool], bytes]
) -> AsyncIterator[bytes]:
    first = True
    async for lines in pages:
        yield write(lines, first)
        first = False


async def _read(
    visit: PageRequest, wanted: DeadLetterFilter, page: Page[Described], with_payloads: bool
) -> AsyncIterator[ExportRows]:
    while True:
        yield await _lines(visit, page.items, with_payloads)
        if page.next is None:
            return
        page = await _page(visit, wanted, page.next, with_payloads)


async def _page(
    visit: PageRequest, wanted: DeadLetterFilter, cursor: str | None, with_payloads: bool
) -> Page[Described]:
    reading, limit = visit.doorstep.components.reader, _PAGE_WITH_PAYLOADS if with_payloads else _PAGE
    found = await visit.doorstep.components.store.dead_letters(visit.org_id, reading.dated(wanted), cursor, limit)
    letters = [reading.seen(one) for one in found.items]
    return Page(tuple(await reading.described(visit.org_id, letters)), found.next)


async def _lines(visit: PageRequest, letters: Sequence[Described], with_payloads: bool) -> ExportRows:
    """Payloads are on one line, else as they were accepted; None if a letter has gone meanwhile."""
    lines = [{name: read(one) for name, read in COLUMNS.items()} for one in letters]
    if not with_payloads:
        return lines
    ids = [one.delivery.delivery_id for one in letters]
    found = await visit.doorstep.components.store.payloads(visit.org_id, ids)
    return [line | {"payload": _raw(found.get(one))} for line, one in zip(lines, ids, strict=True)]


def _raw(payload: bytes | None) -> msgspec.Raw | None:
    return None if payload is None else msgspec.Raw(msgspec.json.format(payload, indent=-1))


def _moment(at: Instant | None) -> str | None:
    return None if at is None else to_iso(at)


# -- formats: pure -------------------------------------------------------------------------------------------

COLUMNS: dict[str, Callable[[Described], object]] = {
    "delivery_id": lambda one: str(one.delivery.delivery_id),
    "event_id": lambda one: str(one.delivery.event_id),
    "event_type": lambda one: one.delivery.event_type,
    "endpoint_id": lambda one: str(one.delivery.endpoint_id),
    "endpoint_name": lambda one: one.endpoint_name,
    "state": lambda one: one.delivery.state.value,
    "error": lambda one: one.delivery.code,
    "error_reason": lambda one: one.delivery.reason,
    "response_code": lambda one: one.delivery.response_code,
    "attempts": lambda one: one.delivery.attempt,
    "retry_attempts": lambda one: one.delivery.retry_attempts,
    "first_failed_at": lambda one: _moment(one.delivery.first_failed_at),
    "died_at": lambda one: _moment(one.delivery.settled_at),
    "cause": lambda one: None if one.delivery.cause is None else f"{one.delivery.cause:016x}",
}
"""What is told of each letter, in this order."""


def json_lines(lines: ExportRows, _first: bool) -> bytes:
    return b"".join(msgspec.json.encode(one) + b"\n" for one in lines)


def csv_lines(lines: ExportRows, first: bool) -> bytes:
    """With the names of the columns ahead of the first line."""
    text = io.StringIO()
    writer = csv.writer(text)
    if first:
        writer.writerow(COLUMNS)
    writer.writerows(_cells(one[name] for name in COLUMNS) for one in lines)
    return text.getvalue().encode("utf-8", "replace")


def _cells(values: Iterable[object]) -> list[object]:
    return [inert(value) if isinstance(value, str) else value for value in values]


def inert(text: str) -> str:
    """A cell that is text, whatever others wrote into it."""
    return f"'{text}" if text.startswith(_ACTIVE) else text


_FORMATS = {"jsonl": (json_lines, "application/x-ndjson"), "csv": (csv_lines, "text/csv; charset=utf-8")}
