"""Why a delivery waits."""

from __future__ import annotations

from doorstep.clock import to_iso
from doorstep.model.delivery import Delivery, DeliveryState, Hold
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint, EndpointState
from doorstep.policy.circuit import hold_of
from tests.support.builders import NOW, an_endpoint, new_id

ENDPOINT = an_endpoint(new_id())


def a_delivery(**changes: object) -> Delivery:
    fields: dict[str, object] = {"delivery_id": new_id(), "event_id": new_id(), "endpoint_id": ENDPOINT.endpoint_id}
    fields |= {"org_id": ENDPOINT.org_id, "event_type": "a", "state": DeliveryState.PENDING, "created_at": NOW}
    return Delivery(**fields | {"due_at": NOW} | changes)  # type: ignore[arg-type]


def a_circuit(state: CircuitState) -> Circuit:
    return Circuit(endpoint_id=ENDPOINT.endpoint_id, state=state, failures=5, until=NOW)


def why_held(delivery: Delivery, endpoint: Endpoint, circuit: Circuit) -> str | None:
    hold = hold_of(delivery, endpoint, circuit)
    return hold and hold.reason


def stopped(state: EndpointState, reason: str = "") -> Endpoint:
    return an_endpoint(ENDPOINT.org_id, state=state, state_reason=reason)


def test_nothing_holds_a_delivery_of_a_healthy_endpoint() -> None:
    assert why_held(a_delivery(), ENDPOINT, a_circuit(CircuitState.CLOSED)) is None


def test_a_stopped_endpoint_is_named_with_its_reason() -> None:
    closed = a_circuit(CircuitState.CLOSED)
    assert why_held(a_delivery(), stopped(EndpointState.PAUSED), closed) == "The endpoint is paused."
    gone = stopped(EndpointState.DISABLED, "It is gone.")
    assert why_held(a_delivery(), gone, closed) == "The endpoint is disabled: It is gone."


def test_an_open_circuit_is_named_with_its_end_and_a_probe_as_such() -> None:
    held = why_held(a_delivery(), ENDPOINT, a_circuit(CircuitState.OPEN))
    assert held == f"The endpoint's circuit is open until {to_iso(NOW)}, after 5 failures in a row."
    assert why_held(a_delivery(), ENDPOINT, a_circuit(CircuitState.HALF_OPEN)) is not None


def test_one_behind_another_with_the_same_ordering_key_says_so() -> None:
    blocked = a_delivery(due_at=None, blocked=True)
    held = why_held(blocked, ENDPOINT, a_circuit(CircuitState.CLOSED))
    assert held == "It is waiting for an earlier event with the same ordering key."


def test_an_operators_retry_is_held_by_a_stopped_endpoint_but_not_by_a_circuit() -> None:
    forced = a_delivery(forced=True)
    assert why_held(forced, ENDPOINT, a_circuit(CircuitState.OPEN)) is None
    assert why_held(forced, stopped(EndpointState.PAUSED), a_circuit(CircuitState.OPEN)) is not None


def test_only_what_waits_is_held() -> None:
    for state in set(DeliveryState) - {DeliveryState.PENDING}:
        assert why_held(a_delivery(state=state), stopped(EndpointState.PAUSED), a_circuit(CircuitState.OPEN)) is None


def test_a_hold_says_until_when_if_anybody_knows() -> None:
    closed, open_ = a_circuit(CircuitState.CLOSED), a_circuit(CircuitState.OPEN)
    due = a_delivery()
    assert hold_of(due, ENDPOINT, open_) == Hold(str(why_held(due, ENDPOINT, open_)), NOW)
    manual = a_delivery(due_at=None, attempt=1)
    for one, endpoint in (
        (manual, ENDPOINT),
        (due, stopped(EndpointState.PAUSED)),
        (a_delivery(blocked=True), ENDPOINT),
    ):
        hold = hold_of(one, endpoint, closed)
        assert hold is not None and hold.until is None


def test_the_next_retry_of_a_held_delivery_is_when_the_hold_ends_or_when_it_is_due_whichever_is_later() -> None:
    assert Hold("", NOW + 9).delays(NOW) == NOW + 9
    assert Hold("", NOW).delays(NOW + 9) == NOW + 9
    assert Hold("").delays(NOW) is None
