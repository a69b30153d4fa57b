"""Beside the path: what operators do to deliveries and endpoints. Every act is audited."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.act import Act, ActKind, ActResult, AuditLine
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.outcome import Code
from doorstep.path import facts
from doorstep.path.directory import Directory
from doorstep.path.tuning import Tuning
from doorstep.policy.circuit import after_success
from doorstep.policy.classification import DELETED_WHILE_WAITING
from doorstep.stores.store import Store
from doorstep.telemetry import Telemetry

_BURY_BATCH = 1_000
_DRAIN_MIN, _DRAIN_MAX = 0.001, 100_000.0


class Operator:
    """Acts on deliveries are one transaction with their audit line; changes of an endpoint are audited right after."""

    def __init__(self, store: Store, directory: Directory, clock: Clock, tuning: Tuning, telemetry: Telemetry) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry

    async def act(
        self, kind: ActKind, org_id: UUID, delivery_ids: Sequence[UUID], actor: str, reason: str = ""
    ) -> ActResult:
        """Retry, skip, resolve, delete or cancel; what its state does not allow is refused, one by one."""
        if not delivery_ids:
            raise InvalidInput("delivery_ids", "must name at least one delivery")
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
            )
        )
        self._telemetry.emit_all(facts.moved(done, now))
        return result

    async def pause(self, org_id: UUID, endpoint_id: UUID, actor: str, reason: str = "") -> Endpoint:
        """Hold an endpoint's deliveries until it is resumed."""
        endpoint = await self._living(org_id, endpoint_id)
        changed = msgspec.structs.replace(endpoint, state=EndpointState.PAUSED, state_reason=reason)
        return await self._put(changed, actor, "endpoint.pause", reason)

    async def resume(
        self,
        org_id: UUID,
        endpoint_id: UUID,
        actor: str,
        *,
        drain_per_second: float | None = None,
        skip_older_than: Instant | None = None,
    ) -> Endpoint:
        """Enable a paused or disabled endpoint: drain what waits, drain it at a rate, or skip what is too old.

        What is skipped becomes dead letters, so that it can still be found.
        """
        endpoint = await self._living(org_id, endpoint_id)
        if drain_per_second is not None and not _DRAIN_MIN <= drain_per_second <= _DRAIN_MAX:
            raise InvalidInput(
                "drain_per_second", f"must be from {_DRAIN_MIN:g} to {_DRAIN_MAX:g}, got {drain_per_second:g}"
            )
        if skip_older_than is not None:
            why = f"Skipped on resume: accepted before {to_iso(skip_older_than)}."
            await self._bury_all(endpoint_id, Code.SKIPPED, why, skip_older_than)
        changed = msgspec.structs.replace(
            endpoint,
            state=EndpointState.ACTIVE,
            state_reason="",
            drain_per_second=drain_per_second,
            drain_before=None if drain_per_second is None else self._clock.now(),
        )
        await self._forgive(endpoint_id)
        return await self._put(changed, actor, "endpoint.resume", "")

    async def delete(self, org_id: UUID, endpoint_id: UUID, actor: str) -> None:
        """Delete an endpoint; what waits for it becomes dead letters with that reason."""
        endpoint = await self._living(org_id, endpoint_id)
        changed = msgspec.structs.replace(endpoint, state=EndpointState.DELETED, state_reason=f"deleted by {actor}")
        await self._put(changed, actor, "endpoint.delete", "")
        await self._bury_all(endpoint_id, Code.ENDPOINT_DELETED, DELETED_WHILE_WAITING)

    async def _forgive(self, endpoint_id: UUID) -> None:
        """Start with a closed circuit: days of failures counted before would disable it again at the first one."""
        circuit = await self._store.circuit(endpoint_id)
        closed = after_success(circuit, self._clock.now())
        if closed != circuit:
            await self._store.put_circuit(closed, circuit.version, "resumed by an operator")

    async def _living(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        endpoint = await self._store.endpoint(org_id, endpoint_id)
        if endpoint.state is EndpointState.DELETED:
            raise Conflict(f"endpoint {endpoint_id} was deleted")
        return endpoint

    async def _put(self, endpoint: Endpoint, actor: str, action: str, reason: str) -> Endpoint:
        now = self._clock.now()
        changed = msgspec.structs.replace(endpoint, updated_at=now)
        await self._store.put_endpoint(changed)
        await self._store.add_audit(
            AuditLine(
                at=now,
                org_id=endpoint.org_id,
                actor=actor,
                action=action,
                subjects=(str(endpoint.endpoint_id),),
                result=changed.state,
                reason=reason,
            )
        )
        await self._directory.reload()
        return changed

    async def _bury_all(self, endpoint_id: UUID, code: str, reason: str, before: Instant | None = None) -> None:
        while True:
            now = self._clock.now()
            buried = await self._store.bury(endpoint_id, code, reason, now, _BURY_BATCH, before)
            self._telemetry.emit_all(facts.moved(buried, now))
            if len(buried.moves) < _BURY_BATCH:
                return
