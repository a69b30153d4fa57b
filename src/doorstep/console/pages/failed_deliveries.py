"""Failed deliveries: the retry queue, and the dead letters with payload editing and exports."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
from collections.abc import AsyncIterator, Callable, Sequence
from difflib import unified_diff
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response, StreamingResponse

from doorstep.clock import Instant, to_iso
from doorstep.console import outcomes
from doorstep.console.confirm import BulkConfirmation, bulk_confirmed, endpoints_of, of_letters, of_queue, reason_of
from doorstep.console.fields import AGES, LETTER_FILTER, QUEUE_FILTER, letters_of, one_of, queue_of
from doorstep.console.formatting import pretty
from doorstep.console.request import ACT, FormError, PageRequest, Pages
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.bulk import Bulk, BulkKind
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES, Delivery
from doorstep.model.listing import DeadLetterFilter
from doorstep.model.rollup import MINUTE
from doorstep.operations.reader import Described, DescribedCause
from doorstep.policy.payload import check_payload

QUEUE_PAGES = Pages("/retry-queue")
PAGES = Pages("/dead-letters")
_LIMIT = 50
_CAUSES = 25
_CHOICES_MAX = 25
_OPERATIONS = 20
_SHOWN_AFTER_END = MINUTE
"""How long a finished operation stays on the page."""


# -- the retry queue ---------------------------------------------------------------------------------------


@QUEUE_PAGES.get()
async def show_queue(request: PageRequest) -> Response:
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


@QUEUE_PAGES.post("/{delivery_id}/retry")
async def retry_waiting(request: PageRequest) -> Response:
    return await outcomes.retry(request, request.id("delivery_id"), of="queue", only_in=WAITING_STATES)


_RETRY_NOW = BulkConfirmation(BulkKind.RETRY, "Retry now", rate=True)
_SKIP = BulkConfirmation(
    BulkKind.SKIP,
    "Skip",
    "skip_question",
    "They become dead letters, and are not retried unless you retry them there.",
    danger=True,
)
bulk_confirmed(QUEUE_PAGES, "/retry", _RETRY_NOW, of_queue)
bulk_confirmed(QUEUE_PAGES, "/skip", _SKIP, of_queue)


# -- lists of dead letters ---------------------------------------------------------------------------------


@PAGES.get()
async def show(request: PageRequest) -> Response:
    """Shows the list of causes, or, if the filter names a cause, the dead letters with that cause."""
    filter = letters_of(request.query)
    if filter.cause is not None:
        return await _show_letters(request, filter)
    reader = request.reader
    page = await reader.cause_groups(request.org_id, filter, request.query.text("cursor"), _CAUSES)
    _, count = await reader.dead_letters(request.org_id, filter, None, 1)
    return await _list_page(
        request,
        "dead_letters.html",
        filter,
        causes=await reader.described_causes(request.org_id, page.items),
        next=page.next,
        count=count,
    )


@PAGES.get("/letters")
async def show_letters(request: PageRequest) -> Response:
    """Shows the dead letters one by one, not grouped by cause."""
    return await _show_letters(request, letters_of(request.query))


async def _show_letters(request: PageRequest, filter: DeadLetterFilter) -> Response:
    reader = request.reader
    page, count = await reader.dead_letters(request.org_id, filter, request.query.text("cursor"), _LIMIT)
    return await _list_page(
        request,
        "dead_letters_rows.html",
        filter,
        rows=await reader.described(request.org_id, page.items),
        next=page.next,
        count=count,
        cause=await _cause(request, filter),
        choices=await _cause_choices(request, filter),
    )


async def _list_page(request: PageRequest, template: str, filter: DeadLetterFilter, **context: object) -> Response:
    return request.page(
        template,
        200,
        filter=filter,
        fields=request.query.only(*LETTER_FILTER),
        endpoints=await endpoints_of(request),
        operations=await _operations(request),
        healthy=not request.filtered and await request.reader.is_healthy(request.org_id),
        **context,
    )


async def _cause(request: PageRequest, filter: DeadLetterFilter) -> DescribedCause | None:
    """The cause in the filter, if it has dead letters."""
    if filter.cause is None:
        return None
    page = await request.reader.cause_groups(request.org_id, filter, None, 1)
    return next(iter(await request.reader.described_causes(request.org_id, page.items)), None)


async def _cause_choices(request: PageRequest, filter: DeadLetterFilter) -> list[tuple[str, str]]:
    """The causes that the filter offers: the first _CHOICES_MAX causes, and the chosen cause. The other fields of the
    filter do not affect them."""
    everything = DeadLetterFilter(archived=filter.archived)
    page = await request.reader.cause_groups(request.org_id, everything, None, _CHOICES_MAX)
    names = await request.reader.endpoint_names(request.org_id, (one.endpoint_id for one in page.items))
    found = {f"{one.cause:016x}": f"{names[one.endpoint_id]}: {one.code or one.reason}" for one in page.items}
    if filter.cause is not None:
        key = f"{filter.cause:016x}"
        found.setdefault(key, f"cause {key}")
    return sorted(found.items(), key=lambda one: one[1].casefold())


async def _operations(request: PageRequest) -> list[Bulk]:
    """The bulk operations on dead letters that are still running or finished recently."""
    newest = await request.components.bulk.list(request.org_id, None, _OPERATIONS)
    since = request.now - _SHOWN_AFTER_END
    return [one for one in newest.items if _is_on_letters(one) and (one.finished_at is None or one.finished_at > since)]


def _is_on_letters(bulk: Bulk) -> bool:
    """Whether an operation acts on dead letters. An operation on ticked rows may also have started in the retry queue;
    showing it here does no harm."""
    ticked = bulk.selection.delivery_ids is not None and bulk.kind is not BulkKind.SKIP
    return ticked or bulk.selection.letters is not None


# -- actions on dead letters -------------------------------------------------------------------------------


@PAGES.post("/{delivery_id}/retry")
async def retry_one(request: PageRequest) -> Response:
    return await outcomes.retry(request, request.id("delivery_id"), of="letters", only_in=DEAD_STATES)


_RETRY = BulkConfirmation(BulkKind.RETRY, "Retry", warning="Their retry counts are reset.", rate=True, canary=True)
_RESOLVE = BulkConfirmation(
    BulkKind.RESOLVE, "Resolve", warning="Resolved dead letters need no delivery any more, and leave this list."
)
_DELETE = BulkConfirmation(
    BulkKind.DELETE,
    "Delete",
    "delete_question",
    "Deleted dead letters leave every list and cannot be restored. Their attempt logs are kept.",
    danger=True,
)
bulk_confirmed(PAGES, "/retry", _RETRY, of_letters)
bulk_confirmed(PAGES, "/resolve", _RESOLVE, of_letters)
bulk_confirmed(PAGES, "/delete", _DELETE, of_letters)


# -- editing the payload -----------------------------------------------------------------------------------

_COMPARED_LINES_MAX = 2_000
"""The maximum number of lines to compare. The time grows with the square of this number: 2,000 lines take up to a
second."""
_CHANGED = Conflict(
    "the payload was changed since you opened this page; the difference to yours is below. Retry again to send yours"
)
_KINDS = {"+": "added", "-": "removed", "@": "place"}


class Line(NamedTuple):
    """A line of a comparison."""

    kind: str
    """`added`, `removed`, `place` or `same`."""
    text: str


class Difference(NamedTuple):
    """The lines that differ, with some context."""

    lines: Sequence[Line] = ()
    too_long: bool = False
    """Whether the texts are too long to compare while the user waits."""


@PAGES.get("/{delivery_id}/edit", ACT)
async def ask_edit(request: PageRequest) -> Response:
    letter, payload = await _letter_and_payload(request)
    return _edit_form(request, letter, payload, pretty(payload))


@PAGES.post("/{delivery_id}/edit")
async def edit(request: PageRequest) -> Response:
    letter, current = await _letter_and_payload(request)
    before, typed = pretty(current), (request.form.raw("payload") or "").replace("\r\n", "\n")
    changed = None if request.form.text("made_of") == digest(current) else _CHANGED
    if changed or request.form.flag("compare"):
        difference = await asyncio.to_thread(compared, before, typed)
        return _edit_form(request, letter, current, typed, difference, changed)
    try:
        payload, reason = None if typed == before else checked(typed), reason_of(request.form)
        return await outcomes.retry(
            request, letter.delivery_id, of="letters", reason=reason, payload=payload, only_in=DEAD_STATES
        )
    except InvalidInput as error:
        return _edit_form(request, letter, current, typed, error=error)


def _edit_form(
    request: PageRequest,
    letter: Delivery,
    current: bytes,
    text: str,
    difference: Difference | None = None,
    error: FormError | None = None,
) -> Response:
    """The form to edit a payload. It contains a digest of the payload that it shows. With this digest, `edit` detects
    that another user has edited the payload in the meantime."""
    return request.form_page(
        "dead_letters_edit.html", error, letter=letter, made_of=digest(current), text=text, difference=difference
    )


async def _letter_and_payload(request: PageRequest) -> tuple[Delivery, bytes]:
    delivery_id = request.id("delivery_id")
    letter = await request.reader.delivery(request.org_id, delivery_id)
    if letter.deleted or letter.state not in DEAD_STATES:
        state = "deleted" if letter.deleted else letter.state
        raise Conflict(f"delivery {delivery_id} is {state} and cannot be retried with another payload")
    return letter, await request.reader.payload(request.org_id, delivery_id)


def digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def checked(text: str) -> bytes:
    """The payload to send. Invalid JSON is reported before a wrong size, because the size is that of the compacted
    JSON."""
    payload = compact(text)
    check_payload(payload, len(payload))
    return payload


def compact(text: str) -> bytes:
    """The JSON without whitespace between its values. Invalid JSON is returned unchanged; the next check rejects it."""
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


# -- export ------------------------------------------------------------------------------------------------

_EXPORT_PAGE = 200
_EXPORT_PAGE_WITH_PAYLOADS = 20
"""The page size of an export with payloads. It is smaller than without payloads, because a payload may be as large as
256 KiB by default."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet treats the text of a cell as a formula if it starts with one of these characters."""

ExportRows = list[dict[str, Any]]
"""One dict for each dead letter, with the value of each column."""


@PAGES.get("/export")
async def export(request: PageRequest) -> Response:
    filter = letters_of(request.query)
    format = request.query.text("format") or "jsonl"
    encode, media_type = one_of("format", format, _FORMATS)
    with_payloads = request.query.flag("payload") and format == "jsonl"
    pages = _export_pages(request, filter, with_payloads)
    first = await anext(pages)  # an error here becomes an error page
    name = f"dead-letters-{to_iso(request.now)[:19].replace(':', '')}.{format}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}

    async def content() -> AsyncIterator[bytes]:
        yield encode(first, True)
        async for rows in pages:
            yield encode(rows, False)

    return StreamingResponse(content(), media_type=media_type, headers=headers)


async def _export_pages(
    request: PageRequest, filter: DeadLetterFilter, with_payloads: bool
) -> AsyncIterator[ExportRows]:
    cursor: str | None = None
    limit = _EXPORT_PAGE_WITH_PAYLOADS if with_payloads else _EXPORT_PAGE
    while True:
        page = await request.reader.dead_letter_page(request.org_id, filter, cursor, limit)
        yield await _export_rows(request, page.items, with_payloads)
        if page.next is None:
            return
        cursor = page.next


async def _export_rows(request: PageRequest, letters: Sequence[Delivery], with_payloads: bool) -> ExportRows:
    """The rows of an export. Each payload is put on one line but otherwise unchanged; it is None if it no longer
    exists."""
    described = await request.reader.described(request.org_id, letters)
    rows = [{name: read(one) for name, read in COLUMNS.items()} for one in described]
    if not with_payloads:
        return rows
    ids = [one.delivery_id for one in letters]
    payloads = await request.reader.payloads(request.org_id, ids)
    lines = {one: msgspec.Raw(msgspec.json.format(payload, indent=-1)) for one, payload in payloads.items()}
    return [row | {"payload": lines.get(one)} for row, one in zip(rows, ids, strict=True)]


def _moment(at: Instant | None) -> str | None:
    return None if at is None else to_iso(at)


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
"""The columns of an export, in their order."""


def json_lines(rows: ExportRows, _first: bool) -> bytes:
    return b"".join(msgspec.json.encode(one) + b"\n" for one in rows)


def csv_lines(rows: ExportRows, first: bool) -> bytes:
    """The rows as CSV, with the header before the first row of the export."""
    text = io.StringIO()
    writer = csv.writer(text)
    if first:
        writer.writerow(COLUMNS)
    writer.writerows([inert(one[name]) for name in COLUMNS] for one in rows)
    return text.getvalue().encode("utf-8", "replace")


def inert(value: object) -> object:
    """The value of a cell, changed if necessary so that a spreadsheet does not treat it as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


_FORMATS = {"jsonl": (json_lines, "application/x-ndjson"), "csv": (csv_lines, "text/csv; charset=utf-8")}
