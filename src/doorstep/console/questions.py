"""Acts on many deliveries: a question with the count and the endpoints first, then a bulk operation.

A question is a page of its own (`question.html`); where there are scripts it opens over the list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from starlette.responses import Response

from doorstep.clock import Instant
from doorstep.console.choosing import Chosen
from doorstep.console.confirming import reason_of
from doorstep.console.fields import Fields
from doorstep.console.page import ACT, Pages
from doorstep.console.visit import Visit
from doorstep.console.words import plural
from doorstep.model.act import ActKind
from doorstep.model.bulk import BulkKind
from doorstep.path.bulk import RATE_MAX, RATE_MIN
from doorstep.path.operate import DONE

Choose = Callable[[Fields, Instant], Chosen]
"""What the fields of a query or a form choose, at this moment."""


class Question(NamedTuple):
    """What is asked before an act on what was ticked, or on all that matches."""

    kind: BulkKind
    title: str
    """Completed by the count: `Retry` → `Retry 5 deliveries?`"""
    warning: str = ""
    danger: bool = False
    rate: bool = False
    canary: bool = False


def declare(pages: Pages, path: str, question: Question, choose: Choose) -> None:
    """The page that asks, and the form that answers; both read by `choose` what they are about."""

    @pages.get(path, ACT)
    async def ask(visit: Visit) -> Response:
        return await _asked(visit, question, choose(visit.query, visit.now))

    @pages.post(path)
    async def answer(visit: Visit) -> Response:
        return await _answered(visit, question, choose(visit.form, visit.now))


async def _asked(visit: Visit, question: Question, chosen: Chosen) -> Response:
    """The question: how many, for which endpoints."""
    preview = await visit.doorstep.bulk.preview(visit.org_id, chosen.selection)
    names = await visit.doorstep.reading.endpoint_names(visit.org_id, preview.by_endpoint)
    endpoints = sorted(((names[key], count) for key, count in preview.by_endpoint.items()), key=lambda one: -one[1])
    return visit.page(
        "question.html",
        question=question,
        preview=preview,
        endpoints=endpoints,
        chosen=chosen.fields.pairs,
        canary=question.canary and chosen.selection.letters is not None,
    )


async def _answered(visit: Visit, question: Question, chosen: Chosen) -> Response:
    """One delivery is acted upon at once; several, as an operation that can be watched."""
    selection = chosen.selection
    reason = reason_of(visit.form, required=question.danger)
    if selection.delivery_ids is not None and len(selection.delivery_ids) == 1:
        kind = ActKind(question.kind.value)
        await visit.doorstep.act_on(kind, visit.org_id, selection.delivery_ids[0], visit.actor, reason)
        return visit.done(f"The delivery was {DONE[kind]}.")
    bulk = await visit.doorstep.bulk.start(
        question.kind,
        visit.org_id,
        selection,
        visit.actor,
        reason=reason,
        rate_per_second=visit.form.number("rate", RATE_MIN, RATE_MAX),
        canary=visit.form.flag("canary"),
    )
    return visit.done(f"Began with {plural(bulk.total, 'delivery', 'deliveries')}.", f"/console/bulk/{bulk.bulk_id}")
