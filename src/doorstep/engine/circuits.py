"""Keeps the circuits: lets probes through, counts results, disables what has failed for days.

A healthy endpoint costs nothing here: its circuit has no row, and its successes are not written anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from uuid import UUID

import msgspec

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.engine.directory import RACES_MAX, Directory, Tuning, change_endpoint, put_circuit
from doorstep.errors import NotFound
from doorstep.model.attempt import Outcome
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.claim import Lane, Settlement
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.policy import circuit as rules
from doorstep.stores.store import Store
from doorstep.telemetry.facts import EndpointDisabled, Telemetry

_PROBE_SLACK_SECONDS = 5
_ACTOR = "doorstep"
"""Who disables an endpoint, in the audit."""


class Circuits:
    """One per worker; what it writes is shared by all, so every write names the version it was computed from."""

    def __init__(self, store: Store, directory: Directory, clock: Clock, tuning: Tuning, telemetry: Telemetry) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry
        self._troubled: set[UUID] = set()

    def see(self, lanes: Iterable[Lane]) -> None:
        """Remember which endpoints are in trouble: only their successes need to be recorded.

        An endpoint whose last delivery is being tried has no lane, and that try may be the very probe that closes
        its circuit; so nothing is forgotten here, only where a success has been recorded.
        """
        self._troubled.update(lane.endpoint_id for lane in lanes if lane.circuit and _in_trouble(lane.circuit))

    async def let_probe(self, endpoint: Endpoint, circuit: Circuit, now: Instant) -> bool:
        """True for exactly one worker, when the pause of an open circuit is over: that one may send a single try."""
        timeout = endpoint.timeout_seconds or self._tuning.timeout_seconds
        probing = rules.probing(circuit, now, now + seconds(timeout + _PROBE_SLACK_SECONDS))
        if probing is None:
            return False
        return await self._write(endpoint, circuit, probing, "the pause is over: one probe goes through")

    async def record(self, settlements: Sequence[Settlement], now: Instant) -> set[UUID]:
        """Count results, in their order; returns the endpoints whose circuit opened just now."""
        opened = set()
        for endpoint_id, results in self._results(settlements).items():
            endpoint = self._directory.endpoint(endpoint_id)
            if endpoint and await self._record_endpoint(endpoint, results, now):
                opened.add(endpoint_id)
        for settlement in settlements:
            if settlement.outcome.disable_endpoint:
                await self.disable(settlement.claim.org_id, settlement.claim.endpoint_id, _gone(settlement), now)
        return opened

    def _results(self, settlements: Sequence[Settlement]) -> dict[UUID, list[bool | None]]:
        """Success, failure or neither by endpoint, leaving out endpoints that are simply healthy."""
        results: dict[UUID, list[bool | None]] = {}
        for settlement in settlements:
            outcome, endpoint_id = settlement.outcome, settlement.claim.endpoint_id
            failed = not outcome.succeeded and outcome.blames_endpoint
            if failed or endpoint_id in self._troubled or endpoint_id in results:
                results.setdefault(endpoint_id, []).append(_verdict(outcome))
        return results

    async def _record_endpoint(self, endpoint: Endpoint, results: list[bool | None], now: Instant) -> bool:
        for _ in range(RACES_MAX):
            before = await self._store.circuit(endpoint.endpoint_id)
            after = _fold(before, results, endpoint, now)
            if after == before or await self._write(endpoint, before, after, _why(after)):
                break
        if _in_trouble(after):
            self._troubled.add(endpoint.endpoint_id)
        else:
            self._troubled.discard(endpoint.endpoint_id)
        if results[-1] is False and rules.is_hopeless(after, endpoint.circuit, now):
            days = endpoint.circuit.disable_after_seconds / 86_400
            await self.disable(
                endpoint.org_id, endpoint.endpoint_id, f"It has failed for {days:g} days without one success.", now
            )
        return after.state is CircuitState.OPEN and before.state is not CircuitState.OPEN

    async def _write(self, endpoint: Endpoint, before: Circuit, after: Circuit, why: str) -> bool:
        return await put_circuit(self._store, self._telemetry, endpoint, before, after, why, self._clock.now())

    async def disable(self, org_id: UUID, endpoint_id: UUID, reason: str, now: Instant) -> None:
        """Stop an endpoint; its deliveries are held, not dropped, until someone enables it again."""

        def disabled(endpoint: Endpoint) -> Endpoint | None:
            if endpoint.state is not EndpointState.ACTIVE:
                return None
            return msgspec.structs.replace(endpoint, state=EndpointState.DISABLED, state_reason=reason)

        with suppress(NotFound):
            if await change_endpoint(
                self._store,
                org_id,
                endpoint_id,
                disabled,
                actor=_ACTOR,
                action="endpoint.disable",
                now=now,
                reason=reason,
            ):
                await self._directory.reload()
                self._telemetry.emit(
                    EndpointDisabled(at=to_iso(now), endpoint_id=endpoint_id, org_id=org_id, reason=reason)
                )


def _in_trouble(circuit: Circuit) -> bool:
    return circuit.state is not CircuitState.CLOSED or circuit.failures > 0


def _verdict(outcome: Outcome) -> bool | None:
    """True for a success, False for a failure of the endpoint, None for one that does not count."""
    return True if outcome.succeeded else False if outcome.blames_endpoint else None


def _fold(circuit: Circuit, results: list[bool | None], endpoint: Endpoint, now: Instant) -> Circuit:
    for succeeded in results:
        if succeeded:
            circuit = rules.after_success(circuit, now)
        elif succeeded is None:
            circuit = rules.after_uncounted(circuit, now)
        else:
            circuit = rules.after_failure(circuit, endpoint.circuit, now)
    return circuit


def _why(circuit: Circuit) -> str:
    if circuit.state is CircuitState.CLOSED:
        return "a try succeeded"
    return f"{circuit.failures} failures in a row"


def _gone(settlement: Settlement) -> str:
    return f"The receiver asked not to be called again: {settlement.outcome.reason or 'webhook-delivery: disable'}"
