"""One endpoint: its figures, circuit and settings. Also the forms to create, edit, pause, resume, test and delete
endpoints, to rotate their secrets and to replay events to them."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from doorstep.clock import Instant, moment, seconds
from doorstep.console.charts import RANGES, Charts
from doorstep.console.confirm import endpoint_of, of_events, one_time_id, place_of, reason_of, start_bulk
from doorstep.console.endpoint_form import (
    OWN,
    changes_of,
    flawed_input,
    in_force,
    in_words,
    inputs_by_section,
    new_form,
    texts_of,
)
from doorstep.console.fields import EVENT_FILTER, Fields, one_of
from doorstep.console.formatting import lasting, span_text
from doorstep.console.request import FormError, PageRequest, Pages
from doorstep.engine.directory import unseal_headers
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.bulk import BulkKind
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.event import EventStatus
from doorstep.model.listing import DeadLetterFilter, RetryQueueFilter
from doorstep.operations.actions import TEST_EVENT, TEST_PAYLOAD
from doorstep.operations.endpoint_rules import EndpointForm, form_of
from doorstep.operations.endpoints import DRAIN_MAX, DRAIN_MIN, unexpired
from doorstep.policy.reports import WINDOWS, response_time, success_rate, time_to_delivery
from doorstep.policy.retry import BUILT_IN
from doorstep.schemas.endpoints import DESTINATIONS, INPUTS

PAGES = Pages("/endpoints/{endpoint_id}")
FORM_PAGES = Pages("/endpoints")
_RANGE = "24h"
_SOME = 5
"""The number of rows shown from the retry queue and from the dead letters. The page links to the full lists."""
_CHANGES = 12
_OVERLAPS = {"0": "immediately", "3600": "after 1 hour", "86400": "after 1 day", "604800": "after 7 days",
             "2592000": "after 30 days"}  # fmt: skip
"""The choices, in seconds, for how long requests are still signed with the old secret after a rotation."""


@PAGES.get()
async def show(request: PageRequest) -> Response:
    reader, reporter = request.reader, request.components.reporter
    org_id, endpoint_id = request.org_id, request.id("endpoint_id")
    endpoint = await reader.endpoint(org_id, endpoint_id)
    range_name = request.query.text("range") or _RANGE
    report = await reporter.report(org_id, one_of("range", range_name, WINDOWS), endpoint_id)
    (standing,) = await reporter.service_levels(org_id, [endpoint])
    charts, tuning = Charts(report), request.components.tuning
    org = request.components.directory.org(org_id)
    policies = in_force(endpoint, org, tuning.policy, tuning.retries_max)
    waiting = await reader.retry_queue_page(org_id, RetryQueueFilter(endpoint_id=endpoint_id), None, _SOME)
    letters = await reader.dead_letter_page(org_id, DeadLetterFilter(endpoint_id=endpoint_id), None, _SOME)
    return request.page(
        "endpoint.html",
        endpoint=endpoint,
        living=endpoint.state is not EndpointState.DELETED,
        range=range_name,
        ranges=RANGES,
        sum=report.sum,
        level=report.now,
        success=success_rate(report.sum),
        p95_seconds=time_to_delivery(report.sum, 0.95),
        response_seconds=[response_time(report.sum, rank) for rank in (0.5, 0.95, 0.99)],
        charts=[charts.deliveries(), charts.responses(), charts.times(), charts.success()],
        slo=standing.report,
        waiting_since=standing.waiting_since,
        circuit=await reader.circuit(org_id, endpoint_id),
        changes=(await reader.circuit_history(org_id, endpoint_id))[: -_CHANGES - 1 : -1],
        policies=[(one, in_words(one.policy)) for one in policies],
        settings=list(_settings(request, endpoint)),
        secrets=unexpired(endpoint.secrets, request.now),
        waiting=await reader.described(org_id, waiting.items),
        letters=letters.items,
    )


def _settings(request: PageRequest, endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    """The endpoint's other settings. If a setting has no value, the default that applies is shown."""
    for one in INPUTS:
        if one.shown and (text := getattr(endpoint, one.name)):
            yield one.label, text
    timeout = endpoint.timeout_seconds or request.doorstep.settings.timeout_seconds
    default = " (installation default)" if endpoint.timeout_seconds is None else ""
    yield "Attempt timeout", lasting(seconds(timeout)) + default
    yield "Concurrent attempts", "Unlimited" if endpoint.concurrency_max is None else f"{endpoint.concurrency_max}"
    yield "Attempts per second", "Unlimited" if endpoint.rate_per_second is None else f"{endpoint.rate_per_second:g}"
    yield "Circuit", _circuit_rules(endpoint)
    yield "Headers", ", ".join(unseal_headers(endpoint, request.components.sealer)) or "none"
    if endpoint.retry_on:
        errors = "all permanent errors" if "*" in endpoint.retry_on else ", ".join(endpoint.retry_on)
        yield "Also retries", errors
    if endpoint.give_up_on:
        yield "Never retries on", ", ".join(endpoint.give_up_on)
    if endpoint.code_map:
        yield "Error codes", ", ".join(f"{theirs} means {ours}" for theirs, ours in endpoint.code_map.items())
    yield "Body", "in an envelope: type, timestamp, data" if endpoint.envelope else "the payload as it was accepted"
    if endpoint.batch:
        yield "Batches", "receives batches"
    if endpoint.declared:
        yield "Declared", "by a program, which updates it when its code changes"


def _circuit_rules(endpoint: Endpoint) -> str:
    rules = endpoint.circuit
    if not rules.enabled:
        return f"never opens; disabled after {lasting(seconds(rules.disable_after_seconds))} without a success"
    first, last = lasting(seconds(rules.probe_seconds_min)), lasting(seconds(rules.open_seconds))
    return (
        f"opens after {rules.failures_max} failures in a row; probes every {last if first == last else f'{first} to {last}'}; "
        f"disabled after {lasting(seconds(rules.disable_after_seconds))} without a success"
    )


# -- creating and editing --------------------------------------------------------------------------------------


async def _new_form(request: PageRequest, error: FormError | None) -> Response:
    return _settings_form(request, error, Fields(texts_of(EndpointForm(name="")).items()))


@FORM_PAGES.form("/new", _new_form, shows=(InvalidInput, Conflict))
async def create(request: PageRequest) -> Response:
    form = new_form(request.form)
    endpoint, verifier = await request.components.endpoints.create(form, request.org_id, request.actor)
    return _secret_page(request, endpoint, verifier)


async def _edit_form(request: PageRequest, error: FormError | None) -> Response:
    endpoint = await endpoint_of(request)
    texts = texts_of(form_of(endpoint, request.components.sealer)) | {"version": str(endpoint.version)}
    return _settings_form(request, error, Fields(texts.items()), endpoint)


@FORM_PAGES.form("/{endpoint_id}/edit", _edit_form, shows=(InvalidInput, Conflict))
async def edit(request: PageRequest) -> Response:
    endpoint = await endpoint_of(request)
    version = request.form.whole("version", 0, 2**62) or 0
    changes = changes_of(request.form, form_of(endpoint, request.components.sealer))
    if not changes:
        return request.done("Nothing was changed.", place_of(endpoint))
    endpoint_id = endpoint.endpoint_id
    await request.components.endpoints.update(request.org_id, endpoint_id, changes, request.actor, version)
    names = ", ".join(name.replace("_", " ") for name in sorted(changes))
    return request.done(f"Changed: {names}.", place_of(endpoint))


def _settings_form(
    request: PageRequest, error: FormError | None, entered: Fields, endpoint: Endpoint | None = None
) -> Response:
    policies = BUILT_IN | {"standard": request.components.tuning.policy}
    return request.form_page(
        "endpoint_form.html",
        error,
        entered,
        endpoint=endpoint,
        sections=inputs_by_section(),
        destinations=DESTINATIONS,
        flawed=flawed_input(error) if isinstance(error, InvalidInput) else "",
        policies=[*((name, f"{name}: {in_words(policy)}") for name, policy in policies.items()), (OWN, "own delays")],
        timeout=span_text(request.doorstep.settings.timeout_seconds),
    )


# -- pausing and resuming --------------------------------------------------------------------------------------


async def _form(
    request: PageRequest, template: str, error: FormError | None, entered: Fields | None = None, **context: object
) -> Response:
    endpoint = await endpoint_of(request)
    return request.form_page(template, error, entered, endpoint=endpoint, place=place_of(endpoint), **context)


@PAGES.form("/pause", lambda request, error: _form(request, "endpoint_pause.html", error))
async def pause(request: PageRequest) -> Response:
    reason = reason_of(request.form)
    endpoint = await request.components.endpoints.pause(
        request.org_id, request.id("endpoint_id"), request.actor, reason
    )
    return request.done(f"{endpoint.name} is paused.", place_of(endpoint))


async def _resume_form(request: PageRequest, error: FormError | None, before: Instant | None = None) -> Response:
    """With `before`, the form also shows how many older deliveries would be skipped, and asks for confirmation."""
    components, org_id, endpoint_id = request.components, request.org_id, request.id("endpoint_id")
    await endpoint_of(request)
    backlog = await components.reporter.backlog_of(org_id, endpoint_id)
    skipped = None if before is None else await components.endpoints.count_skipped(org_id, endpoint_id, before)
    return await _form(request, "endpoint_resume.html", error, backlog=backlog, skipped=skipped)


@PAGES.form("/resume", _resume_form)
async def resume(request: PageRequest) -> Response:
    rate, before = _backlog_choice(request.form)
    reason = reason_of(request.form, required=before is not None)
    if before is not None and request.form.text("counted") != request.form.text("skip_older_than"):
        return await _resume_form(request, None, before)
    endpoint = await request.components.endpoints.resume(
        request.org_id,
        request.id("endpoint_id"),
        request.actor,
        drain_per_second=rate,
        skip_older_than=before,
        reason=reason,
    )
    return request.done(f"{endpoint.name} is active again.", place_of(endpoint))


def _backlog_choice(form: Fields) -> tuple[float | None, Instant | None]:
    """How to deliver the backlog: the rate, or the time before which deliveries are skipped. Both are None to deliver
    everything without a limit. A value for an option that is not chosen is an error, because the user probably meant to
    choose that option."""
    way = form.text("way") or "all"
    if way not in ("all", "rate", "skip"):
        raise InvalidInput("way", "must be one of all, rate, skip")
    rate, before = form.number("drain_per_second", DRAIN_MIN, DRAIN_MAX), form.moment("skip_older_than")
    for field, value, its_way in (("drain_per_second", rate, "rate"), ("skip_older_than", before, "skip")):
        if way == its_way and value is None:
            raise InvalidInput(field, "must be given for the chosen option")
        if way != its_way and value is not None:
            raise InvalidInput(field, "belongs to an option that is not chosen; choose it, or leave this empty")
    return rate, before


# -- test, secret, delete --------------------------------------------------------------------------------------


async def _test_form(request: PageRequest, error: FormError | None) -> Response:
    example = Fields([("event_type", TEST_EVENT), ("payload", TEST_PAYLOAD.decode())])
    return await _form(request, "endpoint_test.html", error, example)


@PAGES.form("/test", _test_form)
async def test(request: PageRequest) -> Response:
    payload = (request.form.raw("payload") or "").replace("\r\n", "\n").encode()
    receipt = await request.components.events.test(
        request.org_id,
        request.id("endpoint_id"),
        request.actor,
        request.correlation_id,
        request.form.text("event_type") or TEST_EVENT,
        payload or TEST_PAYLOAD,
    )
    return request.done("The test event was sent.", f"/console/events/{receipt.event_id}")


async def _rotate_form(request: PageRequest, error: FormError | None) -> Response:
    scheme = _scheme(await endpoint_of(request))
    return await _form(request, "endpoint_rotate.html", error, overlaps=_OVERLAPS, scheme=scheme)


@PAGES.form("/rotate", _rotate_form)
async def rotate(request: PageRequest) -> Response:
    overlap = request.form.number("overlap_seconds", 0, max(map(float, _OVERLAPS)))
    rotated = await request.components.endpoints.rotate(
        request.org_id,
        request.id("endpoint_id"),
        request.actor,
        86_400 if overlap is None else overlap,
        request.form.text("signing"),
        request.form.text("secret"),
    )
    return _secret_page(request, rotated.endpoint, rotated.verifier, rotated.old_expires_at)


def _secret_page(
    request: PageRequest, endpoint: Endpoint, verifier: str, old_expires_at: Instant | None = None
) -> Response:
    """The shared secret, or the public key, with which the endpoint's receiver verifies signatures."""
    return request.page(
        "endpoint_secret.html",
        secret=verifier,
        place=place_of(endpoint),
        endpoint=endpoint,
        shared=_scheme(endpoint) == "v1",
        rotated=endpoint.version > 1,
        old_expires_at=old_expires_at,
    )


def _scheme(endpoint: Endpoint) -> str:
    return "v1" if endpoint.signing_secret is None else endpoint.signing_secret.scheme


async def _delete_form(request: PageRequest, error: FormError | None) -> Response:
    endpoint = await endpoint_of(request)
    backlog = await request.components.reporter.backlog_of(request.org_id, endpoint.endpoint_id)
    return await _form(request, "endpoint_delete.html", error, open=backlog.open)


@PAGES.form("/delete", _delete_form)
async def delete(request: PageRequest) -> Response:
    endpoint, reason = await endpoint_of(request), reason_of(request.form, required=True)
    await request.components.endpoints.delete(request.org_id, endpoint.endpoint_id, request.actor, reason)
    return request.done(f"{endpoint.name} was deleted.", "/console/endpoints")


# -- replaying a time range ------------------------------------------------------------------------------------


async def _replay_form(request: PageRequest, error: FormError | None) -> Response:
    """Ask for a time range if there is none, or if the user wants to change it. Otherwise, count the events in the
    range and fix its ends, so that exactly the counted events are replayed."""
    entered = request.sent
    if not request.is_post and (entered.flag("change") or not entered.flag("created_from")):
        return await _range_form(request, entered)
    try:
        chosen = of_events(entered, request.now)
    except InvalidInput as wrong_range:
        return await _range_form(request, entered, wrong_range)
    preview = await request.components.bulk.preview(request.org_id, chosen.selection, request.id("endpoint_id"))
    return await _form(
        request,
        "endpoint_replay.html",
        error,
        entered,
        filter=chosen.selection.events,
        chosen=chosen.fields,
        count=preview.count,
        once=one_time_id(request),
    )


@PAGES.form("/replay", _replay_form)
async def replay(request: PageRequest) -> Response:
    selection, reason = of_events(request.form, request.now).selection, reason_of(request.form)
    return await start_bulk(request, BulkKind.REPLAY, selection, reason, request.id("endpoint_id"))


async def _range_form(request: PageRequest, entered: Fields, error: InvalidInput | None = None) -> Response:
    span = {
        "created_from": entered.for_input("created_from"),
        "created_before": entered.for_input("created_before") or moment(request.now)[:16].replace(" ", "T"),
    }
    endpoint = await endpoint_of(request)
    return request.page(
        "endpoint_replay_range.html",
        422 if error else 200,
        entered=entered.only(*EVENT_FILTER).having(**span),
        error=error,
        endpoint=endpoint,
        place=place_of(endpoint),
        statuses=[(status, status) for status in EventStatus],
    )
