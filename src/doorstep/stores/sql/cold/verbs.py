"""The verbs of the store protocol that are scripts, for a SQL store to inherit.

A store adds two ways of running a script, `_read` and `_write`, and the hot verbs. `scope` is the organization
that a script is about: PostgreSQL lets it see no other's rows. None sees all, for verbs of the engine itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.act import Act, ActResult, AuditLine
from doorstep.model.attempt import Attempt
from doorstep.model.circuit import Circuit, CircuitChange
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.endpoint import Endpoint, Routing
from doorstep.model.event import EventView
from doorstep.model.move import Moved
from doorstep.model.org import ApiKey, Org
from doorstep.model.settlement import StatusChange
from doorstep.stores.sql.cold import house, operators, reading, registry
from doorstep.stores.sql.cold.script import Script
from doorstep.stores.store import Cleaned

P = ParamSpec("P")
T = TypeVar("T")


class ColdVerbs(ABC):
    """Every verb outside the hot path, on top of `_read` and `_write`."""

    @abstractmethod
    async def _read(
        self, scope: UUID | None, script: Callable[P, Script[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a script that changes nothing, in one consistent picture of the data."""

    @abstractmethod
    async def _write(
        self, scope: UUID | None, script: Callable[P, Script[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a script in a transaction; when this returns, what it did is on stable storage."""

    # -- endpoints and circuits ----------------------------------------------------------------------------

    async def routing(self) -> Routing:
        return await self._read(None, registry.routing)

    async def routing_version(self) -> int:
        return await self._read(None, registry.routing_version)

    async def put_endpoint(self, endpoint: Endpoint) -> None:
        await self._write(None, registry.put_endpoint, endpoint)

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        return await self._read(org_id, registry.endpoint, org_id, endpoint_id)

    async def circuit(self, endpoint_id: UUID) -> Circuit:
        return await self._read(None, registry.circuit, endpoint_id)

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        return await self._write(None, registry.put_circuit, circuit, expected_version, reason)

    async def circuit_history(self, endpoint_id: UUID) -> list[CircuitChange]:
        return await self._read(None, registry.circuit_changes, endpoint_id)

    async def bury(
        self,
        endpoint_id: UUID,
        code: str,
        reason: str,
        now: Instant,
        limit: int,
        created_before: Instant | None = None,
    ) -> Moved:
        return await self._write(None, operators.bury, endpoint_id, code, reason, now, limit, created_before)

    # -- operators -----------------------------------------------------------------------------------------

    async def act(self, act: Act) -> tuple[ActResult, Moved]:
        return await self._write(act.org_id, operators.act, act)

    async def acknowledge(self, org_id: UUID, event_id: UUID, now: Instant) -> StatusChange:
        return await self._write(org_id, operators.acknowledge, org_id, event_id, now)

    async def add_audit(self, line: AuditLine) -> None:
        await self._write(line.org_id, operators.add_audit, line)

    async def audit(self, org_id: UUID, limit: int = 100) -> list[AuditLine]:
        return await self._read(org_id, operators.audit_lines, org_id, limit)

    # -- reading -------------------------------------------------------------------------------------------

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        return await self._read(org_id, reading.event, org_id, event_id)

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        return await self._read(org_id, reading.deliveries, org_id, event_id)

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery:
        return await self._read(org_id, reading.delivery, org_id, delivery_id)

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        return await self._read(org_id, reading.attempts, org_id, delivery_id)

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        return await self._read(org_id, reading.history, org_id, delivery_id)

    async def tally(self) -> dict[DeliveryState, int]:
        return await self._read(None, reading.tally)

    # -- keeping house -------------------------------------------------------------------------------------

    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        return await self._write(None, house.archive, dead_before, now, limit)

    async def clean(self, settled_before: Instant, now: Instant, limit: int) -> Cleaned:
        return await self._write(None, house.clean, settled_before, now, limit)

    # -- organizations and keys ----------------------------------------------------------------------------

    async def put_org(self, org: Org) -> None:
        await self._write(None, registry.put_org, org)

    async def orgs(self) -> list[Org]:
        return await self._read(None, registry.all_orgs)

    async def put_key(self, key: ApiKey) -> None:
        await self._write(None, registry.put_key, key)

    async def keys(self, org_id: UUID) -> list[ApiKey]:
        return await self._read(org_id, registry.keys_of, org_id)

    async def find_key(self, digest: bytes) -> ApiKey | None:
        return await self._read(None, registry.find_key, digest)
