"""When an endpoint is left alone after repeated failures, and how it is let back in.

closed ──(failures_max in a row)──▶ open ──(open_seconds)──▶ half-open ──success──▶ closed, ramping up
                                     ▲                           │
                                     └──────────failure──────────┘
"""

from __future__ import annotations

import msgspec

from doorstep.clock import SECOND, Instant, seconds, to_iso
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import CircuitRules, Endpoint, EndpointState

_RAMP_SECONDS = 10
"""After a recovery an endpoint gets 1 connection, then 2, 4, … doubling each second; then it is free again."""
_SILENCE_SECONDS = 2 * 86_400
"""Longer than the longest pause of any built-in policy (a day and its jitter): who is owed anything is tried sooner."""


def after_success(circuit: Circuit, now: Instant) -> Circuit:
    """Success proves the endpoint works, whoever made the try: it closes the circuit and resets the count."""
    if circuit.state is CircuitState.CLOSED:
        if not circuit.failures:
            return circuit
        return msgspec.structs.replace(circuit, failures=0, failing_since=None, until=None)
    return Circuit(endpoint_id=circuit.endpoint_id, changed_at=now, version=circuit.version)


def after_failure(circuit: Circuit, rules: CircuitRules, now: Instant) -> Circuit:
    """One more failure that blames the endpoint. Stragglers that fail while it is open do not prolong it."""
    counted = msgspec.structs.replace(
        circuit, failures=circuit.failures + 1, failing_since=_failing_since(circuit, now)
    )
    trips = circuit.state is CircuitState.CLOSED and counted.failures >= rules.failures_max
    if circuit.state is CircuitState.HALF_OPEN or trips:
        return _opened(counted, rules, now)
    return msgspec.structs.replace(counted, until=now) if circuit.state is CircuitState.CLOSED else counted


def after_uncounted(circuit: Circuit, now: Instant) -> Circuit:
    """A failure that says nothing about the endpoint. If it was the probe's, nothing was learnt: another may go now."""
    if circuit.state is CircuitState.HALF_OPEN:
        return msgspec.structs.replace(circuit, until=now)
    return circuit


def _opened(circuit: Circuit, rules: CircuitRules, now: Instant) -> Circuit:
    return msgspec.structs.replace(
        circuit, state=CircuitState.OPEN, changed_at=now, until=now + seconds(rules.open_seconds)
    )


def probing(circuit: Circuit, now: Instant, lost_after: Instant) -> Circuit | None:
    """The circuit with a probe under way, if one may go now: the pause is over, or the last probe got lost."""
    if circuit.state is CircuitState.CLOSED or circuit.until is None or now < circuit.until:
        return None
    since = _failing_since(circuit, now)
    return msgspec.structs.replace(
        circuit, state=CircuitState.HALF_OPEN, changed_at=now, until=lost_after, failing_since=since
    )


def allowance(circuit: Circuit | None, now: Instant) -> int | None:
    """How many tries may be under way at once as far as the circuit is concerned; None for any number."""
    if circuit is None:
        return None
    if circuit.state is not CircuitState.CLOSED:
        return 0
    since_closed = max(0, now - circuit.changed_at) // SECOND
    return 1 << since_closed if since_closed < _RAMP_SECONDS and circuit.changed_at else None


def is_hopeless(circuit: Circuit, rules: CircuitRules, now: Instant) -> bool:
    """It has failed for days without one success: time to disable the endpoint and tell someone.

    A few failures are no such thing, however far apart: the circuit must have opened on them.
    """
    if circuit.state is CircuitState.CLOSED or circuit.failing_since is None:
        return False
    return now - circuit.failing_since >= seconds(rules.disable_after_seconds)


def _failing_since(circuit: Circuit, now: Instant) -> Instant:
    """When the present stretch of failures began. An endpoint that nobody tried for days was not failing all that
    while: nothing is known of it, and the stretch begins anew."""
    if circuit.failing_since is None or circuit.until is None:
        return now
    return now if now - circuit.until > seconds(_SILENCE_SECONDS) else circuit.failing_since


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
