"""Events of the past, sent to an endpoint again: which ones is asked first, then, told how many, whether."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.choices import endpoint_of, place_of
from doorstep.console.choosing import of_events
from doorstep.console.confirming import one_time_id, reason_of
from doorstep.console.fields import Fields
from doorstep.console.filters import EVENT_FILTER
from doorstep.console.page import ACT, Pages
from doorstep.console.questions import begun
from doorstep.console.visit import Visit
from doorstep.console.words import moment, plural
from doorstep.errors import InvalidInput
from doorstep.model.bulk import BulkKind
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventStatus
from doorstep.path.bulk import RATE_MAX, RATE_MIN

PAGES = Pages("/endpoints/{endpoint_id}")


@PAGES.get("/replay", ACT)
async def ask(visit: Visit) -> Response:
    """Without a range, or to change it, it asks for one; with one it tells how many events that is."""
    if visit.query.flag("change") or not visit.query.flag("created_from"):
        return _range_asked(visit, await endpoint_of(visit), visit.query)
    return await _counted(visit, visit.query)


@PAGES.post("/replay")
async def replay(visit: Visit) -> Response:
    now = visit.now
    try:
        bulk = await visit.doorstep.components.bulk.start(
            BulkKind.REPLAY,
            visit.org_id,
            of_events(visit.form, visit.now).selection,
            visit.actor,
            reason=reason_of(visit.form),
            rate_per_second=visit.form.number("rate", RATE_MIN, RATE_MAX),
            endpoint_id=visit.id("endpoint_id"),
            bulk_id=one_time_id(visit),
        )
    except InvalidInput as error:
        return await _counted(visit, visit.form, error)
    return begun(visit, bulk, now, f"Began to replay {plural(bulk.total, 'event')}.")


async def _counted(visit: Visit, entered: Fields, error: InvalidInput | None = None) -> Response:
    """What was counted is what is replayed: the range cannot be changed here any more."""
    endpoint = await endpoint_of(visit)
    try:
        chosen = of_events(entered, visit.now)
    except InvalidInput as wrong:
        return _range_asked(visit, endpoint, entered, wrong)
    preview = await visit.doorstep.components.bulk.preview(visit.org_id, chosen.selection, endpoint.endpoint_id)
    return visit.filled(
        "endpoint_replay.html",
        entered,
        error,
        endpoint=endpoint,
        place=place_of(endpoint),
        wanted=chosen.selection.events,
        chosen=chosen.fields,
        count=preview.count,
        once=one_time_id(visit),
    )


def _range_asked(visit: Visit, endpoint: Endpoint, entered: Fields, error: InvalidInput | None = None) -> Response:
    span = {
        "created_from": _for_input(entered, "created_from"),
        "created_before": _for_input(entered, "created_before") or moment(visit.now)[:16].replace(" ", "T"),
    }
    return visit.filled(
        "endpoint_replay_range.html",
        entered.only(*EVENT_FILTER).having(**span),
        error,
        endpoint=endpoint,
        place=place_of(endpoint),
        statuses=[(status, status) for status in EventStatus],
    )


def _for_input(entered: Fields, name: str) -> str:
    """As an input for a date and a time takes it: in UTC without saying so. One that cannot be read is asked again."""
    try:
        at = entered.moment(name)
    except InvalidInput:
        return ""
    return "" if at is None else moment(at).replace(" ", "T")
