"""What became of an action. A retry or a bulk operation has no result when its form is answered, so the flash message
names what to watch: the query of the page `/console/outcome`, which tells the result as soon as it is known.

With JavaScript, static/telling.js reads that page until the result is there, even if the row has left the list. Without
it, the message is updated on each page that the user opens.
"""

from __future__ import annotations

from urllib.parse import parse_qsl
from uuid import UUID

from starlette.responses import Response

from doorstep.clock import to_iso
from doorstep.console.fields import Fields
from doorstep.console.formatting import amount, plural
from doorstep.console.request import PageRequest, Pages
from doorstep.console.sessions import Flash
from doorstep.errors import InvalidInput, NotFound
from doorstep.model.action import ActionKind
from doorstep.model.bulk import Bulk, BulkKind, BulkState, retry_succeeded
from doorstep.model.delivery import DEAD_STATES, DeliveryState, States
from doorstep.operations.reader import Described

PAGES = Pages("/outcome")
_DONE = {ActionKind.SKIP: "skipped", ActionKind.RESOLVE: "resolved", ActionKind.DELETE: "deleted"}
"""The text for the outcome of each action that takes effect at once."""
_RETRYING = "Retrying…"
_SUCCEEDED = {"queue": "retry_succeeded", "letters": "dead_letter_retry_succeeded"}
"""The text for a successful retry, by the list that it was started from."""
_BULK_RETRY = {BulkState.RUNNING: "bulk_retry_running", BulkState.FINISHED: "bulk_retry_finished"}
_BULK_DONE = {
    BulkKind.SKIP: ("delivery moved to dead letters", "deliveries moved to dead letters"),
    BulkKind.RESOLVE: ("dead letter marked as resolved", "dead letters marked as resolved"),
    BulkKind.DELETE: ("entry deleted", "entries deleted"),
    BulkKind.REPLAY: ("event sent again", "events sent again"),
}


@PAGES.get()
async def show(request: PageRequest) -> Response:
    request.flash = await _outcome(request, request.query)
    return request.page("outcome.html")


async def current_flash(request: PageRequest) -> Flash | None:
    """The flash message, with the result if it is known by now."""
    flash = request.flash
    if flash is None or not flash.watch or request.is_post or request.path == PAGES.path:
        return flash
    try:
        return await _outcome(request, Fields(parse_qsl(flash.watch)))
    except NotFound:
        return None


def done(request: PageRequest, kind: ActionKind) -> str:
    """The outcome of an action that takes effect at once."""
    return "Delivery cancelled." if kind is ActionKind.CANCEL else request.say(_DONE[kind])


async def retry(
    request: PageRequest,
    delivery_id: UUID,
    *,
    of: str = "",
    reason: str = "",
    payload: bytes | None = None,
    only_in: States | None = None,
) -> Response:
    """Retry a delivery, and show the result when it is known. `of` names the list that the retry was started from."""
    before = await request.reader.delivery(request.org_id, delivery_id)
    await request.components.deliveries.act_on(
        ActionKind.RETRY, request.org_id, delivery_id, request.actor, reason, payload, only_in=only_in
    )
    return request.done(_RETRYING, watch=f"delivery={delivery_id}&after={before.attempt}&of={of}")


def watch_of(bulk: Bulk) -> str:
    return f"bulk={bulk.bulk_id}"


async def _outcome(request: PageRequest, watch: Fields) -> Flash:
    if bulk_id := watch.id("bulk"):
        return _of_bulk(request, await request.components.bulk.get(request.org_id, bulk_id))
    delivery_id, after = watch.id("delivery"), watch.whole("after", 0, 2**31)
    if delivery_id is None or after is None:
        raise InvalidInput("delivery", "must be given, with the number of its last attempt in after")
    delivery = await request.reader.delivery(request.org_id, delivery_id)
    (described,) = await request.reader.described(request.org_id, [delivery])
    return _of_retry(request, described, after, watch)


def _of_retry(request: PageRequest, one: Described, after: int, watch: Fields) -> Flash:
    delivery = one.delivery
    succeeded = retry_succeeded(delivery.state, delivery.attempt, after)
    if succeeded is None:
        held = (
            f" {one.held.reason}"
            if one.held and delivery.state is DeliveryState.PENDING and not delivery.forced
            else ""
        )
        return Flash(_RETRYING + held, watch=watch.where())
    if succeeded:
        name = _SUCCEEDED.get(watch.text("of") or "")
        return Flash("Retry succeeded." if name is None else request.say(name))
    if delivery.attempt == after:
        return Flash(f"Not retried: the delivery is {delivery.state} now.", good=False)
    reason = (delivery.reason or delivery.code or "").rstrip(".")
    return Flash(f"Retry failed: {reason}. {_next_step(one, watch.text('of'))}".rstrip(), good=False)


def _next_step(one: Described, of: str | None) -> str:
    delivery = one.delivery
    if delivery.state in DEAD_STATES:
        return "It is back in the dead letters." if of == "letters" else "Moved to dead letters."
    if one.held:
        return one.held.reason
    return "" if one.next_retry_at is None else f"Next retry at {to_iso(one.next_retry_at)}."


def _of_bulk(request: PageRequest, bulk: Bulk) -> Flash:
    """The counts while the operation runs, and one sentence at its end."""
    refused = f" {amount(bulk.refused)} refused, because their state had changed." if bulk.refused else ""
    text = f"{bulk.kind.capitalize()} {bulk.state}: {bulk.progress}."
    if bulk.kind is BulkKind.RETRY and bulk.state in _BULK_RETRY:
        counts = {"succeeded": bulk.succeeded, "failed": bulk.failed, "total": bulk.total}
        text = request.say(_BULK_RETRY[bulk.state], **counts)
    if bulk.finished_at is None:
        return Flash(f"{text}{refused}", watch=watch_of(bulk))
    good = not bulk.failed and not bulk.refused and bulk.state is BulkState.FINISHED
    if bulk.kind in _BULK_DONE and bulk.state is BulkState.FINISHED:
        return Flash(f"{plural(bulk.succeeded, *_BULK_DONE[bulk.kind])}.{refused}", good=good)
    return Flash(f"{text}{refused}", good=good)
