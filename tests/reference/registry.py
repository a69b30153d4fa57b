"""Who sends and who receives: organizations, keys, endpoints and their circuits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.circuit import Circuit, CircuitChange, CircuitState
from doorstep.model.endpoint import Endpoint, EndpointState, Routing
from doorstep.model.org import ApiKey, Org
from doorstep.stores import notes
from doorstep.stores.incidents import turn_of_circuit, turn_of_endpoint
from doorstep.stores.revoking import check_revocable, named_key
from tests.reference.tables import Tables


class RegistryVerbs:
    """Configuration and what is remembered about endpoints."""

    _tables: Tables

    async def routing(self) -> Routing:
        live = (one for one in self._tables.endpoints.values() if one.state is not EndpointState.DELETED)
        return Routing(self._tables.routing_version, tuple(live))

    async def routing_version(self) -> int:
        return self._tables.routing_version

    async def put_endpoint(
        self,
        endpoint: Endpoint,
        expected_version: int,
        line: AuditEntry | None = None,
        living_max: int | None = None,
    ) -> bool:
        self._tables.check_org(endpoint.org_id)
        present = self._tables.endpoints.get(endpoint.endpoint_id)
        if present is not None and present.org_id != endpoint.org_id:
            raise NotFound(f"no endpoint {endpoint.endpoint_id}")
        if expected_version != (present.version if present else 0):
            return False
        if present is None:
            self._check_room(endpoint.org_id, living_max)
        self._tables.endpoints[endpoint.endpoint_id] = replace(endpoint, version=expected_version + 1)
        self._tables.add_incident(turn_of_endpoint(present.state if present else None, endpoint))
        self._tables.routing_version += 1
        if line is not None:
            self._tables.audit.append(line)
        return True

    def _check_room(self, org_id: UUID, living_max: int | None) -> None:
        endpoints = (one for one in self._tables.endpoints.values() if one.org_id == org_id)
        living = sum(one.state is not EndpointState.DELETED for one in endpoints)
        if living_max is not None and living >= living_max:
            raise Conflict(notes.too_many_endpoints(living_max))

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        endpoint = self._tables.endpoints.get(endpoint_id)
        if endpoint is None or endpoint.org_id != org_id:
            raise NotFound(f"no endpoint {endpoint_id}")
        return endpoint

    async def these_endpoints(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> list[Endpoint]:
        found = [self._tables.endpoints.get(endpoint_id) for endpoint_id in dict.fromkeys(endpoint_ids)]
        return [one for one in found if one is not None and one.org_id == org_id]

    async def circuit(self, endpoint_id: UUID) -> Circuit:
        return self._tables.circuits.get(endpoint_id) or Circuit(endpoint_id=endpoint_id)

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        if circuit.endpoint_id not in self._tables.endpoints:
            raise NotFound(f"no endpoint {circuit.endpoint_id}")
        old = await self.circuit(circuit.endpoint_id)
        if old.version != expected_version:
            return False
        self._tables.circuits[circuit.endpoint_id] = replace(circuit, version=expected_version + 1)
        if circuit.state is not old.state:
            change = CircuitChange(circuit.changed_at, old.state, circuit.state, reason)
            self._tables.circuit_history[circuit.endpoint_id].append(change)
            org_id = self._tables.endpoints[circuit.endpoint_id].org_id
            self._tables.add_incident(turn_of_circuit(old, circuit, org_id, reason))
        return True

    async def circuit_history(self, endpoint_id: UUID, limit: int | None = None) -> list[CircuitChange]:
        changes = self._tables.circuit_history.get(endpoint_id, [])
        return changes[max(0, len(changes) - (len(changes) if limit is None else limit)) :]

    async def circuit_counts(self, org_id: UUID | None = None) -> dict[CircuitState, int]:
        owners = {org_id} if org_id is not None else self._tables.orgs.keys() - {OPERATIONS_ORG}
        living = [one for one in (await self.routing()).endpoints if one.org_id in owners]
        states = [(await self.circuit(one.endpoint_id)).state for one in living]
        return {state: states.count(state) for state in CircuitState}

    async def put_org(self, org: Org, line: AuditEntry | None = None) -> None:
        if line is not None and line.org_id != org.org_id:
            self._tables.check_org(line.org_id)
        self._tables.routing_version += org.org_id in self._tables.orgs
        self._tables.orgs[org.org_id] = org
        if line is not None:
            self._tables.audit.append(line)

    async def orgs(self) -> list[Org]:
        return list(self._tables.orgs.values())

    async def put_key(self, key: ApiKey, line: AuditEntry | None = None) -> None:
        self._tables.check_org(key.org_id)
        known = await self.find_key(key.digest)
        if known is not None and known.key_id != key.key_id:
            raise Conflict("another key has the same digest")
        self._tables.keys[key.key_id] = key
        if line is not None:
            self._tables.audit.append(line)

    async def revoke_key(self, org_id: UUID, key_id: UUID, now: Instant, line: AuditEntry) -> ApiKey:
        all_keys = await self.keys(org_id)
        key = named_key(key_id, all_keys)
        if key.revoked_at is not None:
            return key
        check_revocable(key, all_keys, now)
        revoked = replace(key, revoked_at=now)
        await self.put_key(revoked, line)
        return revoked

    async def keys(self, org_id: UUID) -> list[ApiKey]:
        return [key for key in self._tables.keys.values() if key.org_id == org_id]

    async def key_names(self, org_id: UUID, prefixes: Sequence[str]) -> dict[str, str]:
        names: dict[str, set[str]] = defaultdict(set)
        for key in await self.keys(org_id):
            names[key.prefix].add(key.name)
        return {prefix: min(names[prefix]) for prefix in prefixes if len(names.get(prefix, ())) == 1}

    async def keys_called(self, org_id: UUID, name: str, limit: int) -> list[str]:
        found = [key.prefix for key in reversed(await self.keys(org_id)) if key.name == name]
        return list(dict.fromkeys(found[:limit]))

    async def find_key(self, digest: bytes) -> ApiKey | None:
        return next((key for key in self._tables.keys.values() if key.digest == digest), None)
