"""The MetricsExporter: one process at a time sends metrics, and each collector problem is reported once."""

from __future__ import annotations

from doorstep.operations.reader import Reader
from doorstep.operations.stats import Busiest, Sampler
from doorstep.services.exporters import MetricsExporter
from doorstep.telemetry.metrics import Snapshot
from tests.unit.engine.scene import Bench


class FakeExporter:
    interval_seconds = 60.0

    def __init__(self) -> None:
        self.seen: list[Snapshot] = []
        self.taken = True
        self.closed = False

    def export(self, seen: Snapshot) -> bool:
        self.seen.append(seen)
        return self.taken

    def close(self) -> None:
        self.closed = True


def a_meter(bench: Bench, exporter: FakeExporter, holder: str, warned: list[str]) -> MetricsExporter:
    reading = Reader(bench.store, bench.directory, bench.clock, bench.tuning)
    sampler = Sampler(bench.store, reading, bench.clock, Busiest(bench.store, bench.directory, 0))
    return MetricsExporter(bench.store, sampler, exporter, bench.clock, holder, warned.append)


async def test_of_two_only_the_one_that_holds_the_right_sends_until_it_leaves() -> None:
    bench = Bench()
    first, second = FakeExporter(), FakeExporter()
    one, other = a_meter(bench, first, "one", []), a_meter(bench, second, "other", [])
    for _ in range(3):
        assert await one.run_once() == await other.run_once() == 60.0
        bench.clock.advance(60)
    assert (len(first.seen), len(second.seen)) == (3, 0)
    await one.close()
    await other.run_once()
    assert first.closed and len(second.seen) == 1


async def test_if_the_one_that_sends_is_lost_another_goes_on_after_two_intervals() -> None:
    bench = Bench()
    lost, second = FakeExporter(), FakeExporter()
    await a_meter(bench, lost, "one", []).run_once()
    other = a_meter(bench, second, "other", [])
    bench.clock.advance(60)
    await other.run_once()
    assert second.seen == []
    bench.clock.advance(61)
    await other.run_once()
    assert len(second.seen) == 1


async def test_a_collector_that_refuses_is_told_of_once_each_time_that_it_begins() -> None:
    bench, exporter, warned = Bench(), FakeExporter(), []
    meter = a_meter(bench, exporter, "one", warned)
    for taken in (False, False, True, False):
        exporter.taken = taken
        await meter.run_once()
        bench.clock.advance(60)
    assert len(warned) == 2
