"""The dead letters: what the machine has given up on, by cause first; then one by one."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.bulk_confirm import BulkConfirmation, declare
from doorstep.console.dead_letter_causes import Cause, cause_choices, described_causes
from doorstep.console.fields import LETTER_FILTER, letters_of
from doorstep.console.page import Pages
from doorstep.console.request import PageRequest
from doorstep.console.selection import endpoints_of, of_letters
from doorstep.model.action import ActionKind
from doorstep.model.bulk import Bulk, BulkKind
from doorstep.model.delivery import DEAD_STATES
from doorstep.model.listing import DeadLetterFilter
from doorstep.model.rollup import MINUTE

PAGES = Pages("/dead-letters")
_LIMIT = 50
_CAUSES = 25
_OPERATIONS = 20
_SEEN_AFTER_END = MINUTE
"""How long an operation that ended stays in sight: who waited for it looks away now and then."""
_RETRY = BulkConfirmation(BulkKind.RETRY, "Retry", "Retries are counted anew.", rate=True, canary=True)
_RESOLVE = BulkConfirmation(
    BulkKind.RESOLVE, "Resolve", "What is resolved needs no delivery any more, and leaves this list."
)
_DELETE = BulkConfirmation(
    BulkKind.DELETE,
    "Delete",
    "What is deleted leaves every list and cannot be brought back. Its attempt log stays.",
    danger=True,
)


@PAGES.get()
async def show(visit: PageRequest) -> Response:
    """The causes; or what died of one of them."""
    wanted = letters_of(visit.query)
    if wanted.cause is not None:
        return await _letters(visit, wanted)
    reading = visit.doorstep.components.reader
    page = await reading.cause_groups(visit.org_id, wanted, visit.query.text("cursor"), _CAUSES)
    _, count = await reading.dead_letters(visit.org_id, wanted, None, 1)
    return visit.page(
        "dead_letters.html",
        wanted=wanted,
        filter=visit.query.only(*LETTER_FILTER),
        causes=await described_causes(visit, page.items),
        next=page.next,
        count=count,
        endpoints=await endpoints_of(visit),
        operations=await _operations(visit),
    )


@PAGES.get("/letters")
async def show_letters(visit: PageRequest) -> Response:
    """One by one."""
    return await _letters(visit, letters_of(visit.query))


async def _letters(visit: PageRequest, wanted: DeadLetterFilter) -> Response:
    reading = visit.doorstep.components.reader
    page, count = await reading.dead_letters(visit.org_id, wanted, visit.query.text("cursor"), _LIMIT)
    return visit.page(
        "dead_letters_rows.html",
        wanted=wanted,
        filter=visit.query.only(*LETTER_FILTER),
        rows=await reading.described(visit.org_id, page.items),
        next=page.next,
        count=count,
        cause=await _cause(visit, wanted),
        choices=await cause_choices(visit, wanted),
        endpoints=await endpoints_of(visit),
        operations=await _operations(visit),
    )


async def _cause(visit: PageRequest, wanted: DeadLetterFilter) -> Cause | None:
    """What the wanted letters have in common, if that was asked for and there are any."""
    if wanted.cause is None:
        return None
    page = await visit.doorstep.components.reader.cause_groups(visit.org_id, wanted, None, 1)
    return next(iter(await described_causes(visit, page.items)), None)


async def _operations(visit: PageRequest) -> list[Bulk]:
    """Bulk operations on dead letters that go on, or have just ended."""
    newest = await visit.doorstep.components.store.list_bulk(visit.org_id, None, _OPERATIONS)
    since = visit.now - _SEEN_AFTER_END
    return [one for one in newest.items if _is_on_letters(one) and (one.finished_at is None or one.finished_at > since)]


def _is_on_letters(bulk: Bulk) -> bool:
    """What was ticked one by one may be of the retry queue as well; there is little harm in showing it."""
    named = bulk.selection.delivery_ids is not None and bulk.kind is not BulkKind.SKIP
    return named or bulk.selection.letters is not None


# -- acts --------------------------------------------------------------------------------------------------


@PAGES.post("/{delivery_id}/retry")
async def retry_one(visit: PageRequest) -> Response:
    delivery_id = visit.id("delivery_id")
    await visit.doorstep.components.deliveries.act_on(
        ActionKind.RETRY, visit.org_id, delivery_id, visit.actor, only_in=DEAD_STATES
    )
    return visit.done(f"It is tried again in {visit.doorstep.components.tuning.revive_after_seconds:g} seconds.")


declare(PAGES, "/retry", _RETRY, of_letters)
declare(PAGES, "/resolve", _RESOLVE, of_letters)
declare(PAGES, "/delete", _DELETE, of_letters)
