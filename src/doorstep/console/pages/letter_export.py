"""Dead letters as a file: all that match a filter, page by page, so that it takes no more memory than one page."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from doorstep.clock import Instant, to_iso
from doorstep.console.filters import letters_of, one_of
from doorstep.console.page import Pages
from doorstep.console.visit import Visit
from doorstep.model.listing import Letters, Page
from doorstep.path.reading import Described

PAGES = Pages("/dead-letters")
_PAGE = 200
_PAGE_WITH_PAYLOADS = 20
"""A payload may have a quarter of a megabyte."""
_ACTIVE = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What begins so, a spreadsheet takes for a formula."""

Line = dict[str, Any]
"""What is told of one letter."""
Lines = list[Line]


@PAGES.get("/export")
async def export(visit: Visit) -> Response:
    wanted = letters_of(visit.query)
    format = visit.query.text("format") or "jsonl"
    write, kind = one_of("format", format, _FORMATS)
    with_payloads = visit.query.flag("payload") and format == "jsonl"
    first = await _page(visit, wanted, None, with_payloads)  # a filter that cannot be used is told on a page
    name = f"dead-letters-{to_iso(visit.now)[:19].replace(':', '')}.{format}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    pages = _read(visit, wanted, first, with_payloads)
    return StreamingResponse(_written(pages, write), media_type=kind, headers=headers)


async def _written(pages: AsyncIterator[Lines], write: Callable[[Lines, bool], bytes]) -> AsyncIterator[bytes]:
    first = True
    async for lines in pages:
        yield write(lines, first)
        first = False


async def _read(visit: Visit, wanted: Letters, page: Page[Described], with_payloads: bool) -> AsyncIterator[Lines]:
    while True:
        yield await _lines(visit, page.items, with_payloads)
        if page.next is None:
            return
        page = await _page(visit, wanted, page.next, with_payloads)


async def _page(visit: Visit, wanted: Letters, cursor: str | None, with_payloads: bool) -> Page[Described]:
    reading, limit = visit.doorstep.components.reader, _PAGE_WITH_PAYLOADS if with_payloads else _PAGE
    found = await visit.doorstep.components.store.dead_letters(visit.org_id, reading.dated(wanted), cursor, limit)
    letters = [reading.seen(one) for one in found.items]
    return Page(tuple(await reading.described(visit.org_id, letters)), found.next)


async def _lines(visit: Visit, letters: Sequence[Described], with_payloads: bool) -> Lines:
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


def json_lines(lines: Lines, _first: bool) -> bytes:
    return b"".join(msgspec.json.encode(one) + b"\n" for one in lines)


def csv_lines(lines: Lines, first: bool) -> bytes:
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
