"""Circuit breakers: when repeated failures stop attempts to an endpoint, and how attempts resume.

closed ──(failures_max in a row)──▶ open ──(open_seconds)──▶ half-open ──success──▶ closed, ramping up
                                     ▲                           │
                                     └──────────failure──────────┘
"""

from __future__ import annotations

from msgspec.structs import replace

from doorstep.clock import SECOND, Instant, seconds, to_iso
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Circuit, CircuitRules, CircuitState, Endpoint, EndpointState

_RAMP_SECONDS = 10
"""How long the number of concurrent attempts stays limited after a recovery: to 1 at first, then to 2, 4, 8 and so on,
doubling every second."""
_SILENCE_SECONDS = 2 * 86_400
"""The time without an attempt after which a series of failures starts over. No built-in retry policy waits that long
(the longest delay is a day plus jitter), so an endpoint with waiting deliveries always gets an attempt sooner."""


def after_success(circuit: Circuit, now: Instant) -> Circuit:
    """A success proves that the endpoint works, so it closes the circuit and resets the count."""
    if circuit.state is CircuitState.CLOSED:
        if not circuit.failures:
            return circuit
        return replace(circuit, failures=0, failing_since=None, until=None)
    return Circuit(endpoint_id=circuit.endpoint_id, changed_at=now, version=circuit.version)


def after_failure(circuit: Circuit, rules: CircuitRules, now: Instant) -> Circuit:
    """The circuit after one more failure. Failures that arrive while the circuit is open do not prolong the pause."""
    counted = replace(circuit, failures=circuit.failures + 1, failing_since=_failing_since(circuit, now))
    trips = circuit.state is CircuitState.CLOSED and counted.failures >= rules.failures_max
    if circuit.state is CircuitState.HALF_OPEN or trips:
        until = now + seconds(rules.open_seconds)
        return replace(counted, state=CircuitState.OPEN, changed_at=now, until=until)
    return replace(counted, until=now) if circuit.state is CircuitState.CLOSED else counted


def after_uncounted(circuit: Circuit, now: Instant) -> Circuit:
    """The circuit after a failure that says nothing about the endpoint. If it was a probe, another may start now."""
    if circuit.state is CircuitState.HALF_OPEN:
        return replace(circuit, until=now)
    return circuit


def probing(circuit: Circuit, now: Instant, lost_after: Instant) -> Circuit | None:
    """The circuit with a probe in flight; None if no probe is allowed now. A probe is allowed once the pause has ended
    or the last probe was lost."""
    if circuit.state is CircuitState.CLOSED or circuit.until is None or now < circuit.until:
        return None
    since = _failing_since(circuit, now)
    return replace(circuit, state=CircuitState.HALF_OPEN, changed_at=now, until=lost_after, failing_since=since)


def allowance(circuit: Circuit | None, now: Instant) -> int | None:
    """How many attempts the circuit allows at the same time; None means any number."""
    if circuit is None:
        return None
    if circuit.state is not CircuitState.CLOSED:
        return 0
    since_closed = max(0, now - circuit.changed_at) // SECOND
    return 1 << since_closed if since_closed < _RAMP_SECONDS and circuit.changed_at else None


def is_hopeless(circuit: Circuit, rules: CircuitRules, now: Instant) -> bool:
    """Whether the endpoint has failed for days without a single success and should be disabled.

    The circuit must not be closed, so a few failures that are far apart are not enough.
    """
    if circuit.state is CircuitState.CLOSED or circuit.failing_since is None:
        return False
    return now - circuit.failing_since >= seconds(rules.disable_after_seconds)


def _failing_since(circuit: Circuit, now: Instant) -> Instant:
    """When the current series of failures began. After two days without an attempt, nothing is known about the endpoint
    any more, so the series starts over."""
    if circuit.failing_since is None or circuit.until is None:
        return now
    return now if now - circuit.until > seconds(_SILENCE_SECONDS) else circuit.failing_since


def why_held(delivery: Delivery, endpoint: Endpoint, circuit: Circuit) -> str | None:
    """Why a delivery is held, as a sentence for people; None if it is not held."""
    if delivery.state is not DeliveryState.PENDING:
        return None
    if delivery.blocked:
        return "It is waiting for an earlier event with the same ordering key."
    if endpoint.state in (EndpointState.PAUSED, EndpointState.DISABLED):
        reason = f": {endpoint.state_reason}" if endpoint.state_reason else "."
        return f"The endpoint is {endpoint.state}{reason}"
    if delivery.forced or circuit.state is CircuitState.CLOSED:
        return None
    if circuit.state is CircuitState.HALF_OPEN:
        return "The endpoint is being probed after repeated failures."
    until = f" until {to_iso(circuit.until)}" if circuit.until is not None else ""
    return f"The endpoint's circuit is open{until}, after {circuit.failures} failures in a row."
