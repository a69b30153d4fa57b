"""Beside the path: what operators do to deliveries and endpoints. Every act is audited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.act import ACTS_ON, Act, ActKind, ActResult, AuditLine
from doorstep.model.delivery import DeliveryState, States
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.outcome import Code
from doorstep.path import facts
from doorstep.path.change import RACES_MAX, change_endpoint, living, put_circuit
from doorstep.path.directory import Directory
from doorstep.path.tuning import Tuning
from doorstep.policy.circuit import after_success
from doorstep.policy.classification import DELETED_WHILE_WAITING
from doorstep.policy.payload import check_payload
from doorstep.stores.store import Store
from doorstep.stores.text import check_storable
from doorstep.telemetry.facts import Telemetry

DONE = {
    ActKind.RETRY: "retried",
    ActKind.SKIP: "skipped",
    ActKind.RESOLVE: "resolved",
    ActKind.DELETE: "deleted",
    ActKind.CANCEL: "cancelled",
}
"""What has become of a delivery, in a word."""
_BURY_BATCH = 1_000
DRAIN_MIN, DRAIN_MAX = 0.001, 100_000.0


class Operator:
    """Each act, on deliveries or on an endpoint, is one transaction with its audit line."""

    def __init__(self, store: Store, directory: Directory, clock: Clock, tuning: Tuning, telemetry: Telemetry) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry

    async def act(
        self,
        kind: ActKind,
        org_id: UUID,
        delivery_ids: Sequence[UUID],
        actor: str,
        reason: str = "",
        payload: bytes | None = None,
        *,
        only_in: States | None = None,
    ) -> ActResult:
        """Retry, skip, resolve, delete or cancel; what its state does not allow is refused, one by one.

        A dead letter can be retried with another payload, which is delivered from then on instead of the event's.
        `only_in` are the states of the list that it was asked in: what has left them meanwhile is refused too.
        """
        if not delivery_ids:
            raise InvalidInput("delivery_ids", "must name at least one delivery")
        check_storable("reason", reason)
        if payload is not None:
            check_payload(payload, self._tuning.payload_bytes_max)
        now = self._clock.now()
        result, done = await self._store.act(
            Act(
                kind=kind,
                org_id=org_id,
                delivery_ids=tuple(delivery_ids),
                actor=actor,
                at=now,
                reason=reason,
                revive_at=now + seconds(self._tuning.revive_after_seconds),
                payload=payload,
                only_in=only_in,
            )
        )
        self._telemetry.emit_all(facts.moved(done, now))
        return result

    async def act_on(
        self,
        kind: ActKind,
        org_id: UUID,
        delivery_id: UUID,
        actor: str,
        reason: str = "",
        payload: bytes | None = None,
        *,
        only_in: States | None = None,
    ) -> None:
        """Do it to one delivery, or say why not: NotFound where there is none, Conflict with the state that it is in."""
        result = await self.act(kind, org_id, [delivery_id], actor, reason, payload, only_in=only_in)
        if result.done:
            return
        state = result.refused[delivery_id]
        if state is None:
            raise NotFound(f"no delivery {delivery_id}")
        raise Conflict(f"delivery {delivery_id} is {_refusal(kind, state, edited=payload is not None)}")

    async def pause(self, org_id: UUID, endpoint_id: UUID, actor: str, reason: str = "") -> Endpoint:
        """Hold an endpoint's deliveries until it is resumed."""
        check_storable("reason", reason)

        def paused(endpoint: Endpoint) -> Endpoint:
            return msgspec.structs.replace(living(endpoint), state=EndpointState.PAUSED, state_reason=reason)

        return await self._change(org_id, endpoint_id, paused, actor, "endpoint.pause", reason)

    async def resume(
        self,
        org_id: UUID,
        endpoint_id: UUID,
        actor: str,
        *,
        drain_per_second: float | None = None,
        skip_older_than: Instant | None = None,
        reason: str = "",
    ) -> Endpoint:
        """Enable a paused or disabled endpoint: drain what waits, drain it at a rate, or skip what is too old.

        What is skipped becomes dead letters, so that it can still be found; that may take a while. If meanwhile
        someone else paused, deleted or resumed the endpoint this is a Conflict: who asked did not know of it.
        """
        _check_drain(drain_per_second)
        check_storable("reason", reason)
        seen = living(await self._store.endpoint(org_id, endpoint_id))

        def resumed(endpoint: Endpoint) -> Endpoint:
            _check_unmoved(living(endpoint), seen)
            return msgspec.structs.replace(
                endpoint,
                state=EndpointState.ACTIVE,
                state_reason="",
                drain_per_second=drain_per_second,
                drain_before=None if drain_per_second is None else self._clock.now(),
            )

        if skip_older_than is not None:
            await self._skip(seen, skip_older_than, actor, reason)
        await self._forgive(seen)
        return await self._change(org_id, endpoint_id, resumed, actor, "endpoint.resume", reason)

    async def delete(self, org_id: UUID, endpoint_id: UUID, actor: str, reason: str = "") -> None:
        """Delete an endpoint; what waits for it becomes dead letters that say so. The reason is for the audit."""
        check_storable("reason", reason)

        def deleted(endpoint: Endpoint) -> Endpoint:
            why = f"deleted by {actor}"
            return msgspec.structs.replace(living(endpoint), state=EndpointState.DELETED, state_reason=why)

        await self._change(org_id, endpoint_id, deleted, actor, "endpoint.delete", reason)
        await self._bury_all(endpoint_id, Code.ENDPOINT_DELETED, DELETED_WHILE_WAITING)

    async def _change(
        self,
        org_id: UUID,
        endpoint_id: UUID,
        change: Callable[[Endpoint], Endpoint],
        actor: str,
        action: str,
        reason: str = "",
    ) -> Endpoint:
        now = self._clock.now()
        changed = await change_endpoint(
            self._store, org_id, endpoint_id, change, actor=actor, action=action, now=now, reason=reason
        )
        assert changed is not None, "an operator's change always makes something of the endpoint, or raises"
        await self._directory.reload()
        return changed

    async def _skip(self, endpoint: Endpoint, before: Instant, actor: str, reason: str) -> None:
        """Audited apart from the resumption that it belongs to: it has been done even if that comes to nothing."""
        why = f"Skipped on resume: accepted before {to_iso(before)}."
        count = await self._bury_all(endpoint.endpoint_id, Code.SKIPPED, why, before)
        await self._store.add_audit(
            AuditLine(
                at=self._clock.now(),
                org_id=endpoint.org_id,
                actor=actor,
                action="endpoint.skip",
                subjects=(str(endpoint.endpoint_id),),
                result=f"{count} skipped",
                reason=f"{why} {reason}".rstrip(),
            )
        )

    async def _forgive(self, endpoint: Endpoint) -> None:
        """Start with a closed circuit: days of failures counted before would disable it again at the first one."""
        for _ in range(RACES_MAX):
            now = self._clock.now()
            circuit = await self._store.circuit(endpoint.endpoint_id)
            closed = after_success(circuit, now)
            if closed == circuit or await put_circuit(
                self._store, self._telemetry, endpoint, circuit, closed, "resumed by an operator", now
            ):
                return
        raise Conflict(f"the circuit of endpoint {endpoint.endpoint_id} is changing all the time; try again")

    async def _bury_all(self, endpoint_id: UUID, code: str, reason: str, before: Instant | None = None) -> int:
        count = 0
        while True:
            now = self._clock.now()
            buried = await self._store.bury(endpoint_id, code, reason, now, _BURY_BATCH, before)
            self._telemetry.emit_all(facts.moved(buried, now))
            count += len(buried.moves)
            if not buried.moves:  # fewer than a batch only means that some were claimed meanwhile
                return count


def _refusal(kind: ActKind, state: DeliveryState, *, edited: bool) -> str:
    if edited:
        return f"{state} and cannot be {DONE[kind]} with another payload"
    if state in ACTS_ON[kind]:  # but not in the list that it was asked in
        return f"{state} by now and was not {DONE[kind]}; look at it and decide again"
    return f"{state} and cannot be {DONE[kind]}"


def _check_drain(per_second: float | None) -> None:
    if per_second is not None and not DRAIN_MIN <= per_second <= DRAIN_MAX:
        raise InvalidInput("drain_per_second", f"must be from {DRAIN_MIN:g} to {DRAIN_MAX:g}, got {per_second:g}")


def _check_unmoved(endpoint: Endpoint, seen: Endpoint) -> None:
    if endpoint.state is not seen.state:
        raise Conflict(
            f"endpoint {endpoint.endpoint_id} was {seen.state} and became {endpoint.state} while it was being resumed; "
            "look at it and decide again"
        )
