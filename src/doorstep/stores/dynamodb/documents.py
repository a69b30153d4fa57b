"""Documents: organizations, API keys, endpoints, workers and the check of the secret key. Also routing and circuits.

Everything that one `write` changes is one transaction. Each document carries its version as an attribute, and a write
requires the version that its caller expects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import random
from typing import Any, TypeVar, cast
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.bulk import Bulk
from doorstep.model.claim import WorkerEntry
from doorstep.model.delivery import Delivery, DeliveryPayload
from doorstep.model.endpoint import Circuit, CircuitChange, CircuitState, Endpoint, EndpointState
from doorstep.model.event import EventSummary, EventView
from doorstep.model.org import ApiKey, KeyCheck, Org, Routing
from doorstep.stores import notes
from doorstep.stores.dynamodb.client import TRANSACTION_ITEMS_MAX, ConditionFailed, Item, Key, key_of
from doorstep.stores.dynamodb.features import not_offered
from doorstep.stores.dynamodb.keys import (
    ENDPOINTS,
    KEY_CHECK,
    ORGS,
    WORKERS,
    digest_key,
    endpoint_key,
    endpoint_name_key,
    keys_partition,
    org_key,
)
from doorstep.stores.dynamodb.stored import (
    audit_item,
    document_item,
    endpoint_from,
    key_from_item,
    org_from,
    version_of,
)
from doorstep.stores.dynamodb.unit import RACES_MAX
from doorstep.stores.dynamodb.variables import (
    ROUTING,
    circuit_from,
    circuit_item,
    circuit_key,
    next_change,
    number_of,
    org_routing_key,
    read_circuits,
)
from doorstep.stores.dynamodb.views import ViewVerbs
from doorstep.stores.dynamodb.writes import Write, delete, put, put_new, put_versioned
from doorstep.stores.limits import check_revocable, key_by_id, unique_name
from doorstep.stores.store import Delete, Document, Part, Put

T = TypeVar("T")


_RACE_PAUSE_SECONDS = 0.02


class DocumentVerbs(ViewVerbs):
    # -- reading -------------------------------------------------------------------------------------------

    async def get(self, kind: type[T], org_id: UUID | None, key: UUID | tuple[str, str]) -> T:
        found = await self.get_many(kind, org_id, [cast(UUID, key)])
        if found:
            return found[0]
        if kind is Circuit:
            return cast(T, Circuit(endpoint_id=cast(UUID, key)))
        raise NotFound(f"no {kind.__name__} {key}")

    async def get_many(self, kind: type[T], org_id: UUID | None, keys: Sequence[UUID]) -> list[T]:
        ids = list(dict.fromkeys(keys))
        found: Sequence[Any]
        if kind is Endpoint:
            items = await self._aws.get_many(map(endpoint_key, ids))
            found = [one for one in map(endpoint_from, items.values()) if org_id in (None, one.org_id)]
        elif kind is Circuit:
            found = await self._circuits(org_id, ids)
        elif kind in (Delivery, DeliveryPayload):
            found = await self._deliveries(kind, org_id, ids)
        elif kind in (EventView, EventSummary):
            found = await self._events(kind, org_id, ids)
        else:
            raise not_offered(_PART_OF.get(kind.__name__, Part.ALERTS))
        return list(found)

    async def _circuits(self, org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> list[Circuit]:
        circuits = await read_circuits(self._aws, endpoint_ids)
        if org_id is None:
            return list(circuits.values())
        own = {one.endpoint_id for one in await self.get_many(Endpoint, org_id, list(circuits))}
        return [circuit for endpoint_id, circuit in circuits.items() if endpoint_id in own]

    # -- writing -------------------------------------------------------------------------------------------

    async def write(self, changes: Sequence[Put | Delete], entry: AuditEntry | None = None) -> bool:
        created = {one.document.org_id for one in changes if isinstance(one.document, Org)}
        if entry is not None and entry.org_id not in created:
            await self._check_org(entry.org_id)
        if len(changes) == 1 and entry is None and isinstance(changes[0].document, WorkerEntry):
            return await self._write_worker(changes[0])
        async with self._writing:
            return await self._write_documents(changes, entry)

    async def _write_documents(self, changes: Sequence[Put | Delete], entry: AuditEntry | None) -> bool:
        for number in range(RACES_MAX):
            await asyncio.sleep(_RACE_PAUSE_SECONDS * random() * min(number, 10))
            writes = await self._writes_of(changes)
            if writes is None:
                return False
            if entry is not None:
                writes.append(put(audit_item(entry)))
            if not writes:
                return True
            if len(writes) > TRANSACTION_ITEMS_MAX:
                raise Conflict(f"one write can change {TRANSACTION_ITEMS_MAX} items on DynamoDB, got {len(writes)}")
            try:
                await self._aws.transact(writes)
            except ConditionFailed:
                continue  # the next look at the documents tells what has changed
            return True
        raise Conflict("the documents keep being changed by others; try again")

    async def _write_worker(self, change: Put | Delete) -> bool:
        """A heartbeat: nobody else writes this document, so it needs no condition."""
        assert isinstance(change.document, WorkerEntry)
        key = (WORKERS, change.document.name)
        if isinstance(change, Put):
            await self._aws.put(document_item(key, change.document))
            return True
        if await self._aws.get(key) is None:
            return False
        await self._aws.delete(key)
        return True

    async def _writes_of(self, changes: Sequence[Put | Delete]) -> list[Write] | None:
        """The writes of these changes, or None if a document is not at its expected version."""
        writes: list[Write] = []
        number = number_of(await self._aws.get(ROUTING)) + 1
        changed: set[UUID] = set()
        for change in changes:
            document = change.document
            stored = await self._aws.get(_key_of(document))
            if isinstance(change, Delete):
                if stored is None:
                    return None
                writes.append(delete(_key_of(document)))
                continue
            if (
                isinstance(document, Endpoint)
                and stored is not None
                and endpoint_from(stored).org_id != document.org_id
            ):
                raise NotFound(f"no endpoint {document.endpoint_id}")
            version = version_of(stored)
            if change.expected_version == 0 and stored is not None:
                return None
            if change.expected_version not in (None, version):
                return None
            match document:
                case Endpoint():
                    if not await self._may_write_endpoint(document, change, stored, writes, number):
                        return None
                    changed.add(document.org_id)
                case Org():
                    if stored is not None:
                        changed.add(document.org_id)
                    writes.append(_versioned(document_item(org_key(document.org_id), document), stored))
                case ApiKey():
                    await self._write_key(document, stored, writes)
                case KeyCheck():
                    item = document_item(KEY_CHECK, document)
                    writes.append(put(item) if change.expected_version is None else put_new(item))
                case WorkerEntry():
                    writes.append(put(document_item((WORKERS, document.name), document)))
        if changed:
            writes += next_change(number, changed)
        return writes

    async def _may_write_endpoint(
        self, document: Endpoint, change: Put, stored: Item | None, writes: list[Write], number: int
    ) -> bool:
        """Add the writes of an endpoint and of its name. Raises Conflict if the name is taken or no room is left."""
        await self._check_org(document.org_id)
        before = None if stored is None else endpoint_from(stored)
        old_name, new_name = unique_name(before) if before else None, unique_name(document)
        if new_name is not None and new_name != old_name:
            key = endpoint_name_key(document.org_id, new_name)
            holder = await self._aws.get(key)
            if holder is not None and holder["endpoint_id"]["S"] != str(document.endpoint_id):
                raise Conflict(notes.endpoint_name_taken(document.name, UUID(holder["endpoint_id"]["S"])))
            if holder is None:
                writes.append(put_new({**key_of(key), "endpoint_id": {"S": str(document.endpoint_id)}}))
        if old_name is not None and old_name != new_name:
            writes.append(delete(endpoint_name_key(document.org_id, old_name)))
        if before is None and change.limit is not None:
            guard = _guard(document.org_id, "endpoints")
            writes.append(put_versioned(*await self._next(guard)))
            own = [one for one in await self._all_endpoints() if one.org_id == document.org_id]
            if sum(one.state is not EndpointState.DELETED for one in own) >= change.limit:
                raise Conflict(notes.too_many_endpoints(change.limit))
        if change.expected_version is not None:
            document = replace(document, version=change.expected_version + 1)
        item = document_item(endpoint_key(document.endpoint_id), document) | {
            "org_id": {"S": str(document.org_id)},
            "number": {"N": str(number)},
        }
        writes.append(_versioned(item, stored))
        return True

    async def _write_key(self, document: ApiKey, stored: Item | None, writes: list[Write]) -> None:
        await self._check_org(document.org_id)
        pointer = digest_key(document.digest)
        holder = await self._aws.get(pointer)
        if holder is None:
            keyed = {"org_id": {"S": str(document.org_id)}, "key_id": {"S": str(document.key_id)}}
            writes.append(put_new({**key_of(pointer), **keyed}))
        elif holder["key_id"]["S"] != str(document.key_id):
            raise Conflict("another key has the same digest")
        writes.append(_versioned(document_item(_key_of(document), document), stored))

    async def revoke_key(self, org_id: UUID, key_id: UUID, now: Instant, entry: AuditEntry) -> ApiKey:
        for _ in range(RACES_MAX):
            counted = await self._next(_guard(org_id, "revocations"))
            all_keys = await self._org_keys(org_id)
            key = key_by_id(key_id, all_keys)
            if key.revoked_at is not None:
                return key
            check_revocable(key, all_keys, now)
            revoked = replace(key, revoked_at=now)
            writes = [put(document_item(_key_of(revoked), revoked)), put(audit_item(entry))]
            try:
                await self._aws.transact([*writes, put_versioned(*counted)])
            except ConditionFailed:
                continue
            return revoked
        raise Conflict("the keys of this organization keep being changed by others; try again")

    async def _next(self, guard: Key) -> tuple[Item, int]:
        """The next version of a guard and the version that it replaces. Read it before what it guards."""
        version = version_of(await self._aws.get(guard))
        return {**key_of(guard), "version": {"N": str(version + 1)}}, version

    # -- routing and circuits ------------------------------------------------------------------------------

    async def routing(self, known: Mapping[UUID, int]) -> list[Routing]:
        keys = [key for one in known for key in (org_key(one), org_routing_key(one))]
        found = await self._aws.get_many(keys) if keys else {}
        versions = {one: number_of(found.get(org_routing_key(one))) for one in known if org_key(one) in found}
        stale = {one for one, version in versions.items() if version != known[one]}
        items = await self._aws.query(ENDPOINTS) if stale else []
        endpoints = sorted(
            ((endpoint_from(item), number_of(item)) for item in items if UUID(item["org_id"]["S"]) in stale),
            key=lambda one: (one[0].created_at, one[0].endpoint_id),
        )

        def wanted(endpoint: Endpoint, number: int, org_id: UUID) -> bool:
            if 0 <= known[org_id] < versions[org_id]:
                return endpoint.org_id == org_id and number > known[org_id]
            return endpoint.org_id == org_id and endpoint.state is not EndpointState.DELETED

        return [
            Routing(org_from(found[org_key(one)]), versions[one], tuple(e for e, n in endpoints if wanted(e, n, one)))
            for one in stale
        ]

    async def _all_endpoints(self) -> list[Endpoint]:
        return [endpoint_from(item) for item in await self._aws.query(ENDPOINTS)]

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        if await self._aws.get(endpoint_key(circuit.endpoint_id)) is None:
            raise NotFound(f"no endpoint {circuit.endpoint_id}")
        item = await self._aws.get(circuit_key(circuit.endpoint_id))
        old = Circuit(endpoint_id=circuit.endpoint_id) if item is None else circuit_from(item)
        if old.version != expected_version:
            return False
        new = replace(circuit, version=expected_version + 1)
        writes = [put_versioned(circuit_item(new), expected_version)]
        if new.state is not old.state:
            change = CircuitChange(new.changed_at, old.state, new.state, reason)
            writes.append(put(document_item(circuit_change_key(new), change)))
        try:
            await self._aws.transact(writes)
        except ConditionFailed:
            return False
        return True

    async def circuit_counts(self, org_id: UUID | None = None) -> dict[CircuitState, int]:
        live = [one for one in await self._all_endpoints() if one.state is not EndpointState.DELETED]
        own = [one for one in live if one.org_id == org_id or (org_id is None and one.org_id != OPERATIONS_ORG)]
        circuits = await read_circuits(self._aws, [one.endpoint_id for one in own]) if own else {}
        counts = dict.fromkeys(CircuitState, 0)
        for one in own:
            circuit = circuits.get(one.endpoint_id)
            counts[CircuitState.CLOSED if circuit is None else circuit.state] += 1
        return counts

    # -- what other verbs read -----------------------------------------------------------------------------

    async def _org_keys(self, org_id: UUID) -> list[ApiKey]:
        keys = [key_from_item(item) for item in await self._aws.query(keys_partition(org_id))]
        return sorted(keys, key=lambda key: (key.created_at, key.key_id))

    async def _orgs(self) -> list[Org]:
        orgs = [org_from(item) for item in await self._aws.query(ORGS)]
        return sorted(orgs, key=lambda org: (org.created_at, org.org_id))

    async def _actor_name(self, org_id: UUID, actor: str) -> str:
        """The name of the key with this prefix, if there is exactly one name; otherwise the actor."""
        names = {key.name for key in await self._org_keys(org_id) if key.prefix == actor}
        return names.pop() if len(names) == 1 else actor

    async def _add_audit(self, *entries: AuditEntry) -> None:
        for entry in entries:
            await self._aws.put(audit_item(entry))


_PART_OF = {"Entity": Part.PIPELINES, "Bulk": Part.BULK}


def _key_of(document: Document | Any) -> Key:
    match document:
        case Org():
            return org_key(document.org_id)
        case ApiKey():
            return keys_partition(document.org_id), str(document.key_id)
        case KeyCheck():
            return KEY_CHECK
        case Endpoint():
            return endpoint_key(document.endpoint_id)
        case WorkerEntry():
            return WORKERS, document.name
        case Bulk():
            raise not_offered(Part.BULK)
    raise not_offered(_PART_OF.get(type(document).__name__.removesuffix("Declaration"), Part.ALERTS))


def _guard(org_id: UUID, of: str) -> Key:
    """An item that everybody writes who checks something about all documents of a kind, so that two of them cannot both
    rely on what they have read."""
    return f"org#{org_id}", of


def circuit_change_key(circuit: Circuit) -> Key:
    return f"endpoint#{circuit.endpoint_id}", f"change#{circuit.version:012d}"


def _versioned(item: Item, stored: Item | None) -> Write:
    if stored is None:
        return put_new(item)
    return {
        "Put": {
            "Item": item,
            "ConditionExpression": "document = :d",
            "ExpressionAttributeValues": {":d": stored["document"]},
        }
    }
