"""Every period between attempts is explained, and the periods leave no gap."""

from __future__ import annotations

from typing import Any

import pytest

from doorstep.clock import SECOND, Instant, moment
from doorstep.model.action import AuditEntry
from doorstep.model.attempt import Attempt, Timings
from doorstep.model.delivery import Delivery, DeliveryState, HistoryEntry
from doorstep.model.endpoint import CircuitChange, CircuitState, EndpointState
from doorstep.policy.waits import HELD, PLANNED, QUEUED, Life, Wait, waits_of
from tests.support.builders import NOW, an_endpoint, new_id

PENDING, BUSY, DEAD = DeliveryState.PENDING, DeliveryState.IN_PROGRESS, DeliveryState.DEAD
CLOSED, OPEN, HALF = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


def at(second: float) -> Instant:
    return NOW + round(second * SECOND)


def line(second: float, old: DeliveryState | None, new: DeliveryState, attempt: int = 0) -> HistoryEntry:
    return HistoryEntry(at(second), old, new, attempt, "")


def an_attempt(number: int, second: float, next_second: float | None) -> Attempt:
    return Attempt(
        delivery_id=new_id(),
        number=number,
        started_at=at(second),
        finished_at=at(second + 0.1),
        timings=Timings(),
        request_headers=b"",
        response_code=503,
        response_headers=b"",
        response_body=b"",
        category="transient",
        code="SERVICE_UNAVAILABLE",
        reason="",
        detail="",
        worker="w",
        next_retry_at=None if next_second is None else at(next_second),
        late=False,
    )


def a_life(history: list[HistoryEntry], *, due: float | None = None, **changes: Any) -> Life:
    org_id = new_id()
    endpoint = an_endpoint(org_id, **changes.pop("endpoint", {}))
    delivery = Delivery(
        delivery_id=new_id(),
        event_id=new_id(),
        endpoint_id=endpoint.endpoint_id,
        org_id=org_id,
        event_type="order.paid",
        state=history[-1].new_state,
        due_at=None if due is None else at(due),
        created_at=NOW,
        blocked=changes.pop("blocked", False),
    )
    fields: dict[str, Any] = {"deliver_at": None, "ordering_key": None, "retries_at": {}, "revive_after_seconds": 5}
    return Life(delivery=delivery, endpoint=endpoint, history=history, **fields | changes)


def told(waits: list[Wait]) -> list[tuple[float, float, str]]:
    return [((one.begin - NOW) / SECOND, (one.end - NOW) / SECOND, one.kind) for one in waits]


RETRIED = [line(0, None, PENDING), line(0.2, PENDING, BUSY, 1), line(0.3, BUSY, PENDING, 1)]
"""A delivery that was accepted, tried immediately, and failed."""


def test_what_is_tried_at_once_did_not_wait() -> None:
    life = a_life([*RETRIED[:2], line(0.3, BUSY, DeliveryState.DELIVERED, 1)])
    assert waits_of(life, at(50)) == []


def test_a_pause_between_attempts_is_planned_and_reaches_into_the_future() -> None:
    life = a_life(RETRIED, due=60, retries_at={1: at(60)})
    assert told(waits_of(life, at(10))) == [(0.3, 60, PLANNED)]


def test_an_event_for_later_waits_for_its_time() -> None:
    life = a_life([line(0, None, PENDING), line(30.1, PENDING, BUSY, 1)], deliver_at=at(30))
    (wait,) = waits_of(life, at(40))
    assert told([wait]) == [(0, 30, PLANNED)]
    assert "Scheduled by the sender" in wait.why


def test_what_is_due_and_not_tried_was_held_by_the_circuit_while_that_was_open() -> None:
    changes = (
        CircuitChange(at(50), CLOSED, OPEN, "5 failures"),
        CircuitChange(at(80), OPEN, HALF, "probe"),
        CircuitChange(at(81), HALF, OPEN, "probe failed"),
        CircuitChange(at(100), HALF, CLOSED, "probe delivered"),
    )
    history = [*RETRIED, line(110, PENDING, BUSY, 2)]
    life = a_life(history, retries_at={1: at(60)}, circuit_changes=changes)
    waits = waits_of(life, at(200))
    assert told(waits) == [(0.3, 60, PLANNED), (60, 100, HELD), (100, 110, QUEUED)]
    assert waits[1].why == "Held: the endpoint's circuit was open (5 failures)"


def test_a_pause_of_the_endpoint_is_known_from_the_audit_and_the_present_one_from_the_endpoint() -> None:
    acts = [
        AuditEntry(at=at(second), org_id=new_id(), actor="ops", action=action, subjects=(), result="", reason="tea")
        for second, action in ((30, "endpoint.resume"), (10, "endpoint.pause"), (20, "endpoint.change"))
    ]
    stopped = {"state": EndpointState.DISABLED, "state_since": at(40), "state_reason": "gone"}
    life = a_life([line(0, None, PENDING)], due=0, endpoint=stopped, endpoint_actions=acts)
    waits = waits_of(life, at(60))
    assert told(waits) == [(0, 10, QUEUED), (10, 30, HELD), (30, 40, QUEUED), (40, 60, HELD)]
    assert [waits[1].why, waits[3].why] == [
        "Held: the endpoint was paused (tea)",
        "Held: the endpoint was disabled (gone)",
    ]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"ordering_key": "order-1"}, "; earlier events with the same ordering key go first"),
        ({"endpoint": {"rate_per_second": 2.5}}, "; the endpoint is limited to 2.5 per second"),
        (
            {"endpoint": {"rate_per_second": 1, "concurrency_max": 3}},
            "; the endpoint is limited to 1 per second and 3 at the same time",
        ),
        ({}, ""),
    ],
)
def test_of_what_nothing_is_known_to_hold_only_the_limits_are_told_and_no_reason(
    changes: dict[str, Any], words: str
) -> None:
    (wait,) = waits_of(a_life([line(0, None, PENDING)], due=0, **changes), at(9))
    assert wait == Wait(at(0), at(9), QUEUED, f"Due, not claimed by a worker yet{words}")


def test_an_earlier_event_with_its_ordering_key_is_named_while_there_is_one() -> None:
    (wait,) = waits_of(a_life([line(0, None, PENDING)], ordering_key="order-1", blocked=True), at(9))
    assert wait == Wait(at(0), at(9), HELD, "Waits for an earlier event with the same ordering key")


def test_what_was_behind_another_and_waits_on_was_held_until_that_ended() -> None:
    waits = waits_of(a_life([line(0, None, PENDING)], due=60, ordering_key="order-1"), at(90))
    assert told(waits) == [(0, 60, HELD), (60, 90, QUEUED)]
    assert waits[0].why == "Waited for an earlier event with the same ordering key"


def test_what_is_for_later_and_behind_another_says_when_it_is_to_be_delivered() -> None:
    life = a_life([line(0, None, PENDING)], ordering_key="order-1", blocked=True, deliver_at=at(600))
    (wait,) = waits_of(life, at(9))
    assert told([wait]) == [(0, 9, PLANNED)]
    assert moment(at(600)) in wait.why


def test_a_dead_letter_that_is_retried_waits_a_few_seconds_and_not_while_it_is_dead() -> None:
    history = [*RETRIED[:2], line(0.3, BUSY, DEAD, 1), line(500, DEAD, PENDING, 1), line(505.1, PENDING, BUSY, 2)]
    assert told(waits_of(a_life(history), at(600))) == [(500, 505, PLANNED)]


def test_an_operators_retry_ends_a_planned_wait_early() -> None:
    history = [*RETRIED, line(20, PENDING, BUSY, 2)]
    life = a_life(history, retries_at={1: at(900)})
    assert told(waits_of(life, at(30))) == [(0.3, 20, PLANNED)]


def test_overlapping_holds_are_told_once() -> None:
    changes = (CircuitChange(at(5), CLOSED, OPEN, "failures"),)
    paused = {"state": EndpointState.PAUSED, "state_since": at(2)}
    life = a_life([line(0, None, PENDING)], due=0, endpoint=paused, circuit_changes=changes)
    waits = waits_of(life, at(20))
    assert told(waits) == [(0, 2, QUEUED), (2, 20, HELD)]
