"""Documents: read by key, and replaced only if the expected version is still current. Also routing and circuits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG, Alert, AlertConfig
from doorstep.model.bulk import Bulk
from doorstep.model.claim import WorkerEntry
from doorstep.model.delivery import Delivery, DeliveryPayload
from doorstep.model.endpoint import Circuit, CircuitChange, CircuitState, Endpoint, EndpointState
from doorstep.model.entity import Entity, PipelineDeclaration
from doorstep.model.event import EventSummary, EventView
from doorstep.model.org import ApiKey, KeyCheck, Org, Routing
from doorstep.model.outbox import OutboxMessage, summary_of_message, view_of_message
from doorstep.stores import notes
from doorstep.stores.incidents import circuit_change_incident, config_change_incident, endpoint_change_incident
from doorstep.stores.limits import check_revocable, key_by_id, unique_name
from doorstep.stores.store import Delete, Document, Put
from tests.reference.projections import summary_of, view_of
from tests.reference.rows import Documents
from tests.reference.tables import Tables

T = TypeVar("T")

decode_entity = msgspec.json.Decoder(Entity).decode


class DocumentVerbs:
    _tables: Tables

    # -- reading -------------------------------------------------------------------------------------------

    async def get(self, kind: type[T], org_id: UUID | None, key: UUID | tuple[str, str]) -> T:
        found = self._get(kind, org_id, key)
        if found is None and kind is Circuit:
            found = Circuit(endpoint_id=key)  # type: ignore[arg-type]
        if found is None:
            raise NotFound(f"no {kind.__name__} {key}")
        return found  # type: ignore[no-any-return]

    async def get_many(self, kind: type[T], org_id: UUID | None, keys: Sequence[UUID]) -> list[T]:
        found = (self._get(kind, org_id, key) for key in dict.fromkeys(keys))
        return [one for one in found if one is not None]

    def _get(self, kind: Any, org_id: UUID | None, key: Any) -> Any:
        """One stored object; None if it does not exist or belongs to another organization."""
        tables = self._tables
        if kind is Entity:
            document = tables.entities.get((org_id, *key)) if org_id else None
            return document and decode_entity(document)
        if kind is Circuit:
            return tables.circuits.get(key) if self.owns_endpoint(org_id, key) else None
        if kind in (EventView, EventSummary):
            return self._get_event(kind, org_id, key)
        if kind in (Delivery, DeliveryPayload):
            row = tables.deliveries.get(key)
            if row is None or org_id not in (None, row.delivery.org_id):
                return None
            if kind is Delivery:
                return row.delivery
            return None if row.event.deleted else DeliveryPayload(key, row.payload)
        by_kind: dict[Any, Documents[UUID, Any]] = {
            Endpoint: tables.endpoints,
            Alert: tables.alerts,
            Bulk: tables.bulks,
        }
        found = by_kind[kind].get(key)
        return found if found is not None and org_id in (None, found.org_id) else None

    def _get_event(self, kind: type[EventView | EventSummary], org_id: UUID | None, event_id: UUID) -> Any:
        message = self._outbox_message(org_id, event_id)
        if message is not None:
            return view_of_message(message) if kind is EventView else summary_of_message(message)
        row = self._tables.events.get(event_id)
        if row is None or org_id not in (None, row.event.org_id) or row.deleted:
            return None
        return (view_of if kind is EventView else summary_of)(row, self._tables)

    def _outbox_message(self, org_id: UUID | None, event_id: UUID) -> OutboxMessage | None:
        """A message in the outbox that has not become an event yet."""
        message = self._tables.outbox.get(event_id)
        if message is None or event_id in self._tables.events or message.org_id not in self._tables.orgs:
            return None
        return message if org_id in (None, message.org_id) else None

    def owns_endpoint(self, org_id: UUID | None, endpoint_id: UUID) -> bool:
        endpoint = self._tables.endpoints.get(endpoint_id)
        return endpoint is not None and org_id in (None, endpoint.org_id)

    # -- writing -------------------------------------------------------------------------------------------

    async def write(self, changes: Sequence[Put | Delete], entry: AuditEntry | None = None) -> bool:
        created = {one.document.org_id for one in changes if isinstance(one.document, Org)}
        if entry is not None and entry.org_id not in created:
            self._tables.check_org(entry.org_id)
        if not all(self._may_be_written(change, entry) for change in changes):
            return False
        for change in changes:
            if isinstance(change, Put):
                self._put(change, entry)
            else:
                self._delete(change.document, entry)
        self._tables.add_audit(entry)
        return True

    def _may_be_written(self, change: Put | Delete, entry: AuditEntry | None) -> bool:
        document = change.document
        documents, key = self._table_of(document)
        stored = documents.get(key)
        if not isinstance(document, Org | KeyCheck | WorkerEntry | PipelineDeclaration):
            self._tables.check_org(document.org_id)
            if stored is not None and stored.org_id != document.org_id:
                if isinstance(document, Endpoint):
                    raise NotFound(f"no endpoint {key}")
                return False
        if isinstance(change, Delete):
            return stored is not None
        if change.expected_version == 0 and stored is not None:
            return False
        if change.expected_version not in (None, getattr(stored, "version", 0)):
            return False
        if isinstance(document, Endpoint):
            self._check_name(document)
        if stored is None and change.limit is not None:
            self._check_room(document, change.limit, entry)
        if isinstance(document, ApiKey):
            self._check_digest(document)
        return True

    def _check_room(self, document: Document, limit: int, entry: AuditEntry | None) -> None:
        if isinstance(document, Endpoint):
            own = (one for one in self._tables.endpoints if one.org_id == document.org_id)
            if sum(one.state is not EndpointState.DELETED for one in own) >= limit:
                raise Conflict(notes.too_many_endpoints(limit))
        elif not isinstance(document, Org | KeyCheck | WorkerEntry):
            configs = [one for one in self._tables.alert_configs if one.org_id == document.org_id]
            if len(configs) >= limit and not list(_over(configs, entry)):
                raise Conflict(notes.too_many_alert_configs(limit))

    def _check_name(self, endpoint: Endpoint) -> None:
        name = unique_name(endpoint)
        own = (one for one in self._tables.endpoints if name is not None and one.org_id == endpoint.org_id)
        holder = next((one for one in own if unique_name(one) == name), endpoint)
        if holder.endpoint_id != endpoint.endpoint_id:
            raise Conflict(notes.endpoint_name_taken(endpoint.name, holder.endpoint_id))

    def _check_digest(self, key: ApiKey) -> None:
        if any(one.digest == key.digest and one.key_id != key.key_id for one in self._tables.keys):
            raise Conflict("another key has the same digest")

    def _put(self, change: Put, entry: AuditEntry | None) -> None:
        tables, document = self._tables, change.document
        documents, key = self._table_of(document)
        stored = documents.get(key)
        if isinstance(document, Endpoint):
            tables.add_incident(endpoint_change_incident(stored and stored.state, document))
            tables.mark_changed(document.org_id, document.endpoint_id)
        elif isinstance(document, Org):
            if stored is not None:
                tables.mark_changed(document.org_id)
        elif isinstance(document, AlertConfig):
            if stored is None and change.limit is not None:
                self._make_room(document.org_id, change.limit, entry)
            tables.add_incident(config_change_incident(document, _at(entry)))
        if change.expected_version is not None and not isinstance(document, Bulk | KeyCheck):
            document = replace(document, version=change.expected_version + 1)
        documents[key] = document

    def _make_room(self, org_id: UUID, limit: int, entry: AuditEntry | None) -> None:
        """Remove expired alert settings if the organization has reached its limit."""
        configs = [one for one in self._tables.alert_configs if one.org_id == org_id]
        if len(configs) >= limit:
            for config in _over(configs, entry):
                del self._tables.alert_configs[config.config_id]

    def _delete(self, document: AlertConfig | WorkerEntry, entry: AuditEntry | None) -> None:
        documents, key = self._table_of(document)
        if isinstance(document, AlertConfig):
            self._tables.add_incident(config_change_incident(documents[key], _at(entry)))
        del documents[key]

    def _table_of(self, document: Document) -> tuple[Documents[Any, Any], Any]:
        """The table for this kind of document, and the document's key in that table."""
        tables = self._tables
        match document:
            case Org():
                return tables.orgs, document.org_id
            case ApiKey():
                return tables.keys, document.key_id
            case KeyCheck():
                return tables.key_checks, None
            case Endpoint():
                return tables.endpoints, document.endpoint_id
            case Bulk():
                return tables.bulks, document.bulk_id
            case WorkerEntry():
                return tables.workers, document.name
            case PipelineDeclaration():
                return tables.pipelines, (document.org_id, document.pipeline)
        return tables.alert_configs, document.config_id

    async def revoke_key(self, org_id: UUID, key_id: UUID, now: Instant, entry: AuditEntry) -> ApiKey:
        all_keys = [key for key in self._tables.keys if key.org_id == org_id]
        key = key_by_id(key_id, all_keys)
        if key.revoked_at is not None:
            return key
        check_revocable(key, all_keys, now)
        revoked = replace(key, revoked_at=now)
        await self.write([Put(document=revoked)], entry)
        return revoked

    # -- routing and circuits ------------------------------------------------------------------------------

    async def routing(self, known: Mapping[UUID, int]) -> list[Routing]:
        orgs = ((self._tables.orgs.get(org_id), known_version) for org_id, known_version in known.items())
        found = (self._routing(org, known_version) for org, known_version in orgs if org is not None)
        return [one for one in found if one.version != known[one.org.org_id]]

    def _routing(self, org: Org, known_version: int) -> Routing:
        tables, version = self._tables, self._tables.routing[org.org_id]
        own = [one for one in tables.endpoints if one.org_id == org.org_id]
        if 0 <= known_version < version:
            changed = [one for one in own if tables.changed[one.endpoint_id] > known_version]
        else:
            changed = [one for one in own if one.state is not EndpointState.DELETED]
        return Routing(org, version, tuple(changed))

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        endpoint = self._tables.endpoints.get(circuit.endpoint_id)
        if endpoint is None:
            raise NotFound(f"no endpoint {circuit.endpoint_id}")
        old = await self.get(Circuit, None, circuit.endpoint_id)
        if old.version != expected_version:
            return False
        self._tables.circuits[circuit.endpoint_id] = replace(circuit, version=expected_version + 1)
        if circuit.state is not old.state:
            change = CircuitChange(circuit.changed_at, old.state, circuit.state, reason)
            self._tables.circuit_history[circuit.endpoint_id].append(change)
            self._tables.add_incident(circuit_change_incident(old, circuit, endpoint.org_id, reason))
        return True

    async def circuit_counts(self, org_id: UUID | None = None) -> dict[CircuitState, int]:
        live = (one for one in self._tables.endpoints if one.state is not EndpointState.DELETED)
        own = [one for one in live if one.org_id == org_id or (org_id is None and one.org_id != OPERATIONS_ORG)]
        states = [(await self.get(Circuit, None, one.endpoint_id)).state for one in own]
        return {state: states.count(state) for state in CircuitState}


def _over(configs: Iterable[AlertConfig], entry: AuditEntry | None) -> Iterable[AlertConfig]:
    """The alert settings that have expired."""
    return (one for one in configs if one.ends_at is not None and one.ends_at <= _at(entry))


def _at(entry: AuditEntry | None) -> Instant:
    assert entry is not None, "a change of alert settings has an audit entry, which says when it was made"
    return entry.at
