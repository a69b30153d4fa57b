"""Metrics in CloudWatch's embedded metric format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from doorstep.clock import SECOND
from doorstep.telemetry.embedded_metrics import METRICS, EmbeddedMetrics
from doorstep.telemetry.facts import DeliveryTransition, StatusTransition

AT = "2026-11-19T12:00:00.000000Z"
ID = UUID(int=1)


def moved(old: str | None, new: str, retry_attempts: int = 0) -> StatusTransition:
    return StatusTransition(
        at=AT, event_id=ID, old_status=old, new_status=new, retry_attempts=retry_attempts, correlation_id="c", org_id=ID
    )


def delivered(seconds: float) -> DeliveryTransition:
    return DeliveryTransition(
        at=AT, delivery_id=ID, event_id=ID, endpoint_id=ID, old_state="in_progress", new_state="delivered", attempt=1,
        correlation_id="c", org_id=ID, time_to_delivery_seconds=seconds,
    )  # fmt: skip


def written(metrics: EmbeddedMetrics) -> list[dict[str, Any]]:
    return [json.loads(line) for line in metrics.lines(1_000 * SECOND).splitlines()]


def values(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name[0].isupper()}


def test_the_life_of_an_event_moves_it_from_status_to_status() -> None:
    metrics = EmbeddedMetrics("Doorstep", "triggers")
    sums: dict[str, float] = {}
    for step in (moved(None, "received"), moved("received", "queued"), moved("queued", "failed", 3)):
        metrics([step])
        (line,) = written(metrics)
        for name in ("EventsCreated", "EventsReceived", "EventsQueued", "EventsFailed"):
            sums[name] = sums.get(name, 0) + line.get(name, 0)
    assert sums == {"EventsCreated": 1, "EventsReceived": 0, "EventsQueued": 0, "EventsFailed": 1}
    assert (line["FailedPercent"], line["RetryAttempts"]) == ([100.0], [3])


def test_a_retried_event_is_queued_again_and_is_not_created_twice() -> None:
    metrics = EmbeddedMetrics("Doorstep", "triggers")
    metrics([moved("failed", "queued")])
    assert [values(line) for line in written(metrics)] == [{"EventsQueued": 1}]


def test_the_average_of_the_failed_percent_is_the_share_of_failed_events() -> None:
    metrics = EmbeddedMetrics("Doorstep", "triggers")
    metrics([moved("queued", "delivered")] * 19 + [moved("queued", "failed")])
    (line,) = written(metrics)
    assert sum(line["FailedPercent"]) / len(line["FailedPercent"]) == 5.0


def test_nothing_is_written_if_nothing_happened_and_nothing_twice() -> None:
    metrics = EmbeddedMetrics("Doorstep", "triggers")
    assert written(metrics) == []
    metrics.status_query(0.012)
    assert [values(line) for line in written(metrics)] == [{"StatusQueries": 1, "StatusQueryLatency": [12.0]}]
    assert written(metrics) == []


def test_more_values_than_cloudwatch_reads_from_a_line_go_into_several_and_none_is_lost() -> None:
    metrics = EmbeddedMetrics("Doorstep", "triggers")
    metrics([moved("queued", "delivered"), *(delivered(float(number)) for number in range(250))])
    lines = written(metrics)
    assert [len(line["TimeToDelivery"]) for line in lines] == [100, 100, 50]
    assert [value for line in lines for value in line["TimeToDelivery"]] == list(range(250))
    assert sum(line.get("EventsDelivered", 0) for line in lines) == 1


def test_a_line_names_its_metrics_its_service_and_its_time_as_cloudwatch_wants_them() -> None:
    metrics = EmbeddedMetrics("Ours", "triggers")
    metrics([moved(None, "received")])
    (line,) = written(metrics)
    assert (line["event"], line["service"]) == ("metrics", "triggers")
    assert line["_aws"] == {
        "Timestamp": 1_000_000,
        "CloudWatchMetrics": [
            {
                "Namespace": "Ours",
                "Dimensions": [["service"]],
                "Metrics": [{"Name": "EventsCreated", "Unit": "Count"}, {"Name": "EventsReceived", "Unit": "Count"}],
            }
        ],
    }


def test_the_page_lists_every_metric_with_its_unit() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "observability.md").read_text()
    table = page.split("### CloudWatch")[1].split("\n\n| metric")[1].split("\n\n")[0]
    listed: dict[str, str] = {}
    for row in table.splitlines()[2:]:
        _, names, units, *_ = (cell.strip() for cell in row.split("|"))
        unit_of_each = units.split(", ")
        for position, name in enumerate(names.split(", ")):
            listed[name.strip("`")] = unit_of_each[min(position, len(unit_of_each) - 1)]
    assert listed == {name: unit.lower() for name, unit in METRICS.items()}
