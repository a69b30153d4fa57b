"""Reports on events, on endpoints and on overall health: over HTTP, in the Python client and in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from doorstep.client import Client, Invalid
from tests.support.commands import Remote
from tests.support.program import ADMIN_KEY, Program, serving, wait_for
from tests.support.receiver import receiving

LENGTHS = {"1h": (60, 60), "6h": (360, 60), "24h": (1_440, 60), "7d": (168, 3_600), "30d": (720, 3_600)}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A program with a history: three events delivered to `good`, and two that failed at `bad`."""
    with serving(tmp_path_factory.mktemp("reports")) as it, receiving() as good, receiving() as bad:
        bad.status = 404
        for name, receiver in (("good", good), ("bad", bad)):
            it.post("/v1/endpoints", {"name": name, "url": receiver.url, "event_types": [name]})
        for kind in ("good", "good", "good", "bad", "bad"):
            it.post("/v1/events", {"event_type": kind, "payload": 1})
        wait_for(lambda: ended(it) == {"created": 5, "delivered": 3, "failed": 2})
        yield it


def ended(program: Program) -> Any:
    return program.get("/v1/stats?range=1h").json["report"]["sum"]["events"]


def endpoint_named(program: Program, name: str) -> str:
    return next(one["endpoint_id"] for one in program.get("/v1/endpoints").json["endpoints"] if one["name"] == name)


@pytest.mark.parametrize("name", LENGTHS)
def test_a_report_has_a_number_for_each_step_of_its_range(program: Program, name: str) -> None:
    report = program.get(f"/v1/stats?range={name}").json["report"]
    steps, seconds = LENGTHS[name]
    assert report["range"] == name and report["step_seconds"] == seconds
    assert {len(one) for one in arrays(report["series"])} == {steps}
    assert [sum(values) for values in report["series"]["events"].values()] == [5, 3, 2]
    assert report["sum"]["success_rate"] == 0.6 and report["sum"]["failed_rate"] == 0.4
    assert report["series"]["statuses"]["failed"][-1] == report["series"]["dead_letters"][-1] == 2
    assert 0 < report["sum"]["time_to_delivery"]["p50"] <= report["sum"]["time_to_delivery"]["p99"]
    assert 0 < report["sum"]["response_time"]["p50"] <= report["sum"]["response_time"]["p99"]
    assert sum(one is not None for one in report["series"]["response_time"]["p95"]) in (1, 2)


def arrays(series: Any) -> Iterator[list[Any]]:
    if isinstance(series, list):
        yield series
    else:
        for one in series.values():
            yield from arrays(one)


def test_a_report_of_one_endpoint_has_its_deliveries_and_no_events(program: Program) -> None:
    report = program.get(f"/v1/stats?range=1h&endpoint_id={endpoint_named(program, 'bad')}").json["report"]
    assert report["sum"]["deliveries"] == {"created": 2, "delivered": 0, "dead": 2}
    assert report["sum"]["events"] is None and report["series"]["events"] is None


def test_without_a_range_the_answer_is_what_it_always_was(program: Program) -> None:
    answer = program.get("/v1/stats").json
    assert answer["deliveries"]["dead"] == 2 and answer["report"] is None


def test_of_an_endpoint_the_last_day_is_told_unless_a_range_is_named(program: Program) -> None:
    endpoint_id = endpoint_named(program, "bad")
    report = program.get(f"/v1/stats?endpoint_id={endpoint_id}").json["report"]
    assert report["range"] == "24h"
    assert report["sum"] == program.get(f"/v1/stats?endpoint_id={endpoint_id}&range=24h").json["report"]["sum"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("range=2h", 422),
        ("endpoint_id=nobody&range=1h", 422),
        (f"endpoint_id={uuid4()}", 404),
        (f"endpoint_id={uuid4()}&range=1h", 404),
    ],
    ids=["unknown range", "no id", "unknown endpoint", "unknown endpoint with a range"],
)
def test_what_cannot_be_meant_is_refused(program: Program, query: str, status: int) -> None:
    assert program.get(f"/v1/stats?{query}").status == status


def test_the_client_reads_reports_health_and_targets(program: Program) -> None:
    with Client(program.url, key=ADMIN_KEY) as client:
        report = client.stats("24h").report
        assert report is not None and sum(report.series.deliveries["delivered"]) == 3
        health = {one.name: one for one in client.endpoints.each_health(range="1h")}
        assert (health["good"].success_rate, health["bad"].success_rate) == (1.0, 0.0)
        assert health["bad"].dead_letters == 2 and health["good"].circuit == "closed"
        met = {one.name: one.met for one in client.slo.each()}
        assert met == {"good": True, "bad": False}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("sort=success_rate", ["good", "bad"]),
        ("sort=success_rate&order=asc", ["bad", "good"]),
        ("sort=dead_letters", ["bad", "good"]),
        ("sort=attempts&order=asc", ["bad", "good"]),
        ("sort=name&order=asc", ["bad", "good"]),
        ("sort=time_to_delivery&order=asc", ["good", "bad"]),
    ],
)
def test_the_health_of_endpoints_is_sorted_over_all_pages(program: Program, query: str, names: list[str]) -> None:
    first = program.get(f"/v1/stats/endpoints?range=1h&limit=1&{query}").json
    assert first["pagination"]["has_more"] and first["pagination"]["sort_complete"]
    rest = program.get(f"/v1/stats/endpoints?range=1h&cursor={first['pagination']['cursor']}&{query}").json
    assert [one["name"] for one in first["endpoints"] + rest["endpoints"]] == names


def test_a_failed_attempt_has_a_response_time_but_no_time_to_delivery(program: Program) -> None:
    health = {one["name"]: one for one in program.get("/v1/stats/endpoints").json["endpoints"]}
    assert health["bad"]["time_to_delivery"]["p95"] is None
    assert health["bad"]["response_time"]["p95"] > 0 and health["bad"]["response_time"]["mean"] > 0
    assert program.get("/v1/stats/endpoints?sort=nothing").status == 422


def test_an_endpoint_is_judged_by_its_own_target_and_the_others_by_the_default(program: Program) -> None:
    with Client(program.url, key=ADMIN_KEY) as client:
        good, bad = endpoint_named(program, "good"), endpoint_named(program, "bad")
        assert client.endpoints.change(bad, slo={"success": 0.5, "p95_seconds": 5}).slo is not None
        assert client.slo.set_default(success=0.9, p95_seconds=30).success == 0.9
        targets = {one.endpoint_id: one for one in client.slo.each()}
        assert {str(key): one.target.success for key, one in targets.items()} == {good: 0.9, bad: 0.5}
        lost = next(one for one in targets.values() if str(one.endpoint_id) == bad)
        assert dict(lost.burn) == {"one_hour": 2.0, "six_hours": 2.0, "three_days": 2.0} and lost.budget_left == -1.0
        assert client.endpoints.change(bad, slo=None).slo is None
        with pytest.raises(Invalid, match="success"):
            client.slo.set_default(success=1.0)
        assert client.slo.default().p95_seconds == 30
        assert client.slo.set_default(oldest_seconds=120).oldest_seconds == 120


def test_a_terminal_shows_charts_health_and_targets(program: Program, tmp_path: Path) -> None:
    remote = Remote(program)
    shown = remote("stats", "--range", "1h")
    assert shown.code == 0 and "▁" in shown.out and "█" in shown.out
    assert "events created" in shown.out and "60 %" in shown.out and "p95" in shown.out
    assert remote("stats", "--range", "30d", "--endpoint", "bad").code == 0
    health = remote("endpoints", "health")
    assert "good" in health.out and "100 %" in health.out and "bad" in health.out
    assert [one["name"] for one in remote.json("endpoints", "health", "--sort", "dead_letters")["endpoints"]] == [
        "bad", "good"
    ]  # fmt: skip
    assert remote("endpoints", "update", "good", "--slo", "99.9%,30s,2h").code == 0
    spans = {"p95_seconds": 300.0, "oldest_seconds": 600.0}
    assert remote.json("slo", "set-default", "99%", "5m", "10m") == {"success": 0.99, **spans}
    assert remote.json("slo", "set-default", "99%", "5m")["oldest_seconds"] == 3600.0
    targets = remote("slo", "list")
    assert "99.9 %" in targets.out and "30 s" in targets.out and "of 2 h" in targets.out
    assert remote.json("slo", "default")["p95_seconds"] == 300.0
    assert remote("endpoints", "update", "good", "--slo", "99.9%").code == 2
    assert remote("endpoints", "update", "good", "--reset", "slo").code == 0
