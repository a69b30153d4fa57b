"""Reports: figures from the roll-ups for a time range, for each endpoint, and compared with its target."""

from __future__ import annotations

import pytest

from doorstep.clock import SECOND
from doorstep.errors import InvalidInput, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.endpoint import CircuitState, Slo
from doorstep.model.listing import AuditFilter
from doorstep.operations import stats
from doorstep.operations.stats import Order, Reporter
from doorstep.policy.reports import WINDOWS, levels
from tests.support.builders import an_org, new_id
from tests.support.shortcuts import put
from tests.unit.engine.scene import Bench

HOUR_SECONDS = 3_600


def reporter(bench: Bench) -> Reporter:
    return Reporter(bench.store, bench.directory, bench.clock)


async def test_a_report_has_each_minute_in_its_place_and_the_level_at_its_end() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, 3)
    bench.clock.advance(120)
    await bench.deliver()
    report = await reporter(bench).report(bench.org.org_id, WINDOWS["1h"])
    assert report.steps["created"][-3:] == [3, 0, 0]
    assert report.steps["delivered"][-3:] == [0, 0, 3]
    assert levels(report.now.now_open, report.steps["now_open"])[-4:] == [0, 3, 3, 0]
    assert report.sum.created == 3 and report.now.now_delivered == 3


async def test_a_report_of_an_endpoint_has_nothing_of_the_others() -> None:
    bench = Bench()
    one, other = await bench.prepare(2)
    await bench.accept(one, 2)
    await bench.accept(other, 5)
    report = await reporter(bench).report(bench.org.org_id, WINDOWS["24h"], one.endpoint_id)
    assert report.sum.deliveries == report.now.now_open == 2
    with pytest.raises(NotFound):
        await reporter(bench).report(bench.org.org_id, WINDOWS["24h"], new_id())
    with pytest.raises(NotFound):
        await reporter(bench).report(an_org().org_id, WINDOWS["24h"], one.endpoint_id)


async def test_endpoints_are_sorted_page_by_page_and_those_without_a_value_come_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    few, many, idle = await bench.prepare(3)
    await bench.accept(few, 2)
    await bench.accept(many, 5)
    for _ in range(5):  # a round claims only a few deliveries of each endpoint
        await bench.deliver()
    reports, org_id = reporter(bench), bench.org.org_id

    async def order(by: str, *, descending: bool) -> list[object]:
        endpoints, complete = await reports.sortable(org_id)
        assert complete
        found, cursor = list[object](), None
        while True:
            order = Order(by, descending)
            page = await reports.sorted_page(org_id, WINDOWS["24h"], endpoints, order, cursor, 1)
            found += page.items
            if (cursor := page.next) is None:
                return found

    assert await order("attempts", descending=True) == [many, few, idle]
    assert await order("attempts", descending=False) == [idle, few, many]
    for by in stats.SORTS.keys() - {"attempts", "queue_depth", "dead_letters"}:
        for descending in (True, False):
            assert (await order(by, descending=descending))[-1] == idle, by
    monkeypatch.setattr(stats, "SORTED_MAX", 2)
    assert await reports.sortable(org_id) == ([few, many], False)
    assert await reports.sortable(org_id, lambda one: one != few) == ([many, idle], True)


async def test_what_is_older_than_the_range_is_not_in_it() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint)
    bench.clock.advance(2 * HOUR_SECONDS)
    await bench.accept(endpoint)
    made = {name: (await reporter(bench).report(bench.org.org_id, WINDOWS[name])).sum.created for name in WINDOWS}
    assert made == {"1h": 1, "6h": 2, "24h": 2, "7d": 2, "30d": 2}


async def test_the_health_of_an_endpoint_names_its_losses_its_circuit_and_its_oldest() -> None:
    bench = Bench()
    good, bad = await bench.prepare(2)
    accepted_at = bench.clock.now()
    await bench.accept(good)
    await bench.deliver()
    await bench.accept(bad, 6)
    await bench.deliver(503)
    await bench.deliver(503)
    await bench.deliver(503)
    page = await reporter(bench).health(bench.org.org_id, WINDOWS["1h"], None, 10)
    first, second = page.items
    assert (first.endpoint, second.endpoint) == (good, bad)
    assert (first.recent.succeeded, first.now.now_open, first.waiting_since) == (1, 0, None)
    assert first.circuit.state is CircuitState.CLOSED
    assert (second.recent.succeeded, second.now.now_open, second.waiting_since) == (0, 6, accepted_at)
    assert second.recent.retried >= 5 and second.circuit.state is CircuitState.OPEN


async def test_endpoints_are_judged_by_their_own_target_or_that_of_their_organization() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (strict,) = await bench.prepare(1, slo=Slo(success=0.999, p95_seconds=1))
    desk = reporter(bench)
    assert await desk.default_slo(bench.org.org_id) == Slo()
    await desk.set_default_slo(bench.org.org_id, Slo(success=0.9, p95_seconds=5), "ops")
    await bench.accept(endpoint)
    await bench.deliver(404)
    page = await desk.slo(bench.org.org_id, None, 10)
    assert [one.report.target.success for one in page.items] == [0.9, 0.999]
    assert page.items[0].report.burn == {"1h": pytest.approx(10), "6h": pytest.approx(10), "3d": pytest.approx(10)}
    assert not page.items[0].report.met and page.items[1].report.met
    bench.clock.advance(2 * HOUR_SECONDS)
    later = (await desk.slo(bench.org.org_id, None, 10)).items[0].report
    assert later.burn["1h"] is None and later.burn["6h"] == pytest.approx(10)
    assert strict.slo == Slo(success=0.999, p95_seconds=1)


async def test_a_new_default_is_audited_and_one_that_allows_no_loss_at_all_is_refused() -> None:
    bench = Bench()
    await bench.prepare()
    desk = reporter(bench)
    await desk.set_default_slo(bench.org.org_id, Slo(success=0.95, p95_seconds=5), "ops")
    lines: tuple[AuditEntry, ...] = (await bench.store.page(bench.org.org_id, AuditFilter())).items
    assert [(line.actor, line.action, line.result) for line in lines] == [
        ("ops", "slo.change", "success 0.95, p95 5 s, oldest 3600 s")
    ]
    for wrong in (
        Slo(success=1.0),
        Slo(success=0.2),
        Slo(p95_seconds=0),
        Slo(p95_seconds=3 * 86_400 + 1),
        Slo(oldest_seconds=0),
    ):
        with pytest.raises(InvalidInput):
            await desk.set_default_slo(bench.org.org_id, wrong, "ops")
    with pytest.raises(NotFound):
        await desk.set_default_slo(an_org().org_id, Slo(), "ops")
    assert "write AuditEntry" not in bench.failing.calls, "the line is kept with the change"


async def test_an_organization_that_was_just_made_has_a_target_too() -> None:
    bench = Bench()
    await bench.prepare()
    newcomer = an_org()
    await put(bench.store, newcomer)
    assert await reporter(bench).default_slo(newcomer.org_id) == Slo()


async def test_what_waits_longer_than_the_target_allows_misses_it_and_what_is_for_later_does_not_wait() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(1, slo=Slo(oldest_seconds=60))
    desk, later = reporter(bench), bench.clock.now() + 30 * SECOND
    await bench.accept(endpoint, due_at=later, deliver_at=later)

    async def standing() -> tuple[float | None, bool, int | None]:
        (one,) = (await desk.slo(bench.org.org_id, None, 10)).items
        return one.report.oldest_seconds, one.report.met, one.waiting_since

    assert await standing() == (None, True, None)
    bench.clock.advance(90)
    assert await standing() == (60.0, True, later)
    bench.clock.advance(1)
    assert await standing() == (61.0, False, later)
