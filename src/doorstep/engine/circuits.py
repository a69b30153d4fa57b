"""Circuit breakers: count results, allow probes, and disable endpoints that have failed for days.

A healthy endpoint costs nothing: its circuit has no row, and its successes are not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.engine.directory import RACES_MAX, Directory, Tuning, change_endpoint, put_circuit
from doorstep.errors import NotFound
from doorstep.model.attempt import Outcome
from doorstep.model.claim import Lane, Settlement
from doorstep.model.endpoint import Circuit, CircuitRules, CircuitState, Endpoint, EndpointState
from doorstep.policy import circuit as rules
from doorstep.stores.store import Store
from doorstep.telemetry.facts import EndpointDisabled, Telemetry

_PROBE_SLACK_SECONDS = 5
_ACTOR = "doorstep"
"""The actor in the audit log when a circuit disables an endpoint."""


class Circuits:
    """The circuit breakers as one worker sees them.

    All workers share the rows, so every write names the version it was computed from.
    """

    def __init__(self, store: Store, directory: Directory, clock: Clock, tuning: Tuning, telemetry: Telemetry) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry
        self._unhealthy: set[UUID] = set()

    def rules_of(self, endpoint: Endpoint) -> CircuitRules:
        """The endpoint's rules. The settings of the installation may switch all circuits off."""
        return endpoint.circuit if self._tuning.circuits else replace(endpoint.circuit, enabled=False)

    def in_force(self, lane: Lane, endpoint: Endpoint) -> Lane:
        """The lane, without its circuit if circuits have been switched off since it opened. The next result closes it."""
        return replace(lane, circuit=None) if lane.is_barred and not self.rules_of(endpoint).enabled else lane

    def observe(self, lanes: Iterable[Lane]) -> None:
        """Remember which endpoints are unhealthy. Successes need to be recorded only for these.

        An endpoint whose last delivery is in flight has no lane, and that attempt may be the probe that closes its
        circuit. So endpoints are not removed here, but only after a success has been recorded.
        """
        self._unhealthy.update(lane.endpoint_id for lane in lanes if lane.circuit and _is_unhealthy(lane.circuit))

    def is_healthy(self, endpoint_id: UUID) -> bool:
        """Whether nothing is known against the endpoint. Its stored circuit may tell more."""
        return endpoint_id not in self._unhealthy

    async def acquire_probe(self, endpoint: Endpoint, circuit: Circuit, now: Instant) -> bool:
        """When the pause of an open circuit has ended, return True for exactly one worker, which may then send one
        attempt."""
        timeout = endpoint.timeout_seconds or self._tuning.timeout_seconds
        probing = rules.probing(circuit, now, now + seconds(timeout + _PROBE_SLACK_SECONDS))
        if probing is None:
            return False
        return await self._write(endpoint, circuit, probing, "the pause has ended: one probe is allowed")

    async def record(self, settlements: Sequence[Settlement], now: Instant) -> dict[UUID, CircuitState]:
        """Count results in order; returns the endpoints whose circuit has just opened or closed."""
        changed = {}
        results_of = self._results(settlements)
        if results_of:
            await self._directory.load({one.claim.org_id for one in settlements if one.claim.endpoint_id in results_of})
        for endpoint_id, results in results_of.items():
            endpoint = self._directory.endpoint(endpoint_id)
            if endpoint and (state := await self._record_endpoint(endpoint, results, now)):
                changed[endpoint_id] = state
        for settlement in settlements:
            if settlement.outcome.disable_endpoint:
                claim, asked = settlement.claim, settlement.outcome.reason or "webhook-delivery: disable"
                reason = f"The receiver asked not to be called again: {asked}"
                await self.disable(claim.org_id, claim.endpoint_id, reason, now)
        return changed

    def _results(self, settlements: Sequence[Settlement]) -> dict[UUID, list[bool | None]]:
        """The results of each endpoint: success, failure or neither. Healthy endpoints without failures are omitted."""
        results: dict[UUID, list[bool | None]] = {}
        for settlement in settlements:
            outcome, endpoint_id = settlement.outcome, settlement.claim.endpoint_id
            failed = not outcome.succeeded and outcome.blames_endpoint
            if failed or endpoint_id in self._unhealthy or endpoint_id in results:
                results.setdefault(endpoint_id, []).append(_verdict(outcome))
        return results

    async def _record_endpoint(
        self, endpoint: Endpoint, results: list[bool | None], now: Instant
    ) -> CircuitState | None:
        """The new state of the circuit; None if it is the same as before."""
        for _ in range(RACES_MAX):
            before = await self._store.get(Circuit, None, endpoint.endpoint_id)
            after = _apply(before, results, self.rules_of(endpoint), now)
            closed = after.state is CircuitState.CLOSED
            why = "an attempt succeeded" if closed else rules.in_a_row(after.failures)
            if after == before or await self._write(endpoint, before, after, why):
                break
        if _is_unhealthy(after):
            self._unhealthy.add(endpoint.endpoint_id)
        else:
            self._unhealthy.discard(endpoint.endpoint_id)
        if results[-1] is False and rules.is_hopeless(after, endpoint.circuit, now):
            days = endpoint.circuit.disable_after_seconds / 86_400
            reason = f"It failed for {days:g} days without a single success."
            await self.disable(endpoint.org_id, endpoint.endpoint_id, reason, now)
        return after.state if after.state is not before.state else None

    async def _write(self, endpoint: Endpoint, before: Circuit, after: Circuit, why: str) -> bool:
        return await put_circuit(self._store, self._telemetry, endpoint, before, after, why, self._clock.now())

    async def disable(self, org_id: UUID, endpoint_id: UUID, reason: str, now: Instant) -> None:
        """Disable an endpoint. Its deliveries are held until someone enables it again."""

        def disabled(endpoint: Endpoint) -> Endpoint | None:
            if endpoint.state is not EndpointState.ACTIVE:
                return None
            return replace(endpoint, state=EndpointState.DISABLED, state_reason=reason)

        with suppress(NotFound):
            entry = {"actor": _ACTOR, "action": "endpoint.disable", "reason": reason}
            if await change_endpoint(self._store, org_id, endpoint_id, disabled, now=now, **entry):
                await self._directory.reload((org_id,))
                fact = EndpointDisabled(at=to_iso(now), endpoint_id=endpoint_id, org_id=org_id, reason=reason)
                self._telemetry.emit(fact)


def _is_unhealthy(circuit: Circuit) -> bool:
    return circuit.state is not CircuitState.CLOSED or circuit.failures > 0


def _verdict(outcome: Outcome) -> bool | None:
    """True for a success, False for a failure of the endpoint, None for a failure that does not count."""
    return True if outcome.succeeded else False if outcome.blames_endpoint else None


def _apply(circuit: Circuit, results: list[bool | None], own: CircuitRules, now: Instant) -> Circuit:
    for succeeded in results:
        if succeeded:
            circuit = rules.after_success(circuit, now)
        elif succeeded is None:
            circuit = rules.after_uncounted(circuit, now)
        else:
            circuit = rules.after_failure(circuit, own, now)
    return circuit
