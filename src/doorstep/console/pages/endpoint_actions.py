"""Endpoints: create, edit, pause, resume, test, rotate the secret, delete, replay."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.clock import Instant
from doorstep.console.bulk_confirm import begun
from doorstep.console.confirm import one_time_id, reason_of, secret_shown
from doorstep.console.endpoint_form import OWN, changes_of, flawed_input, inputs_by_section, new_form, texts_of
from doorstep.console.fields import EVENT_FILTER, Fields
from doorstep.console.formatting import moment, plural
from doorstep.console.page import ACT, Pages
from doorstep.console.policy_text import in_words, span_text
from doorstep.console.request import PageRequest
from doorstep.console.selection import endpoint_of, of_events, place_of
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.bulk import BulkKind
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventStatus
from doorstep.operations.bulk import RATE_MAX, RATE_MIN
from doorstep.operations.endpoint_rules import EndpointForm, form_of
from doorstep.operations.endpoints import DRAIN_MAX, DRAIN_MIN
from doorstep.operations.events import TEST_EVENT, TEST_PAYLOAD
from doorstep.policy.retry import BUILT_IN

ACTION_PAGES = Pages("/endpoints/{endpoint_id}")
_OVERLAPS = {"0": "at once", "3600": "after 1 hour", "86400": "after 1 day", "604800": "after 7 days",
             "2592000": "after 30 days"}  # fmt: skip
"""For how many seconds an old secret goes on signing."""


# -- pausing and resuming ----------------------------------------------------------------------------------------


@ACTION_PAGES.get("/pause", ACT)
async def ask_pause(visit: PageRequest) -> Response:
    return _asked(visit, "endpoint_pause.html", await endpoint_of(visit))


@ACTION_PAGES.post("/pause")
async def pause(visit: PageRequest) -> Response:
    try:
        reason = reason_of(visit.form)
        endpoint = await visit.doorstep.components.endpoints.pause(
            visit.org_id, visit.id("endpoint_id"), visit.actor, reason
        )
    except InvalidInput as error:
        return _asked(visit, "endpoint_pause.html", await endpoint_of(visit), error)
    return visit.done(f"{endpoint.name} is paused.", place_of(endpoint))


@ACTION_PAGES.get("/resume", ACT)
async def ask_resume(visit: PageRequest) -> Response:
    return await _resuming(visit)


@ACTION_PAGES.post("/resume")
async def resume(visit: PageRequest) -> Response:
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


async def _resuming(visit: PageRequest, error: InvalidInput | None = None, before: Instant | None = None) -> Response:
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


@ACTION_PAGES.get("/test", ACT)
async def ask_test(visit: PageRequest) -> Response:
    given = Fields([("event_type", TEST_EVENT), ("payload", TEST_PAYLOAD.decode())])
    return _asked(visit, "endpoint_test.html", await endpoint_of(visit), given=given)


@ACTION_PAGES.post("/test")
async def test(visit: PageRequest) -> Response:
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


@ACTION_PAGES.get("/rotate", ACT)
async def ask_rotate(visit: PageRequest) -> Response:
    endpoint = await endpoint_of(visit)
    signing = endpoint.signing_secret
    scheme = "v1" if signing is None else signing.scheme
    return _asked(visit, "endpoint_rotate.html", endpoint, overlaps=_OVERLAPS, scheme=scheme)


@ACTION_PAGES.post("/rotate")
async def rotate(visit: PageRequest) -> Response:
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


@ACTION_PAGES.get("/delete", ACT)
async def ask_delete(visit: PageRequest) -> Response:
    return await _deleting(visit)


@ACTION_PAGES.post("/delete")
async def delete(visit: PageRequest) -> Response:
    endpoint = await endpoint_of(visit)
    try:
        reason = reason_of(visit.form, required=True)
        await visit.doorstep.components.endpoints.delete(visit.org_id, endpoint.endpoint_id, visit.actor, reason)
    except InvalidInput as error:
        return await _deleting(visit, error)
    return visit.done(f"{endpoint.name} was deleted.", "/console/endpoints")


async def _deleting(visit: PageRequest, error: InvalidInput | None = None) -> Response:
    endpoint = await endpoint_of(visit)
    return _asked(visit, "endpoint_delete.html", endpoint, error, open=await _open(visit, endpoint))


def _asked(
    visit: PageRequest,
    template: str,
    endpoint: Endpoint,
    error: InvalidInput | None = None,
    given: Fields | None = None,
    **context: object,
) -> Response:
    """With what is given to begin with, or what was entered."""
    entered = visit.form if given is None else given
    return visit.filled(template, entered, error, endpoint=endpoint, place=place_of(endpoint), **context)


async def _open(visit: PageRequest, endpoint: Endpoint) -> int:
    """How many deliveries wait for it, or are being tried."""
    key = endpoint.endpoint_id
    return (await visit.doorstep.components.store.levels(visit.org_id, [key]))[key].now_open


EDIT_PAGES = Pages("/endpoints")
_EMPTY = EndpointForm(name="")


@EDIT_PAGES.get("/new", ACT)
async def ask_new(visit: PageRequest) -> Response:
    return _form(visit, Fields(texts_of(_EMPTY).items()))


@EDIT_PAGES.post("/new")
async def create(visit: PageRequest) -> Response:
    try:
        endpoint, verifier = await visit.doorstep.components.endpoints.create(
            new_form(visit.form), visit.org_id, visit.actor
        )
    except (InvalidInput, Conflict) as error:
        return _form(visit, visit.form, error=error)
    return secret_shown(visit, endpoint, verifier)


@EDIT_PAGES.get("/{endpoint_id}/edit", ACT)
async def ask_edit(visit: PageRequest) -> Response:
    endpoint = await endpoint_of(visit)
    texts = texts_of(form_of(endpoint, visit.doorstep.components.sealer)) | {"version": str(endpoint.version)}
    return _form(visit, Fields(texts.items()), endpoint)


@EDIT_PAGES.post("/{endpoint_id}/edit")
async def edit(visit: PageRequest) -> Response:
    endpoint = await endpoint_of(visit)
    place = place_of(endpoint)
    try:
        version = visit.form.whole("version", 0, 2**62)
        changes = changes_of(visit.form, form_of(endpoint, visit.doorstep.components.sealer))
        if not changes:
            return visit.done("Nothing was changed.", place)
        await visit.doorstep.components.endpoints.update(
            visit.org_id, endpoint.endpoint_id, changes, visit.actor, version or 0
        )
    except (InvalidInput, Conflict) as error:
        return _form(visit, visit.form, endpoint, error)
    return visit.done(f"Changed: {', '.join(name.replace('_', ' ') for name in sorted(changes))}.", place)


def _form(
    visit: PageRequest, entered: Fields, endpoint: Endpoint | None = None, error: InvalidInput | Conflict | None = None
) -> Response:
    policies = BUILT_IN | {"standard": visit.doorstep.components.tuning.policy}
    return visit.filled(
        "endpoint_form.html",
        entered,
        error,
        endpoint=endpoint,
        sections=inputs_by_section(),
        flawed=flawed_input(error) if isinstance(error, InvalidInput) else "",
        policies=[*((name, f"{name}: {in_words(policy)}") for name, policy in policies.items()), (OWN, "own delays")],
        timeout=span_text(visit.doorstep.settings.timeout_seconds),
    )


REPLAY_PAGES = Pages("/endpoints/{endpoint_id}")


@REPLAY_PAGES.get("/replay", ACT)
async def ask(visit: PageRequest) -> Response:
    """Without a range, or to change it, it asks for one; with one it tells how many events that is."""
    if visit.query.flag("change") or not visit.query.flag("created_from"):
        return _range_asked(visit, await endpoint_of(visit), visit.query)
    return await _counted(visit, visit.query)


@REPLAY_PAGES.post("/replay")
async def replay(visit: PageRequest) -> Response:
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


async def _counted(visit: PageRequest, entered: Fields, error: InvalidInput | None = None) -> Response:
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


def _range_asked(
    visit: PageRequest, endpoint: Endpoint, entered: Fields, error: InvalidInput | None = None
) -> Response:
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
