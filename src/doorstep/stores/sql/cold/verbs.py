"""The verbs of the store protocol that are scripts, for a SQL store to inherit.

A store adds two ways of running a script, `_read` and `_write`, and the hot verbs. `scope` is the organization
that a script is about: PostgreSQL lets it see no other's rows. None sees all, for verbs of the engine itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import ParamSpec, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.act import Act, ActResult, AuditLine
from doorstep.model.alert import Alert, AlertFilter, Telling
from doorstep.model.attempt import Attempt
from doorstep.model.batch import BatchFilter
from doorstep.model.bulk import Bulk, BulkStep, UnderWay
from doorstep.model.channel import Arrangement
from doorstep.model.circuit import Circuit, CircuitChange, CircuitState
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.endpoint import Endpoint, EndpointState, Routing
from doorstep.model.entity import Entity, EntityChange, EntityFilter, Phase
from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.incident import Incident
from doorstep.model.listing import CauseGroup, Count, EventFilter, Letters, Page, Queue
from doorstep.model.move import Moved
from doorstep.model.org import ApiKey, Org
from doorstep.model.posting import Posting
from doorstep.model.rollup import Figures, Point, Span
from doorstep.model.settlement import StatusChange
from doorstep.stores.bounds import COUNT_MAX
from doorstep.stores.sql.cold import (
    alerts,
    audit,
    cleaning,
    declared,
    deleting,
    entities,
    entity_lists,
    house,
    keys,
    operators,
    orgs,
    reading,
    registry,
    rollups,
    standing,
)
from doorstep.stores.sql.cold import arrangements as arrangement_scripts
from doorstep.stores.sql.cold import bulk as bulk_scripts
from doorstep.stores.sql.cold import incidents as incident_scripts
from doorstep.stores.sql.cold import outbox as outbox_scripts
from doorstep.stores.sql.cold.listing import batches, causes, letters, queue, registers
from doorstep.stores.sql.cold.listing import events as event_lists
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

    # -- the outbox ----------------------------------------------------------------------------------------

    async def post(self, postings: Sequence[Posting]) -> None:
        await self._write(None, outbox_scripts.post, postings)

    async def outbox(self, limit: int) -> list[Posting]:
        return await self._read(None, outbox_scripts.outbox, limit)

    async def set_aside(self, event_id: UUID, refusal: str, now: Instant) -> None:
        await self._write(None, outbox_scripts.set_aside, event_id, refusal, now)

    async def refused(self, limit: int) -> list[Posting]:
        return await self._read(None, outbox_scripts.refused, limit)

    async def put_back(self, event_ids: Sequence[UUID], line: AuditLine) -> list[Posting]:
        found = await self._write(None, outbox_scripts.put_back, event_ids, line)
        self.tell_posted()
        return found

    async def discard(self, event_ids: Sequence[UUID], line: AuditLine) -> list[Posting]:
        return await self._write(None, outbox_scripts.discard, event_ids, line)

    @abstractmethod
    def tell_posted(self) -> None: ...

    # -- endpoints and circuits ----------------------------------------------------------------------------

    async def routing(self) -> Routing:
        return await self._read(None, registry.routing)

    async def routing_version(self) -> int:
        return await self._read(None, registry.routing_version)

    async def put_endpoint(
        self,
        endpoint: Endpoint,
        expected_version: int,
        line: AuditLine | None = None,
        living_max: int | None = None,
    ) -> bool:
        return await self._write(None, registry.put_endpoint, endpoint, expected_version, line, living_max)

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        return await self._read(org_id, registry.endpoint, org_id, endpoint_id)

    async def circuit(self, endpoint_id: UUID) -> Circuit:
        return await self._read(None, registry.circuit, endpoint_id)

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        return await self._write(None, registry.put_circuit, circuit, expected_version, reason)

    async def circuit_history(self, endpoint_id: UUID) -> list[CircuitChange]:
        return await self._read(None, registry.circuit_changes, endpoint_id)

    async def circuits(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Circuit]:
        return await self._read(org_id, standing.circuits, org_id, endpoint_ids)

    async def waiting_since(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        return await self._read(org_id, standing.waiting_since, org_id, endpoint_ids)

    async def circuit_counts(self, org_id: UUID | None = None) -> dict[CircuitState, int]:
        return await self._read(org_id, registry.circuit_counts, org_id)

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
        await self._write(line.org_id, audit.add_audit, line)

    async def delete_event(self, org_id: UUID, event_id: UUID, actor: str, now: Instant) -> Moved:
        return await self._write(org_id, deleting.delete_event, org_id, event_id, actor, now)

    # -- bulk operations -----------------------------------------------------------------------------------

    async def add_bulk(self, bulk: Bulk, line: AuditLine | None = None) -> None:
        await self._write(None, bulk_scripts.add_bulk, bulk, line)

    async def bulk(self, org_id: UUID, bulk_id: UUID) -> Bulk:
        return await self._read(org_id, bulk_scripts.bulk, org_id, bulk_id)

    async def list_bulk(self, org_id: UUID, cursor: str | None, limit: int) -> Page[Bulk]:
        return await self._read(org_id, bulk_scripts.list_bulk, org_id, cursor, limit)

    async def live_bulks(self) -> list[Bulk]:
        return await self._read(None, bulk_scripts.live_bulks)

    async def step_bulk(
        self, bulk: Bulk, expected_version: int, act: Act | None = None, line: AuditLine | None = None
    ) -> BulkStep | None:
        return await self._write(bulk.org_id, bulk_scripts.step_bulk, bulk, expected_version, act, line)

    async def bulk_has_results(self, org_id: UUID, bulk_id: UUID) -> bool:
        return await self._read(org_id, bulk_scripts.bulk_has_results, org_id, bulk_id)

    async def bulk_under_way(self, org_id: UUID, bulk_id: UUID) -> list[UnderWay]:
        return await self._read(org_id, bulk_scripts.bulk_under_way, org_id, bulk_id)

    async def bulk_failures(self, org_id: UUID, bulk_id: UUID, cursor: str | None, limit: int) -> Page[Delivery]:
        return await self._read(org_id, bulk_scripts.bulk_failures, org_id, bulk_id, cursor, limit)

    # -- entities of pipelines -----------------------------------------------------------------------------

    async def put_entity(
        self,
        entity: Entity,
        expected_version: int,
        change: EntityChange | None = None,
        posted: Sequence[Posting] = (),
        line: AuditLine | None = None,
    ) -> bool:
        return await self._write(entity.org_id, entities.put_entity, entity, expected_version, change, posted, line)

    async def delete_entity(self, entity: Entity, line: AuditLine) -> bool:
        return await self._write(entity.org_id, entities.delete_entity, entity, line)

    async def entity(self, org_id: UUID, pipeline: str, entity_id: str) -> Entity:
        return await self._read(org_id, entities.entity, org_id, pipeline, entity_id)

    async def entity_history(self, org_id: UUID, pipeline: str, entity_id: str) -> list[EntityChange]:
        return await self._read(org_id, entities.history, org_id, pipeline, entity_id)

    async def list_entities(
        self, org_id: UUID, wanted: EntityFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Entity]:
        return await self._read(org_id, entity_lists.list_entities, org_id, wanted, cursor, limit)

    async def adrift(
        self, org_id: UUID, pipeline: str, endpoint_ids: Sequence[UUID], cursor: str | None, limit: int
    ) -> Page[Entity]:
        return await self._read(org_id, entity_lists.adrift, org_id, pipeline, endpoint_ids, cursor, limit)

    async def expecting(self, org_id: UUID, pipeline: str, event_ids: Sequence[UUID]) -> list[Entity]:
        return await self._read(org_id, entity_lists.expecting, org_id, pipeline, event_ids)

    async def untouched(self, org_id: UUID, pipeline: str, dead_before: Instant, limit: int) -> list[Entity]:
        return await self._read(org_id, entity_lists.untouched, org_id, pipeline, dead_before, limit)

    async def entity_statuses(self, org_id: UUID, pipeline: str) -> list[str]:
        return await self._read(org_id, entity_lists.entity_statuses, org_id, pipeline)

    async def clean_entities(
        self,
        org_id: UUID,
        pipeline: str,
        status: str,
        phases: Collection[Phase],
        before: Instant,
        cursor: str | None,
        limit: int,
    ) -> tuple[int, str | None]:
        return await self._write(
            org_id, entity_lists.clean_entities, org_id, pipeline, status, phases, before, cursor, limit
        )

    async def declare_pipelines(self, names: Sequence[tuple[UUID, str]], now: Instant) -> None:
        await self._write(None, declared.declare_pipelines, names, now)

    async def declared_pipelines(self) -> dict[tuple[UUID, str], Instant]:
        return await self._read(None, declared.declared_pipelines)

    # -- alerts --------------------------------------------------------------------------------------------

    async def any_incident(self) -> bool:
        return await self._read(None, incident_scripts.any_incident)

    async def incidents(self, limit: int) -> list[Incident]:
        return await self._read(None, incident_scripts.first_incidents, limit)

    async def tell(self, telling: Telling) -> bool:
        told = await self._write(None, alerts.tell, telling)  # its messages are of the reserved organization
        if told and telling.postings:
            self.tell_posted()
        return told

    async def alert(self, org_id: UUID, alert_id: UUID) -> Alert:
        return await self._read(org_id, alerts.alert, org_id, alert_id)

    async def list_alerts(
        self, org_id: UUID, wanted: AlertFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Alert]:
        return await self._read(org_id, alerts.list_alerts, org_id, wanted, cursor, limit)

    async def live_alerts(self, org_id: UUID | None, ended_after: Instant) -> list[Alert]:
        return await self._read(org_id, alerts.live_alerts, org_id, ended_after)

    async def clean_alerts(self, ended_before: Instant, limit: int) -> int:
        return await self._write(None, alerts.clean_alerts, ended_before, limit)

    async def put_arrangement(
        self, arrangement: Arrangement, expected_version: int, line: AuditLine, most: int
    ) -> bool:
        return await self._write(
            arrangement.org_id, arrangement_scripts.put_arrangement, arrangement, expected_version, line, most
        )

    async def remove_arrangement(self, org_id: UUID, arrangement_id: UUID, line: AuditLine) -> bool:
        return await self._write(org_id, arrangement_scripts.remove_arrangement, org_id, arrangement_id, line)

    async def arrangements(self, org_id: UUID) -> list[Arrangement]:
        return await self._read(org_id, arrangement_scripts.all_arrangements, org_id)

    # -- reading -------------------------------------------------------------------------------------------

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        return await self._read(org_id, reading.event, org_id, event_id)

    async def summaries(self, org_id: UUID, event_ids: Sequence[UUID]) -> list[EventSummary]:
        return await self._read(org_id, event_lists.summaries, org_id, event_ids)

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        return await self._read(org_id, reading.deliveries, org_id, event_id)

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery:
        return await self._read(org_id, reading.delivery, org_id, delivery_id)

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        return await self._read(org_id, reading.attempts, org_id, delivery_id)

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        return await self._read(org_id, reading.history, org_id, delivery_id)

    async def payload(self, org_id: UUID, delivery_id: UUID) -> bytes:
        return await self._read(org_id, reading.payload, org_id, delivery_id)

    async def tally(self) -> dict[DeliveryState, int]:
        return await self._read(None, reading.tally)

    # -- lists ---------------------------------------------------------------------------------------------

    async def list_events(
        self, org_id: UUID, wanted: EventFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[EventSummary]:
        return await self._read(org_id, event_lists.list_events, org_id, wanted, cursor, limit)

    async def inbox(
        self, org_id: UUID, status: EventStatus, cursor: str | None = None, limit: int = 50
    ) -> Page[EventView]:
        return await self._read(org_id, event_lists.inbox, org_id, status, cursor, limit)

    async def count_inbox(self, org_id: UUID, status: EventStatus, limit: int = COUNT_MAX) -> Count:
        return await self._read(org_id, event_lists.count_inbox, org_id, status, limit)

    async def retry_queue(
        self, org_id: UUID, wanted: Queue, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        return await self._read(org_id, queue.retry_queue, org_id, wanted, cursor, limit)

    async def count_retry_queue(self, org_id: UUID, wanted: Queue, limit: int = COUNT_MAX) -> Count:
        return await self._read(org_id, queue.count_retry_queue, org_id, wanted, limit)

    async def dead_letters(
        self, org_id: UUID, wanted: Letters, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        return await self._read(org_id, letters.dead_letters, org_id, wanted, cursor, limit)

    async def count_dead_letters(self, org_id: UUID, wanted: Letters, limit: int = COUNT_MAX) -> Count:
        return await self._read(org_id, letters.count_dead_letters, org_id, wanted, limit)

    async def cause_groups(
        self, org_id: UUID, wanted: Letters, cursor: str | None = None, limit: int = 50
    ) -> Page[CauseGroup]:
        return await self._read(org_id, causes.cause_groups, org_id, wanted, cursor, limit)

    async def list_batches(
        self, org_id: UUID, wanted: BatchFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        return await self._read(org_id, batches.list_batches, org_id, wanted, cursor, limit)

    async def list_endpoints(
        self, org_id: UUID, state: EndpointState | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Endpoint]:
        return await self._read(org_id, registers.list_endpoints, org_id, state, cursor, limit)

    async def list_audit(
        self,
        org_id: UUID,
        actor: str | None = None,
        action: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[AuditLine]:
        return await self._read(org_id, registers.list_audit, org_id, actor, action, cursor, limit)

    # -- figures -------------------------------------------------------------------------------------------

    async def fold(self, now: Instant, limit: int, *, minutes_before: Instant = 0, hours_before: Instant = 0) -> int:
        return await self._write(None, rollups.fold, now, limit, minutes_before, hours_before)

    async def totals(self, org_id: UUID | None = None) -> Figures:
        return await self._read(org_id, rollups.totals, org_id)

    async def series(
        self, org_id: UUID | None, endpoint_id: UUID | None, span: Span, since: Instant, until: Instant
    ) -> list[Point]:
        return await self._read(org_id, rollups.series, org_id, endpoint_id, span, since, until)

    async def figures(
        self, org_id: UUID, endpoint_ids: Sequence[UUID], since: Instant, until: Instant
    ) -> dict[UUID, Figures]:
        return await self._read(org_id, rollups.figures, org_id, endpoint_ids, since, until)

    async def levels(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Figures]:
        return await self._read(org_id, rollups.levels, org_id, endpoint_ids)

    # -- keeping house -------------------------------------------------------------------------------------

    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        return await self._write(None, house.archive, dead_before, now, limit)

    async def expire(self, code: str, reason: str, since: Instant, now: Instant, limit: int) -> Moved:
        # Looked for by a reader: the writer of SQLite has better things to do, and mostly there is nothing.
        found = await self._read(None, house.expired_events, since, now, limit)
        return await self._write(None, house.expire, found, code, reason, now) if found else Moved()

    async def clean(
        self,
        settled_before: Instant,
        now: Instant,
        limit: int,
        *,
        inbox_before: Instant = 0,
        audit_before: Instant = 0,
    ) -> Cleaned:
        return await self._write(None, cleaning.clean, settled_before, inbox_before, audit_before, now, limit)

    # -- organizations and keys ----------------------------------------------------------------------------

    async def put_org(self, org: Org) -> None:
        await self._write(None, orgs.put_org, org)

    async def orgs(self) -> list[Org]:
        return await self._read(None, orgs.all_orgs)

    async def put_key(self, key: ApiKey, line: AuditLine | None = None) -> None:
        await self._write(None, keys.put_key, key, line)

    async def revoke_key(self, org_id: UUID, key_id: UUID, now: Instant, line: AuditLine) -> ApiKey:
        return await self._write(org_id, keys.revoke_key, org_id, key_id, now, line)

    async def keys(self, org_id: UUID) -> list[ApiKey]:
        return await self._read(org_id, keys.keys_of, org_id)

    async def find_key(self, digest: bytes) -> ApiKey | None:
        return await self._read(None, keys.find_key, digest)
