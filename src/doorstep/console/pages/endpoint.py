"""One endpoint: how it fares over time and against its target, its circuit, its settings, what waits and what died."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from doorstep.clock import seconds
from doorstep.console.charts import RANGES, Charts
from doorstep.console.fields import one_of
from doorstep.console.formatting import lasting
from doorstep.console.page import Pages
from doorstep.console.policy_text import InForce, in_force, in_words
from doorstep.console.request import PageRequest
from doorstep.engine.directory import unseal_headers
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.listing import DeadLetterFilter, RetryQueueFilter
from doorstep.operations.endpoints import unexpired
from doorstep.policy.reports import WINDOWS, success_rate, time_to_delivery
from doorstep.schemas.endpoints import INPUTS

PAGES = Pages("/endpoints")
_RANGE = "24h"
_SOME = 5
"""Of the retry queue and the dead letters; the rest is a click away."""
_CHANGES = 12


@PAGES.get("/{endpoint_id}")
async def show(visit: PageRequest) -> Response:
    doorstep, org_id, endpoint_id = visit.doorstep, visit.org_id, visit.id("endpoint_id")
    endpoint = await doorstep.components.reader.endpoint(org_id, endpoint_id)
    range_name = visit.query.text("range") or _RANGE
    report = await doorstep.components.reporter.report(org_id, one_of("range", range_name, WINDOWS), endpoint_id)
    (standing,) = await doorstep.components.reporter.standings(org_id, [endpoint])
    charts = Charts(report)
    waiting = await doorstep.components.store.retry_queue(
        org_id, RetryQueueFilter(endpoint_id=endpoint_id), None, _SOME
    )
    dead = doorstep.components.reader.dated(DeadLetterFilter(endpoint_id=endpoint_id))
    letters = await doorstep.components.store.dead_letters(org_id, dead, None, _SOME)
    return visit.page(
        "endpoint.html",
        endpoint=endpoint,
        living=endpoint.state is not EndpointState.DELETED,
        range=range_name,
        ranges=RANGES,
        sum=report.sum,
        level=report.now,
        success=success_rate(report.sum),
        p95_seconds=time_to_delivery(report.sum, 0.95),
        charts=[charts.deliveries(), charts.times(), charts.success()],
        slo=standing.report,
        waiting_since=standing.waiting_since,
        circuit=await doorstep.components.reader.circuit(org_id, endpoint_id),
        changes=(await doorstep.components.reader.circuit_history(org_id, endpoint_id))[: -_CHANGES - 1 : -1],
        policies=[(one, in_words(one.policy)) for one in _policies(visit, endpoint)],
        settings=list(_settings(visit, endpoint)),
        secrets=unexpired(endpoint.secrets, visit.now),
        waiting=await doorstep.components.reader.described(org_id, waiting.items),
        letters=letters.items,
    )


def _policies(visit: PageRequest, endpoint: Endpoint) -> list[InForce]:
    tuning = visit.doorstep.components.tuning
    return in_force(endpoint, visit.doorstep.components.directory.org(visit.org_id), tuning.policy, tuning.retries_max)


def _settings(visit: PageRequest, endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    """What else was said about it, and what counts where nothing was."""
    for one in INPUTS:
        if one.shown and (text := getattr(endpoint, one.name)):
            yield one.label, text
    usual = visit.doorstep.settings
    timeout = endpoint.timeout_seconds or usual.timeout_seconds
    yield "One attempt takes at most", lasting(seconds(timeout)) + _usual(endpoint.timeout_seconds)
    yield "Attempts at once", "as many as go" if endpoint.concurrency_max is None else f"{endpoint.concurrency_max}"
    yield "Attempts a second", "as many as go" if endpoint.rate_per_second is None else f"{endpoint.rate_per_second:g}"
    yield "Circuit", _circuit_rules(endpoint)
    yield "Headers", ", ".join(unseal_headers(endpoint, visit.doorstep.components.sealer)) or "none of its own"
    if endpoint.retry_on:
        yield "Retried although permanent", "everything" if "*" in endpoint.retry_on else ", ".join(endpoint.retry_on)
    if endpoint.give_up_on:
        yield "Given up at once", ", ".join(endpoint.give_up_on)
    if endpoint.code_map:
        yield "Codes", ", ".join(f"{theirs} means {ours}" for theirs, ours in endpoint.code_map.items())
    yield "Body", "in an envelope: type, timestamp, data" if endpoint.envelope else "the payload as it was accepted"
    if endpoint.batch:
        yield "Batches", "what goes to it are batches"
    if endpoint.declared:
        yield "Declared", "by a program, which sets it again when its code says something else"


def _usual(value: object) -> str:
    return " (the installation’s)" if value is None else ""


def _circuit_rules(endpoint: Endpoint) -> str:
    rules = endpoint.circuit
    return (
        f"opens for {lasting(seconds(rules.open_seconds))} after {rules.failures_max} failures in a row; "
        f"disabled after {lasting(seconds(rules.disable_after_seconds))} without one success"
    )
