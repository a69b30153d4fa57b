"""Circuit breakers: when repeated failures stop attempts to an endpoint, and how attempts resume.

closed ──(failures_max in a row)──▶ open ──(pause)──▶ half-open ──success──▶ closed, ramping up
                                     ▲                    │
                                     └──────failure───────┘

The pause grows with the outage: a receiver that blinked is probed after a second, one that is down for a day every five
minutes. As a quarter of the outage so far, it delays the recovery by at most a quarter of the outage.
"""

from __future__ import annotations

from msgspec.structs import replace

from doorstep.clock import Instant, seconds, to_iso
from doorstep.model.claim import Lane, Quota
from doorstep.model.delivery import Delivery, DeliveryState, Hold
from doorstep.model.endpoint import RAMP, Circuit, CircuitRules, CircuitState, Endpoint, EndpointState

_PAUSE_SHARE = 4
"""The pause before a probe is the outage so far, divided by this. With pauses from 1 to 300 seconds, that makes 38
probes in the first hour."""
_RAMP_STEPS = 10
_RAMP_STEP: Instant = RAMP // _RAMP_STEPS
"""After a recovery, the number of concurrent attempts is limited to 1 at first, then to 2, 4, 8 and so on, doubling at
each of these steps. With steps of a second, a receiver of 100 events per second that was down for three seconds got its
last event five seconds after its return."""
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
    if not rules.enabled:
        return replace(counted, state=CircuitState.CLOSED, until=now)
    trips = circuit.state is CircuitState.CLOSED and counted.failures >= rules.failures_max
    if circuit.state is CircuitState.HALF_OPEN or trips:
        until = now + probe_pause(now - (counted.failing_since or now), rules)
        return replace(counted, state=CircuitState.OPEN, changed_at=now, until=until)
    return replace(counted, until=now) if circuit.state is CircuitState.CLOSED else counted


def probe_pause(outage: Instant, rules: CircuitRules) -> Instant:
    """The pause before the next probe of an endpoint that has been failing for this long."""
    return min(seconds(rules.open_seconds), max(seconds(rules.probe_seconds_min), outage // _PAUSE_SHARE))


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
    steps = max(0, now - circuit.changed_at) // _RAMP_STEP
    return 1 << steps if steps < _RAMP_STEPS and circuit.changed_at else None


def attemptable(lane: Lane, now: Instant) -> bool:
    """Whether the lane has a delivery that may be attempted now, as far as the circuit allows any attempt: one that is
    due, or one that waits for a recovery if the endpoint may be probed or has just recovered."""
    if lane.due_at <= now:
        return True
    if lane.circuit is None or lane.recoverable_at is None:
        return False
    return lane.is_barred or lane.recoverable_at < lane.circuit.changed_at


def parts_of(quota: Quota, lane: Lane, now: Instant, fresh_first: bool) -> list[Quota]:
    """What a quota may be used for, in order: each part gets what the previous parts have left.

    While an endpoint recovers, deliveries that became due after its circuit closed get half of the quota, so that they
    do not wait behind the backlog. If half of the quota is not a whole number, `fresh_first` decides who gets more.
    Deliveries that waited for the recovery come last; their turn ends with their first attempt after it.
    """
    circuit = lane.circuit
    if circuit is None or (lane.is_barred and lane.due_at <= now):
        return [quota]
    if lane.is_barred:  # a probe, though nothing is due
        return [replace(quota, attempted_before=now + 1)]
    closed_at = circuit.changed_at
    backlog = [replace(quota, due_until=closed_at)] if lane.due_at <= closed_at else []
    if lane.recoverable_at is not None and lane.recoverable_at < closed_at:
        backlog.append(replace(quota, attempted_before=closed_at))
    if not backlog:
        return [quota]
    return [replace(quota, count=(quota.count + fresh_first) // 2, due_after=closed_at), *backlog]


def is_hopeless(circuit: Circuit, rules: CircuitRules, now: Instant) -> bool:
    """Whether the endpoint has failed for days without a single success and should be disabled.

    There must be enough failures to open a circuit, so a few that are far apart are not enough.
    """
    if circuit.failures < rules.failures_max or circuit.failing_since is None:
        return False
    return now - circuit.failing_since >= seconds(rules.disable_after_seconds)


def _failing_since(circuit: Circuit, now: Instant) -> Instant:
    """When the current series of failures began. After two days without an attempt, nothing is known about the endpoint
    any more, so the series starts over."""
    if circuit.failing_since is None or circuit.until is None:
        return now
    return now if now - circuit.until > seconds(_SILENCE_SECONDS) else circuit.failing_since


def in_a_row(failures: int) -> str:
    return f"{failures} {'failure' if failures == 1 else 'failures'} in a row"


def hold_of(delivery: Delivery, endpoint: Endpoint, circuit: Circuit) -> Hold | None:
    """What holds a delivery; None if nothing does."""
    if delivery.state is not DeliveryState.PENDING:
        return None
    if delivery.blocked:
        return Hold("It is waiting for an earlier event with the same ordering key.")
    if endpoint.state in (EndpointState.PAUSED, EndpointState.DISABLED):
        reason = f": {endpoint.state_reason}" if endpoint.state_reason else "."
        return Hold(f"The endpoint is {endpoint.state}{reason}")
    if delivery.due_at is None:
        return Hold("Its retry policy leaves it to an operator.")
    if delivery.forced or circuit.state is CircuitState.CLOSED:
        return None
    if circuit.state is CircuitState.HALF_OPEN:
        return Hold("The endpoint is being probed after repeated failures.", circuit.until)
    until = f" until {to_iso(circuit.until)}" if circuit.until is not None else ""
    reason = f"The endpoint's circuit is open{until}, after {in_a_row(circuit.failures)}."
    return Hold(reason, circuit.until)
