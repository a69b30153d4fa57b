"""What is done to an endpoint: pausing, resuming, a test, a new secret, deleting. Each asks first."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.clock import Instant
from doorstep.console.choices import endpoint_of, place_of
from doorstep.console.confirming import reason_of
from doorstep.console.fields import Fields
from doorstep.console.page import ACT, Pages
from doorstep.console.shown_once import secret_shown
from doorstep.console.visit import Visit
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import Endpoint
from doorstep.path.registrar import DRAIN_MAX, DRAIN_MIN
from doorstep.path.steward import TEST_EVENT, TEST_PAYLOAD

PAGES = Pages("/endpoints/{endpoint_id}")
_OVERLAPS = {"0": "at once", "3600": "after 1 hour", "86400": "after 1 day", "604800": "after 7 days",
             "2592000": "after 30 days"}  # fmt: skip
"""For how many seconds an old secret goes on signing."""


# -- pausing and resuming ----------------------------------------------------------------------------------------


@PAGES.get("/pause", ACT)
async def ask_pause(visit: Visit) -> Response:
    return _asked(visit, "endpoint_pause.html", await endpoint_of(visit))


@PAGES.post("/pause")
async def pause(visit: Visit) -> Response:
    try:
        reason = reason_of(visit.form)
        endpoint = await visit.doorstep.components.endpoints.pause(
            visit.org_id, visit.id("endpoint_id"), visit.actor, reason
        )
    except InvalidInput as error:
        return _asked(visit, "endpoint_pause.html", await endpoint_of(visit), error)
    return visit.done(f"{endpoint.name} is paused.", place_of(endpoint))


@PAGES.get("/resume", ACT)
async def ask_resume(visit: Visit) -> Response:
    return await _resuming(visit)


@PAGES.post("/resume")
async def resume(visit: Visit) -> Response:
    try:
        rate, before = _way(visit.form)
        reason = reason_of(visit.form, required=before is not None)
        if before is not None and visit.form.text("counted") != visit.form.text("skip_older_than"):
            return await _resuming(visit, before=before)
        endpoint = await visit.doorstep.components.endpoints.resume(
            visit.org_id,
            visit.id("endpoint_id"),
            visit.actor,
            drain_per_second=rate,
            skip_older_than=before,
            reason=reason,
        )
    except InvalidInput as error:
        return await _resuming(visit, error)
    return visit.done(f"{endpoint.name} is active again.", place_of(endpoint))


async def _resuming(visit: Visit, error: InvalidInput | None = None, before: Instant | None = None) -> Response:
    """The question. Whoever has said that what was accepted before some instant is to be skipped is asked once more, with
    how many that are."""
    endpoint, store = await endpoint_of(visit), visit.doorstep.components.store
    key = endpoint.endpoint_id
    waiting = await store.waiting_since(visit.org_id, [key])
    return _asked(
        visit,
        "endpoint_resume.html",
        endpoint,
        error,
        open=await _open(visit, endpoint),
        waiting_since=waiting.get(key),
        skipped=None if before is None else await store.count_waiting(visit.org_id, key, before),
    )


def _way(form: Fields) -> tuple[float | None, Instant | None]:
    """How what has waited is to go: a rate, or what is too old. What belongs to another way than the chosen one was
    meant by somebody: it is not passed over."""
    way = form.text("way") or "all"
    if way not in ("all", "rate", "skip"):
        raise InvalidInput("way", "must be one of all, rate, skip")
    rate, before = form.number("drain_per_second", DRAIN_MIN, DRAIN_MAX), form.moment("skip_older_than")
    for field, value, its_way, missing in (
        ("drain_per_second", rate, "rate", "must say how many a second"),
        ("skip_older_than", before, "skip", "must say from when on deliveries are still wanted"),
    ):
        if way == its_way and value is None:
            raise InvalidInput(field, missing)
        if way != its_way and value is not None:
            raise InvalidInput(field, "is of a way that is not chosen; choose it, or leave this empty")
    return rate, before


# -- a test ------------------------------------------------------------------------------------------------------


@PAGES.get("/test", ACT)
async def ask_test(visit: Visit) -> Response:
    given = Fields([("event_type", TEST_EVENT), ("payload", TEST_PAYLOAD.decode())])
    return _asked(visit, "endpoint_test.html", await endpoint_of(visit), given=given)


@PAGES.post("/test")
async def test(visit: Visit) -> Response:
    payload = (visit.form.raw("payload") or "").replace("\r\n", "\n").encode()
    try:
        receipt = await visit.doorstep.components.events.test(
            visit.org_id,
            visit.id("endpoint_id"),
            visit.actor,
            visit.correlation_id,
            visit.form.text("event_type") or TEST_EVENT,
            payload or TEST_PAYLOAD,
        )
    except InvalidInput as error:
        return _asked(visit, "endpoint_test.html", await endpoint_of(visit), error)
    return visit.done("The test event was sent.", f"/console/events/{receipt.event_id}")


# -- a new secret ------------------------------------------------------------------------------------------------


@PAGES.get("/rotate", ACT)
async def ask_rotate(visit: Visit) -> Response:
    endpoint = await endpoint_of(visit)
    signing = endpoint.signing_secret
    scheme = "v1" if signing is None else signing.scheme
    return _asked(visit, "endpoint_rotate.html", endpoint, overlaps=_OVERLAPS, scheme=scheme)


@PAGES.post("/rotate")
async def rotate(visit: Visit) -> Response:
    overlap = visit.form.number("overlap_seconds", 0, max(map(float, _OVERLAPS)))
    rotated = await visit.doorstep.components.endpoints.rotate(
        visit.org_id,
        visit.id("endpoint_id"),
        visit.actor,
        86_400 if overlap is None else overlap,
        visit.form.text("signing"),
    )
    return secret_shown(visit, rotated.endpoint, rotated.verifier, rotated.old_expires_at)


# -- deleting ----------------------------------------------------------------------------------------------------


@PAGES.get("/delete", ACT)
async def ask_delete(visit: Visit) -> Response:
    return await _deleting(visit)


@PAGES.post("/delete")
async def delete(visit: Visit) -> Response:
    endpoint = await endpoint_of(visit)
    try:
        reason = reason_of(visit.form, required=True)
        await visit.doorstep.components.endpoints.delete(visit.org_id, endpoint.endpoint_id, visit.actor, reason)
    except InvalidInput as error:
        return await _deleting(visit, error)
    return visit.done(f"{endpoint.name} was deleted.", "/console/endpoints")


async def _deleting(visit: Visit, error: InvalidInput | None = None) -> Response:
    endpoint = await endpoint_of(visit)
    return _asked(visit, "endpoint_delete.html", endpoint, error, open=await _open(visit, endpoint))


def _asked(
    visit: Visit,
    template: str,
    endpoint: Endpoint,
    error: InvalidInput | None = None,
    given: Fields | None = None,
    **context: object,
) -> Response:
    """With what is given to begin with, or what was entered."""
    entered = visit.form if given is None else given
    return visit.filled(template, entered, error, endpoint=endpoint, place=place_of(endpoint), **context)


async def _open(visit: Visit, endpoint: Endpoint) -> int:
    """How many deliveries wait for it, or are being tried."""
    key = endpoint.endpoint_id
    return (await visit.doorstep.components.store.levels(visit.org_id, [key]))[key].now_open
