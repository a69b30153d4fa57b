"""Why a delivery waits although it may be due: what holds it, or all deliveries of its endpoint, in a sentence."""

from __future__ import annotations

from doorstep.clock import to_iso
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState


def why_held(delivery: Delivery, endpoint: Endpoint, circuit: Circuit) -> str | None:
    """The sentence for people, or None where nothing holds the delivery back."""
    if delivery.state is not DeliveryState.PENDING:
        return None
    if delivery.blocked:
        return "It waits for an earlier event with the same ordering key."
    if endpoint.state in (EndpointState.PAUSED, EndpointState.DISABLED):
        reason = f": {endpoint.state_reason}" if endpoint.state_reason else "."
        return f"The endpoint is {endpoint.state}{reason}"
    if delivery.forced or circuit.state is CircuitState.CLOSED:
        return None
    if circuit.state is CircuitState.HALF_OPEN:
        return "The endpoint is being probed after repeated failures."
    until = f" until {to_iso(circuit.until)}" if circuit.until is not None else ""
    return f"The endpoint's circuit is open{until}, after {circuit.failures} failures in a row."
