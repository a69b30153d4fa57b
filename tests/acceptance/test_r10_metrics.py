"""R10.2: after any history, even with killed workers, each process exports the same figures as a recount."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.encryption import new_secret_key
from doorstep.model.rollup import TTD_SECONDS, Figures
from doorstep.stores.open import store_from_url
from doorstep.stores.store import Store
from tests.acceptance.history import History
from tests.support.program import Program, running, serving, wait_for
from tests.support.receiver import receiving
from tests.support.recounting import bounds, recount

T = TypeVar("T")
SEEDS = range(20) if os.environ.get("TORTURE") else range(2)
ROUNDS = 8
ACTS_MIN = 10
"""Of the sixteen operator actions, some find nothing to act on in a story."""


@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.full) for seed in SEEDS[1:])])
def test_each_process_tells_what_a_recount_of_the_rows_does_though_workers_were_killed(
    database_url: str, tmp_path: Path, seed: int
) -> None:
    with receiving() as receiver, installed(database_url, tmp_path) as (servers, start_worker):
        history = History(seed, servers, start_worker, receiver)
        history.enrol()
        told_of_alerts(servers[0], receiver.url)
        for _ in range(ROUNDS):
            history.go_on()
        history.end()
        figures = reading(database_url, lambda store: recount(store, DEFAULT_ORG, history.event_ids))
        expected = wanted(figures[None]) | at_rest(history.endpoints) | wanted_of_each(history.endpoints, figures)
        possible = reading(database_url, lambda store: bounds(store, DEFAULT_ORG, history.event_ids))
        for server in servers:
            wait_for(
                lambda told=server: agrees(scraped(told, expected), expected, possible),
                lambda: f"{difference(servers, expected)}, possible: {possible}",
            )
        assert len(history.done) >= ACTS_MIN, history.done
        assert expected["doorstep_attempts_total[('outcome', 'dead')]"]
        fewer = reading(database_url, lambda store: recount(store, DEFAULT_ORG, history.event_ids[1:]))
        assert wanted(fewer[None]) != wanted(figures[None]), "the recount notices a single event"
        told = scraped(servers[0], expected)
        counted = {name: int(told[f"doorstep_events_{name}_total"]) for name in possible}
        agrees_with_stats(servers[0], replace(figures[None], **counted))


def agrees(told: dict[str, float], expected: dict[str, float], possible: dict[str, tuple[int, int]]) -> bool:
    """Whether both are equal, apart from the commit order of overlapping writes, which the rows do not reveal."""
    within = {
        metric: value
        for name, (least, most) in possible.items()
        if least <= (value := told.get(metric := f"doorstep_events_{name}_total", -1)) <= most
    }
    return len(within) == len(possible) and told == expected | within


def told_of_alerts(server: Program, url: str) -> None:
    """Create a channel. Its messages are not an organization's events, so even if they fail, no metric counts them."""
    made = server.post("/v1/channels", {"name": "ops", "kind": "webhook", "target": url})
    assert made.status == 201, made.body


def agrees_with_stats(server: Program, whole: Figures) -> None:
    """Check that /v1/stats reports the same for every range, because everything has just happened."""
    for name in ("1h", "6h", "24h", "7d", "30d"):
        report = server.get(f"/v1/stats?range={name}").json["report"]
        summed = {kind: sum(values) for kind, values in report["series"]["events"].items()}
        assert summed == report["sum"]["events"] == {
            "created": whole.created, "delivered": whole.delivered, "failed": whole.failed
        }  # fmt: skip
        assert [one["deliveries"] for one in report["sum"]["retry_attempts"]] == list(whole.retries)
        assert [one["deliveries"] for one in report["sum"]["time_to_delivery_buckets"]] == list(whole.ttd)
        last = {status: values[-1] for status, values in report["series"]["statuses"].items()}
        assert last == {status: getattr(whole, f"now_{status}") for status in last}
        assert report["series"]["queue_depth"][-1] == whole.now_open
        assert report["series"]["dead_letters"][-1] == whole.now_dead


# -- the two sides ---------------------------------------------------------------------------------------------


def wanted(figures: Figures) -> dict[str, float]:
    """The figures by metric name."""
    told: dict[str, float] = {
        "doorstep_events_created_total": figures.created,
        "doorstep_events_delivered_total": figures.delivered,
        "doorstep_events_failed_total": figures.failed,
        "doorstep_events_received": figures.now_received,
        "doorstep_events_queued": figures.now_queued,
        "doorstep_queue_depth": figures.now_open,
        "doorstep_dead_letters": figures.now_dead,
        "doorstep_deliveries_dead_total": figures.dead,
        "doorstep_late_settles_total": figures.late,
        "doorstep_blocked_addresses_total": figures.blocked,
        "doorstep_attempts_total[('outcome', 'succeeded')]": figures.succeeded,
        "doorstep_attempts_total[('outcome', 'retry')]": figures.retried,
        "doorstep_attempts_total[('outcome', 'dead')]": figures.died,
        "doorstep_time_to_delivery_seconds_sum": figures.ttd_ms / 1_000,
    }
    for status in ("received", "queued", "delivered", "failed"):
        told[f"doorstep_events[('status', '{status}')]"] = getattr(figures, f"now_{status}")
    told |= _buckets("doorstep_time_to_delivery_seconds", TTD_SECONDS, figures.ttd)
    return told | _buckets("doorstep_retry_attempts", range(7), figures.retries)


def at_rest(endpoints: dict[str, str]) -> dict[str, float]:
    """The metrics of an idle system: nothing waits, and no circuit is open."""
    told: dict[str, float] = {"doorstep_oldest_due_seconds": 0, "doorstep_waiting_endpoints": 0}
    for state, count in (("closed", len(endpoints)), ("open", 0), ("half_open", 0)):
        told[f"doorstep_circuits[('state', '{state}')]"] = count
    return told


def wanted_of_each(endpoints: dict[str, str], figures: dict[UUID | None, Figures]) -> dict[str, float]:
    """The metrics of each endpoint that has had deliveries."""
    told: dict[str, float] = {}
    for name, endpoint_id in endpoints.items():
        if own := figures.get(UUID(endpoint_id)):
            labels = f"('endpoint', '{name}'), ('endpoint_id', '{endpoint_id}')"
            for outcome, count in (("succeeded", own.succeeded), ("retry", own.retried), ("dead", own.died)):
                told[f"doorstep_endpoint_attempts_total[{labels}, ('outcome', '{outcome}')]"] = count
            told[f"doorstep_endpoint_deliveries_dead_total[{labels}]"] = own.dead
            told[f"doorstep_endpoint_queue_depth[{labels}]"] = own.now_open
            told[f"doorstep_endpoint_dead_letters[{labels}]"] = own.now_dead
            told[f"doorstep_endpoint_circuit_open[{labels}]"] = 0
    assert told
    return told


def _buckets(name: str, bounds: Any, counts: tuple[int, ...]) -> dict[str, float]:
    words = [*(str(float(bound)) for bound in bounds), "+Inf"]
    return {f"{name}_bucket[('le', '{le}')]": upto for le, upto in zip(words, accumulate(counts), strict=True)}


def scraped(server: Program, names: dict[str, float]) -> dict[str, float]:
    text = server.get("/metrics", key=None).body.decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    told = {f"{one.name}{sorted(one.labels.items()) or ''}": one.value for one in samples}
    return {name: value for name, value in told.items() if name in names}


def difference(servers: list[Program], expected: dict[str, float]) -> str:
    told = [scraped(server, expected) for server in servers]
    return str(
        {
            name: (value, *(one.get(name) for one in told))
            for name, value in expected.items()
            if any(one.get(name) != value for one in told)
        }
    )


# -- the installation ------------------------------------------------------------------------------------------


@contextmanager
def installed(database_url: str, folder: Path) -> Iterator[tuple[list[Program], Callable[[], Program]]]:
    """Two servers and any number of workers on one database. Short leases return the claims of killed workers soon."""
    environment = {
        "DOORSTEP_DATABASE_URL": database_url,
        "DOORSTEP_SECRET_KEY": new_secret_key(),
        "DOORSTEP_LEASE_SECONDS": "3",
        "DOORSTEP_TIMEOUT_SECONDS": "1",
        "DOORSTEP_LOG_LEVEL": "error",
        "DOORSTEP_METRICS_ENDPOINTS": "10",
        "DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8",
    }
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(folder, environment=environment)) for _ in range(2)]
        yield servers, lambda: stack.enter_context(running("worker", folder=folder, environment=environment))


def reading(database_url: str, read: Callable[[Store], Awaitable[T]]) -> T:
    async def opened() -> T:
        store = store_from_url(database_url)
        await store.open()
        try:
            return await read(store)
        finally:
            await store.close()

    return asyncio.run(opened())
