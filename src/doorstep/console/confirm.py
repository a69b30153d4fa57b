"""Confirmation pages for actions on one item and for actions on many deliveries, which become bulk operations.

A confirmation is a separate page; with JavaScript it opens as a dialog over the list. "All that match" means all rows
that matched when the confirmation was shown. Rows that were added later are excluded, because the user has not seen
them and they are not in the count. The form therefore sends the time of the confirmation as an upper bound for the
filter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID

from starlette.responses import Response

from doorstep.clock import Instant, to_iso
from doorstep.console import outcomes
from doorstep.console.fields import EVENT_FILTER, LETTER_FILTER, QUEUE_FILTER, Fields, events_of, letters_of, queue_of
from doorstep.console.formatting import plural
from doorstep.console.request import FormError, PageRequest, Pages
from doorstep.engine.directory import existing
from doorstep.errors import InvalidInput
from doorstep.model.action import REASON_CHARACTERS_MAX, ActionKind
from doorstep.model.bulk import BulkKind, Selection
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES, States
from doorstep.model.endpoint import Endpoint
from doorstep.model.record import uuid7
from doorstep.operations.bulk import RATE_MAX, RATE_MIN

# -- an action on one item -------------------------------------------------------------------------------------


class Confirmation(NamedTuple):
    action: str
    """The label of the button that confirms the action."""
    effect: str
    final: bool = True
    """Whether the action cannot be undone; if so, a reason is required."""


Ask = Callable[[PageRequest], Awaitable[tuple[str, Confirmation]]]
"""Returns the title and the rest of the confirmation. The title describes the current state of the item."""
Act = Callable[[PageRequest, str], Awaitable[Response]]
"""Performs the action. The text is the reason for the audit log."""


def confirmed(pages: Pages, path: str, ask: Ask) -> Callable[[Act], Act]:
    """Declare an action that needs a confirmation: GET shows the confirmation, POST performs the action."""

    def declare(act: Act) -> Act:
        async def show(request: PageRequest, error: FormError | None) -> Response:
            title, question = await ask(request)
            return request.form_page("confirmation.html", error, title=title, question=question)

        @pages.form(path, show)
        async def confirm(request: PageRequest) -> Response:
            _, question = await ask(request)
            return await act(request, reason_of(request.form, required=question.final))

        return act

    return declare


def one_time_id(request: PageRequest) -> UUID:
    """The unique id of a form, which the form sends in its field `once`. Because of this id, a form that is submitted
    twice takes effect only once."""
    return request.form.id("once") or uuid7(request.now)


def reason_of(form: Fields, *, required: bool = False) -> str:
    reason = form.text("reason") or ""
    if required and not reason:
        raise InvalidInput("reason", "must be given for this action; it is kept in the audit log")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput("reason", f"must be at most {REASON_CHARACTERS_MAX} characters, got {len(reason)}")
    return reason


# -- the selection in a list: ticked rows, or all that match its filter ----------------------------------------


class Chosen(NamedTuple):
    selection: Selection
    fields: Fields
    """The form fields from which the same selection can be read again."""


def of_queue(fields: Fields, now: Instant) -> Chosen:
    """A selection from the retry queue. If it filters by age, the age is measured when the confirmation is shown, not
    when it is submitted."""
    if not fields.flag("all"):
        return _ticked(fields, WAITING_STATES)
    before = to_iso(_earlier(queue_of(fields, now).failed_before, now))
    bound = fields.only(*QUEUE_FILTER).having(age=None, failed_before=before)
    return Chosen(Selection(queue=queue_of(bound, now)), bound.having(all="yes"))


def of_letters(fields: Fields, now: Instant) -> Chosen:
    """A selection from the dead letters."""
    if not fields.flag("all"):
        return _ticked(fields, DEAD_STATES)
    before = to_iso(_earlier(letters_of(fields).died_before, now))
    bound = fields.only(*LETTER_FILTER).having(died_before=before)
    return Chosen(Selection(letters=letters_of(bound)), bound.having(all="yes"))


def of_events(fields: Fields, now: Instant) -> Chosen:
    """A selection of events that were accepted in a time range. Both ends of the range are required, so that nobody
    replays everything by accident."""
    filter = events_of(fields)
    if filter.created_from is None or filter.created_before is None:
        missing = "created_from" if filter.created_from is None else "created_before"
        raise InvalidInput(missing, "must be given: a replay needs both ends of its time range")
    if filter.created_before <= filter.created_from:
        raise InvalidInput("created_before", "must be later than created_from")
    bound = fields.only(*EVENT_FILTER).having(created_before=to_iso(_earlier(filter.created_before, now)))
    return Chosen(Selection(events=events_of(bound)), bound)


def _ticked(fields: Fields, states: States) -> Chosen:
    """A selection of the ticked rows. The action applies only to rows that are still in one of `states`, the states
    that the list shows. Ticking no rows is an error; it never selects all rows."""
    if ids := fields.ids("id"):
        return Chosen(Selection(delivery_ids=tuple(dict.fromkeys(ids)), states=states), fields.only("id"))
    raise InvalidInput("id", "no rows are selected; select some rows, or choose all that match")


def _earlier(bound: Instant | None, now: Instant) -> Instant:
    return now if bound is None else min(bound, now)


# -- an action on many deliveries ------------------------------------------------------------------------------

Choose = Callable[[Fields, Instant], Chosen]
"""Reads the selection from the fields of a query or a form. The instant is the current time."""


class BulkConfirmation(NamedTuple):
    """The confirmation of an action on selected rows, or on all rows that match the filter."""

    kind: BulkKind
    title: str
    """The verb for the confirmation's question: `Retry` becomes `Retry 5 deliveries?`"""
    about_one: str = ""
    """The name of the text that asks about a single delivery, if it has its own."""
    warning: str = ""
    danger: bool = False
    rate: bool = False
    canary: bool = False


def bulk_confirmed(pages: Pages, path: str, question: BulkConfirmation, choose: Choose) -> None:
    """Declare a bulk action: GET shows the confirmation, POST starts the action. `choose` reads the selection in both
    cases."""

    async def show(request: PageRequest, error: FormError | None) -> Response:
        return await _ask_bulk(request, question, choose(request.sent, request.now), error)

    @pages.form(path, show)
    async def start(request: PageRequest) -> Response:
        return await _start_bulk(request, question, choose(request.form, request.now))


async def _ask_bulk(
    request: PageRequest, question: BulkConfirmation, chosen: Chosen, error: FormError | None
) -> Response:
    """The confirmation, with the number of deliveries in total and for each endpoint."""
    preview = await request.components.bulk.preview(request.org_id, chosen.selection)
    names = await request.reader.endpoint_names(request.org_id, preview.by_endpoint)
    endpoints = sorted(((names[key], count) for key, count in preview.by_endpoint.items()), key=lambda one: -one[1])
    return request.form_page(
        "question.html",
        error,
        question=question,
        preview=preview,
        endpoints=endpoints,
        chosen=chosen.fields.pairs,
        gone=len(chosen.selection.delivery_ids or ()) - preview.count.value,
        required=_needs_reason(question, chosen.selection),
        canary=question.canary and chosen.selection.letters is not None,
        once=one_time_id(request),
    )


def _needs_reason(question: BulkConfirmation, selection: Selection) -> bool:
    """Whether the action needs a reason: if it cannot be undone and may affect several deliveries."""
    return question.danger and (selection.delivery_ids is None or len(selection.delivery_ids) > 1)


async def _start_bulk(request: PageRequest, question: BulkConfirmation, chosen: Chosen) -> Response:
    """Performs the action. An action on a single delivery takes effect immediately. An action on several deliveries
    becomes a bulk operation, whose page shows the progress."""
    selection = chosen.selection
    reason = reason_of(request.form, required=_needs_reason(question, selection))
    if selection.delivery_ids is not None and len(selection.delivery_ids) == 1:
        (delivery_id,), only_in = selection.delivery_ids, selection.only_in
        if question.kind is BulkKind.RETRY:
            of = "letters" if only_in == DEAD_STATES else "queue"
            return await outcomes.retry(request, delivery_id, of=of, reason=reason, only_in=only_in)
        kind = ActionKind(question.kind.value)
        await request.components.deliveries.act_on(
            kind, request.org_id, delivery_id, request.actor, reason, only_in=only_in
        )
        return request.done(outcomes.done(request, kind))
    return await start_bulk(request, question.kind, selection, reason)


async def start_bulk(
    request: PageRequest, kind: BulkKind, selection: Selection, reason: str, endpoint_id: UUID | None = None
) -> Response:
    """Start a bulk operation and redirect to its page. If an operation with the form's id already exists, the form was
    submitted twice, and no second operation starts."""
    now = request.now
    bulk = await request.components.bulk.start(
        kind,
        request.org_id,
        selection,
        request.actor,
        reason=reason,
        rate_per_second=request.form.number("rate", RATE_MIN, RATE_MAX),
        canary=request.form.flag("canary"),
        endpoint_id=endpoint_id,
        bulk_id=one_time_id(request),
    )
    items = ("delivery", "deliveries") if selection.events is None else ("event",)
    place = f"/console/bulk/{bulk.bulk_id}"
    if bulk.created_at < now:
        return request.done("Already started: this form was sent before.", place)
    return request.done(f"Started with {plural(bulk.total, *items)}.", place, watch=outcomes.watch_of(bulk))


# -- endpoints to choose from ----------------------------------------------------------------------------------

ENDPOINTS_MAX = 500


class Endpoints(NamedTuple):
    items: list[tuple[UUID, str]]
    """Ids and names."""
    cut: bool
    """Whether there are more endpoints than those in `items`."""


async def endpoints_of(request: PageRequest) -> Endpoints:
    """The organization's first ENDPOINTS_MAX endpoints and the endpoint that the query asks for, sorted by name."""
    page = await request.reader.endpoints(request.org_id, None, None, ENDPOINTS_MAX)
    found = {one.endpoint_id: one.name for one in page.items}
    chosen = request.query.id("endpoint_id")
    if chosen is not None and chosen not in found:
        found[chosen] = (await request.reader.endpoint(request.org_id, chosen)).name
    return Endpoints(sorted(found.items(), key=lambda one: one[1].casefold()), cut=page.next is not None)


async def endpoint_of(request: PageRequest) -> Endpoint:
    """The endpoint in the path; Conflict if it was deleted."""
    return existing(await request.reader.endpoint(request.org_id, request.id("endpoint_id")))


def place_of(endpoint: Endpoint) -> str:
    """The path of the endpoint's page."""
    return f"/console/endpoints/{endpoint.endpoint_id}"
