"""Snapshots: the store is queried at most once a second; if it does not answer, the last snapshot stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.endpoint import CircuitRules, CircuitState, Endpoint
from doorstep.operations.reader import Reader
from doorstep.operations.stats import Busiest, Sampler
from doorstep.telemetry.metrics import MEASURES, Distribution, Kind, Snapshot, Value
from tests.support.builders import an_endpoint, an_org
from tests.support.shortcuts import put
from tests.unit.engine.scene import Bench


def sampler(bench: Bench, endpoints_max: int = 0) -> Sampler:
    reading = Reader(bench.store, bench.directory, bench.clock, bench.tuning)
    return Sampler(bench.store, reading, bench.clock, Busiest(bench.store, bench.directory, endpoints_max))


def read(name: str, seen: Snapshot) -> Sequence[Value]:
    (measure,) = (one for one in MEASURES if one.name == name)
    values = measure.read(seen)
    return [value for value in values if isinstance(value, Value)]


async def test_however_many_ask_the_store_is_asked_once_a_second() -> None:
    bench = Bench()
    await bench.prepare()
    sampling = sampler(bench)
    await asyncio.gather(*(sampling.snapshot() for _ in range(20)))
    assert bench.failing.calls.count("circuit_counts") == 1
    bench.clock.advance(0.9)
    await sampling.snapshot()
    assert bench.failing.calls.count("circuit_counts") == 1
    bench.clock.advance(0.2)
    await sampling.snapshot()
    assert bench.failing.calls.count("circuit_counts") == 2


async def test_a_store_that_does_not_answer_leaves_the_last_snapshot_which_grows_old() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    sampling = sampler(bench)
    bench.failing.away = {"figures of the whole"}
    assert await sampling.snapshot() is None, "it has never answered"
    bench.failing.away = set()
    bench.clock.advance(1)
    seen = await sampling.snapshot()
    assert seen is not None and seen.taken_at == bench.clock.now()
    await bench.accept(endpoint)
    for verb in ("figures of the whole", "due_lanes", "circuit_counts", "find RoutingChanges"):
        bench.failing.away = {verb}
        bench.clock.advance(1)
        assert await sampling.snapshot() == seen
    bench.failing.away = set()
    bench.clock.advance(1)
    fresh = await sampling.snapshot()
    assert fresh is not None and fresh.totals.created == 1


async def test_a_snapshot_tells_what_waits_since_when_and_the_state_of_circuits() -> None:
    bench = Bench()
    one, _ = await bench.prepare(2)
    await bench.accept(one, 5)
    bench.clock.advance(7)
    seen = await sampler(bench).snapshot()
    assert seen is not None
    assert (seen.waiting_endpoints, seen.oldest_due_seconds, seen.totals.now_open) == (1, 7.0, 5)
    assert seen.circuits == {CircuitState.CLOSED: 2, CircuitState.OPEN: 0, CircuitState.HALF_OPEN: 0}
    assert seen.endpoints == (), "endpoints are told apart only if somebody asked for it"


async def test_what_channels_are_sent_is_told_by_itself_alone() -> None:
    """Users cannot list these messages or act on them, so the messages must not raise an alert."""
    bench = Bench()
    await bench.prepare(2)
    before = await sampler(bench).snapshot()
    await put(bench.store, an_org(org_id=OPERATIONS_ORG))
    channels = [an_endpoint(OPERATIONS_ORG, circuit=CircuitRules(failures_max=1)) for _ in range(2)]
    for channel in channels:
        await put(bench.store, channel, 0)
    await bench.directory.refresh()
    await bench.accept(channels[0], 3)
    await bench.deliver(404)
    await bench.accept(channels[1], 2)
    bench.clock.advance(1_000)
    seen = await sampler(bench).snapshot()
    assert before is not None and seen is not None
    assert seen._replace(messages=before.messages, taken_at=before.taken_at) == before
    assert (seen.messages.now_open, seen.messages.now_dead) == (2, 3)
    assert [(one.labels["state"], one.number) for one in read("doorstep_alert_messages", seen)] == [
        ("waiting", 2), ("dead", 3),
    ]  # fmt: skip


async def test_what_an_open_circuit_holds_is_not_overdue() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(circuit=CircuitRules(failures_max=1))
    await bench.accept(endpoint, 2, retries_max=2)
    await bench.deliver(503)
    bench.clock.advance(100)
    seen = await sampler(bench).snapshot()
    assert seen is not None
    assert seen.circuits[CircuitState.OPEN] == seen.waiting_endpoints == 1
    assert seen.oldest_due_seconds == 0


async def test_the_busiest_endpoints_are_told_apart_and_no_more_than_so_many() -> None:
    bench = Bench()
    endpoints = await bench.prepare(3)
    for count, endpoint in enumerate(endpoints, 1):
        await bench.accept(endpoint, count)
    seen = await sampler(bench, endpoints_max=2).snapshot()
    assert seen is not None
    assert [one.endpoint.endpoint_id for one in seen.endpoints] == [one.endpoint_id for one in endpoints[:0:-1]]


async def test_who_is_busiest_is_asked_once_a_minute_and_how_they_fare_each_time() -> None:
    bench = Bench()
    one, other = await bench.prepare(2)
    await bench.accept(one, 2)
    sampling = sampler(bench, endpoints_max=1)
    await sampling.snapshot()
    await bench.accept(other, 3)
    await bench.accept(one)
    bench.clock.advance(59)
    seen = await sampling.snapshot()
    assert seen is not None
    assert [(told.endpoint.endpoint_id, told.figures.deliveries) for told in seen.endpoints] == [(one.endpoint_id, 3)]
    await bench.accept(other)
    bench.clock.advance(1)
    seen = await sampling.snapshot()
    assert seen is not None and [told.endpoint.endpoint_id for told in seen.endpoints] == [other.endpoint_id]
    assert bench.failing.calls.count("find BusiestEndpoints") == 2


async def test_endpoints_that_cannot_be_read_are_left_out_and_cost_nothing_of_what_is_told_of_the_whole() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint)
    sampling = sampler(bench, endpoints_max=1)
    before = await sampling.snapshot()
    assert before is not None and len(before.endpoints) == 1
    await bench.accept(endpoint)
    for verb in ("figures of endpoints", "get_many Circuit", "find BusiestEndpoints"):
        bench.failing.away = {verb}
        bench.clock.advance(60)
        seen = await sampling.snapshot()
        assert seen is not None
        assert (seen.totals.created, seen.endpoints) == (2, ()), "what is old is not told as new"


async def test_a_store_that_does_not_answer_is_not_asked_for_endpoints_too() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint)
    bench.failing.away = {"figures of the whole"}
    assert await sampler(bench, endpoints_max=1).snapshot() is None
    assert "find BusiestEndpoints" not in bench.failing.calls


async def test_the_busiest_of_all_organizations_are_read_in_one_go() -> None:
    bench = Bench()
    endpoints: list[Endpoint] = []
    for _ in range(3):
        bench.org = an_org()
        endpoints += await bench.prepare(2)
    for endpoint in endpoints:
        await bench.accept(endpoint)
    assert len({one.org_id for one in endpoints}) == 3
    seen = await sampler(bench, endpoints_max=10).snapshot()
    assert seen is not None and [one.figures.deliveries for one in seen.endpoints] == [1] * 6
    assert [bench.failing.calls.count(verb) for verb in ("figures of endpoints", "get_many Circuit")] == [1, 1]


async def test_every_measure_can_be_read_and_its_labels_are_those_it_announces() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint)
    await bench.deliver()
    seen = await sampler(bench, endpoints_max=5).snapshot()
    assert seen is not None
    for measure in MEASURES:
        read = measure.read(seen)
        assert read and all(tuple(one.labels) == measure.labels for one in read)
        assert all(isinstance(one, Distribution) == (measure.kind is Kind.HISTOGRAM) for one in read)
        assert measure.name.endswith("_total") == (measure.kind is Kind.COUNTER)
        assert all(len(one.counts) == len(one.bounds) + 1 for one in read if isinstance(one, Distribution))
