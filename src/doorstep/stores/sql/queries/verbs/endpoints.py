"""Endpoints, their circuits, and how they stand."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.circuit import Circuit, CircuitChange, CircuitState
from doorstep.model.claim import Moved
from doorstep.model.endpoint import Endpoint, Routing
from doorstep.model.listing import Count
from doorstep.stores.limits import COUNT_MAX
from doorstep.stores.sql.queries import actions, endpoint_health, endpoints
from doorstep.stores.sql.queries import endpoint_health as standing
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class EndpointVerbs(Scripted):
    async def routing(self) -> Routing:
        return await self._read(None, endpoints.routing)

    async def routing_version(self) -> int:
        return await self._read(None, endpoints.routing_version)

    async def put_endpoint(
        self,
        endpoint: Endpoint,
        expected_version: int,
        line: AuditEntry | None = None,
        living_max: int | None = None,
    ) -> bool:
        return await self._write(None, endpoints.put_endpoint, endpoint, expected_version, line, living_max)

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        return await self._read(org_id, endpoints.endpoint, org_id, endpoint_id)

    async def these_endpoints(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> list[Endpoint]:
        return await self._read(org_id, endpoints.these_endpoints, org_id, endpoint_ids)

    async def circuit(self, endpoint_id: UUID) -> Circuit:
        return await self._read(None, endpoints.circuit, endpoint_id)

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        return await self._write(None, endpoints.put_circuit, circuit, expected_version, reason)

    async def circuit_history(self, endpoint_id: UUID, limit: int | None = None) -> list[CircuitChange]:
        return await self._read(None, endpoints.circuit_changes, endpoint_id, limit)

    async def circuits(self, org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> dict[UUID, Circuit]:
        return await self._read(org_id, standing.stored_circuits, org_id, endpoint_ids)

    async def ailing(self, org_id: UUID, since: Instant, hours: int, limit: int) -> list[UUID]:
        return await self._read(org_id, endpoint_health.unhealthy, org_id, since, hours, limit)

    async def waiting_since(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        return await self._read(org_id, standing.waiting_since, org_id, endpoint_ids)

    async def count_waiting(
        self, org_id: UUID, endpoint_id: UUID, created_before: Instant, limit: int = COUNT_MAX
    ) -> Count:
        return await self._read(org_id, standing.count_waiting, org_id, endpoint_id, created_before, limit)

    async def circuit_counts(self, org_id: UUID | None = None) -> dict[CircuitState, int]:
        return await self._read(org_id, endpoints.circuit_counts, org_id)

    async def bury(
        self,
        endpoint_id: UUID,
        code: str,
        reason: str,
        now: Instant,
        limit: int,
        created_before: Instant | None = None,
    ) -> Moved:
        return await self._write(
            None, actions.dead_letter_waiting, endpoint_id, code, reason, now, limit, created_before
        )
