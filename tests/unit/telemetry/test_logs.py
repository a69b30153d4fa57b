"""How facts are written to the log, as text and as JSON."""

from __future__ import annotations

import json
import logging
import time
from uuid import UUID

import pytest

from doorstep.telemetry.facts import (
    CircuitTransition,
    DeliveryFailure,
    DeliveryTransition,
    EndpointDisabled,
    EntityTransition,
    Fact,
    LateSettle,
    Notice,
    RetryScheduled,
    ServiceTrouble,
    StatusTransition,
    json_lines,
    text_format,
)
from doorstep.telemetry.logs import NoticeHandler

AT = "2023-11-14T22:13:20.000042Z"
LATER = "2023-11-14T22:14:20.000042Z"
EVENT, DELIVERY, ENDPOINT, ORG = (UUID(int=number) for number in range(1, 5))


def transition(**changes: object) -> StatusTransition:
    given: dict[str, object] = {
        "at": AT, "event_id": EVENT, "old_status": "received", "new_status": "queued", "retry_attempts": 0,
        "correlation_id": "corr-1", "org_id": ORG,
    }  # fmt: skip
    return StatusTransition(**given | changes)  # type: ignore[arg-type]


def failure(next_retry_at: str | None) -> DeliveryFailure:
    return DeliveryFailure(
        at=AT, level="warning" if next_retry_at else "error", event_id=EVENT, delivery_id=DELIVERY,
        endpoint_id=ENDPOINT, retry_attempts=1,
        error={"category": "transient", "code": "TIMEOUT", "response_code": None, "attempt_count": 2},
        error_reason="The receiver did not answer in time", next_retry_at=next_retry_at,
        correlation_id="corr-1", org_id=ORG,
    )  # fmt: skip


def lines(*facts: Fact) -> list[dict[str, object]]:
    return [json.loads(line) for line in json_lines(facts).splitlines()]


def test_a_status_transition_has_exactly_the_promised_fields() -> None:
    assert lines(transition()) == [
        {
            "@timestamp": AT,
            "service": "doorstep",
            "event": "status_transition",
            "event_id": str(EVENT),
            "old_status": "received",
            "new_status": "queued",
            "retry_attempts": 0,
            "correlation_id": "corr-1",
            "org_id": str(ORG),
        }
    ]


def test_a_failure_tells_its_error_its_count_and_when_it_is_tried_again() -> None:
    retried, final = lines(failure(LATER), failure(None))
    assert retried["event"] == "delivery_failure"
    assert retried["retry_attempts"] == 1
    assert retried["error"] == {"category": "transient", "code": "TIMEOUT", "response_code": None, "attempt_count": 2}
    assert retried["next_retry_at"] == LATER
    assert retried["correlation_id"] == "corr-1"
    assert retried["level"] == "warning"
    assert (final["next_retry_at"], final["level"]) == (None, "error")


def test_the_part_that_is_in_trouble_does_not_hide_the_name_of_the_service() -> None:
    (line,) = lines(ServiceTrouble(at=AT, service="cleaner", error="disk full", retry_in_seconds=1.0))
    assert (line["service"], line["component"]) == ("doorstep", "cleaner")


def test_the_fields_of_a_notice_cannot_replace_those_of_the_line() -> None:
    notice = Notice(at=AT, level="info", message="cleaned", fields={"event": "forged", "service": "forged", "count": 3})
    (line,) = lines(notice)
    assert (line["event"], line["service"], line["message"], line["count"]) == ("notice", "doorstep", "cleaned", 3)


EVERY_KIND: list[Fact] = [
    transition(old_status=None, new_status="received"),
    failure(None),
    DeliveryTransition(
        at=AT, delivery_id=DELIVERY, event_id=EVENT, endpoint_id=ENDPOINT, old_state="pending", new_state="in_progress",
        attempt=1, correlation_id="c", org_id=ORG,
    ),
    LateSettle(at=AT, delivery_id=DELIVERY, event_id=EVENT, attempt=1, worker="w", correlation_id="c", org_id=ORG),
    RetryScheduled(
        at=AT, event_id=EVENT, delivery_id=DELIVERY, endpoint_id=ENDPOINT, retry_attempts=0, next_retry_at=AT,
        duration_seconds=0.01, correlation_id="c", org_id=ORG,
    ),
    CircuitTransition(at=AT, endpoint_id=ENDPOINT, org_id=ORG, old_state="closed", new_state="open", failures=5, reason=""),
    EntityTransition(
        at=AT, pipeline="protocol", entity_id="p1", old_status="uploaded", new_status="extracting", reason="attempt 1",
        event_id=EVENT, correlation_id="p1", org_id=ORG,
    ),
    EndpointDisabled(at=AT, endpoint_id=ENDPOINT, org_id=ORG, reason="gone"),
    ServiceTrouble(at=AT, service="cleaner", error="x", retry_in_seconds=1.0),
    Notice(at=AT, level="info", message="hello"),
]  # fmt: skip


def test_every_kind_of_fact_has_words_in_both_forms() -> None:
    assert {type(fact) for fact in EVERY_KIND} == set(Fact.__subclasses__())
    assert [line["@timestamp"] for line in lines(*EVERY_KIND)] == [AT] * len(EVERY_KIND)
    text = text_format(colour=False)(EVERY_KIND).decode().splitlines()
    assert len(text) == len(EVERY_KIND)
    assert text[0].startswith("22:13:20.000 info    status transition  event_id=")


@pytest.mark.parametrize("hostile", ["a\nb", "a\x1b[2Jb", "a\rb", "a\u2028b", "a\x9bb"])
def test_a_hostile_text_cannot_forge_a_line_or_paint_the_terminal(hostile: str) -> None:
    written = text_format(colour=False)([transition(correlation_id=hostile)]).decode()
    assert hostile not in written
    assert len(written.splitlines()) == 1
    assert lines(transition(correlation_id=hostile))[0]["correlation_id"] == hostile
    assert json_lines([transition(correlation_id=hostile)]).count(b"\n") == 1


def test_each_line_has_its_own_time() -> None:
    written = lines(transition(), transition(at=LATER), failure(None))
    assert [one["@timestamp"] for one in written] == [AT, LATER, AT]
    assert json_lines([]) == b""


def test_only_what_is_not_info_has_a_level() -> None:
    levels = [line.get("level") for line in lines(transition(), failure(None), Notice(at=AT, level="odd", message=""))]
    assert levels == [None, "error", None]


def test_a_json_line_costs_little_enough_to_write_one_for_every_transition() -> None:
    """Measured at 0.4 µs; the bound allows for a slow or busy machine but excludes a logging framework (20 µs)."""
    facts = [transition(correlation_id=str(i)) for i in range(500)]
    best = min(_timed(facts) for _ in range(30))
    assert best / 500 < 5e-6, f"{best / 500 * 1e6:.2f} µs a line"


def _timed(facts: list[StatusTransition]) -> float:
    started = time.perf_counter()
    json_lines(facts)
    return time.perf_counter() - started


def test_the_lines_of_other_libraries_come_out_in_the_same_form() -> None:
    facts: list[Fact] = []
    logger = logging.getLogger("test.uvicorn.error")
    logger.addHandler(NoticeHandler(facts.extend))
    try:
        raise ValueError("boom")
    except ValueError:
        logger.exception("it %s", "broke")
    (line,) = lines(*facts)
    assert (line["service"], line["event"], line["level"]) == ("doorstep", "notice", "error")
    assert (line["message"], line["logger"]) == ("it broke", "test.uvicorn.error")
    assert str(line["traceback"]).endswith("ValueError\n")  # no exception text: it may quote anything
