"""Acts on many deliveries: a question with the count and the endpoints first, then a bulk operation.

A question is a page of its own (`question.html`); where there are scripts it opens over the list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from starlette.responses import Response

from doorstep.clock import Instant
from doorstep.console.confirm import one_time_id, reason_of
from doorstep.console.fields import Fields
from doorstep.console.formatting import plural
from doorstep.console.page import ACT, Pages
from doorstep.console.request import PageRequest
from doorstep.console.selection import Chosen
from doorstep.errors import InvalidInput
from doorstep.model.action import ActionKind
from doorstep.model.bulk import Bulk, BulkKind
from doorstep.operations.bulk import RATE_MAX, RATE_MIN
from doorstep.operations.deliveries import DONE

Choose = Callable[[Fields, Instant], Chosen]
"""What the fields of a query or a form choose, at this moment."""


class BulkConfirmation(NamedTuple):
    """What is asked before an act on what was ticked, or on all that matches."""

    kind: BulkKind
    title: str
    """Completed by the count: `Retry` → `Retry 5 deliveries?`"""
    warning: str = ""
    danger: bool = False
    rate: bool = False
    canary: bool = False


def declare(pages: Pages, path: str, question: BulkConfirmation, choose: Choose) -> None:
    """The page that asks, and the form that answers; both read by `choose` what they are about."""

    @pages.get(path, ACT)
    async def ask(visit: PageRequest) -> Response:
        return await _asked(visit, question, choose(visit.query, visit.now))

    @pages.post(path)
    async def answer(visit: PageRequest) -> Response:
        chosen = choose(visit.form, visit.now)
        try:
            return await _answered(visit, question, chosen)
        except InvalidInput as error:
            return await _asked(visit, question, chosen, error)


async def _asked(
    visit: PageRequest, question: BulkConfirmation, chosen: Chosen, error: InvalidInput | None = None
) -> Response:
    """The question: how many, for which endpoints. Once more, with what was entered, if the answer was wrong."""
    preview = await visit.doorstep.components.bulk.preview(visit.org_id, chosen.selection)
    names = await visit.doorstep.components.reader.endpoint_names(visit.org_id, preview.by_endpoint)
    endpoints = sorted(((names[key], count) for key, count in preview.by_endpoint.items()), key=lambda one: -one[1])
    return visit.page(
        "question.html",
        422 if error else 200,
        question=question,
        preview=preview,
        endpoints=endpoints,
        chosen=chosen.fields.pairs,
        gone=len(chosen.selection.delivery_ids or ()) - preview.count.value,
        canary=question.canary and chosen.selection.letters is not None,
        once=one_time_id(visit),
        error=error,
    )


async def _answered(visit: PageRequest, question: BulkConfirmation, chosen: Chosen) -> Response:
    """One delivery is acted upon at once; several, as an operation that can be watched."""
    selection = chosen.selection
    reason = reason_of(visit.form, required=question.danger)
    if selection.delivery_ids is not None and len(selection.delivery_ids) == 1:
        kind = ActionKind(question.kind.value)
        await visit.doorstep.components.deliveries.act_on(
            kind, visit.org_id, selection.delivery_ids[0], visit.actor, reason, only_in=selection.only_in
        )
        return visit.done(f"The delivery was {DONE[kind]}.")
    now = visit.now
    bulk = await visit.doorstep.components.bulk.start(
        question.kind,
        visit.org_id,
        selection,
        visit.actor,
        reason=reason,
        rate_per_second=visit.form.number("rate", RATE_MIN, RATE_MAX),
        canary=visit.form.flag("canary"),
        bulk_id=one_time_id(visit),
    )
    return begun(visit, bulk, now, f"Began with {plural(bulk.total, 'delivery', 'deliveries')}.")


def begun(visit: PageRequest, bulk: Bulk, asked_at: Instant, sentence: str) -> Response:
    """To the operation. One that is older than the answer is that of the same form, which was sent before."""
    said = sentence if bulk.created_at >= asked_at else "It had begun already: this form was sent before."
    return visit.done(said, f"/console/bulk/{bulk.bulk_id}")
