"""The store methods ("verbs") outside the hot path, written once for both SQL stores.

Each method runs a transaction script (queries/transaction.py). The generic methods, such as `get` and `page`, look up
their script in the tables below, by the type of the record or query. Each store implements `_run` and the methods of
the hot path, such as `accept` and `claim`.

`scope` is the organization whose data a script may read and write. PostgreSQL hides the rows of all other organizations
from the script. With the scope None, which the engine uses for its own reads and writes, the script sees all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Any, ClassVar, ParamSpec, TypeVar, cast
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model import alert, listing
from doorstep.model.action import Action, ActionKind, ActionResult, AuditEntry
from doorstep.model.alert import AlertWrite
from doorstep.model.batch import BatchFilter
from doorstep.model.bulk import Bulk, BulkFailures, BulkFilter, BulkInFlight, BulkResults, BulkStep, LiveBulks
from doorstep.model.claim import Moved
from doorstep.model.delivery import Delivery, DeliveryPayload
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint
from doorstep.model.entity import (
    AwaitingEntities,
    Entity,
    EntityChange,
    EntityFilter,
    EntityHistory,
    EntityStatuses,
    OrphanedEntities,
    Phase,
    PipelineDeclarations,
    StaleEntities,
)
from doorstep.model.event import EventSummary, EventView
from doorstep.model.inbox import InboxAnswer, InboxAnswered
from doorstep.model.listing import BoundedQuery, Count, DeadLetterFilter, Page, PagedQuery, RetryQueueFilter
from doorstep.model.org import ApiKey, Routing
from doorstep.model.outbox import OutboxMessage
from doorstep.model.rollup import FIGURES, Figures, Point, Span
from doorstep.stores.limits import COUNT_MAX
from doorstep.stores.sql.queries import (
    accounts,
    actions,
    alerts,
    dead_letters,
    deliveries,
    delivery_lists,
    documents,
    endpoints,
    entities,
    events,
    figures,
    outbox,
    waits,
)
from doorstep.stores.sql.queries import bulk as bulks
from doorstep.stores.sql.queries import retention as cleaning
from doorstep.stores.sql.queries.transaction import Transaction
from doorstep.stores.store import Cleaned, Delete, EndpointKey, Put, Retention, Topic

P = ParamSpec("P")
T = TypeVar("T")
Script = Callable[..., Transaction[Any]]

GET: dict[type, Script] = {
    alert.Alert: alerts.alert,
    Bulk: bulks.bulk,
    Circuit: endpoints.circuit,
    Delivery: deliveries.delivery,
    DeliveryPayload: deliveries.payload,
    Endpoint: endpoints.endpoint,
    Entity: entities.entity,
    EventView: events.event,
}
"""The scripts for `get`, by record type: (org_id, key) -> the item."""
GET_MANY: dict[type, Script] = {
    Circuit: endpoints.get_circuits,
    Delivery: deliveries.get_deliveries,
    DeliveryPayload: deliveries.get_payloads,
    Endpoint: endpoints.get_endpoints,
    EventSummary: events.get_summaries,
}
"""The scripts for `get_many`, by record type: (org_id, keys) -> a list of items."""
PAGE: dict[type[PagedQuery[Any]], Script] = {
    alert.AlertFilter: alerts.list_alerts,
    listing.AttemptFilter: delivery_lists.list_attempts,
    listing.AuditFilter: accounts.list_audit,
    BatchFilter: deliveries.list_batches,
    BulkFailures: bulks.failures_of,
    BulkFilter: bulks.list_bulks,
    listing.CauseGroups: dead_letters.cause_groups,
    DeadLetterFilter: dead_letters.dead_letters,
    listing.DeliveryFilter: delivery_lists.list_deliveries,
    listing.EndpointFilter: endpoints.list_endpoints,
    EntityFilter: entities.list_entities,
    listing.EventBodies: events.list_bodies,
    listing.EventFilter: events.list_events,
    listing.InboxFilter: events.inbox,
    OrphanedEntities: entities.orphaned,
    RetryQueueFilter: deliveries.retry_queue,
}
"""The scripts for `page`, by query type: (org_id, query, cursor, limit) -> a Page."""
COUNT: dict[type[PagedQuery[Any]], Script] = {
    BulkResults: bulks.count_results,
    DeadLetterFilter: dead_letters.count_dead_letters,
    EntityFilter: entities.count_entities,
    listing.EventFilter: events.count_events,
    listing.InboxFilter: events.count_inbox,
    RetryQueueFilter: deliveries.count_retry_queue,
    listing.WaitingDeliveries: endpoints.count_waiting,
}
"""The scripts for `count`, by query type: (org_id, query, limit) -> a Count."""
COUNT_BY_ENDPOINT: dict[type[PagedQuery[Any]], Script] = {
    DeadLetterFilter: dead_letters.dead_letters_by_endpoint,
    RetryQueueFilter: deliveries.retry_queue_by_endpoint,
}
"""The scripts for `count_by_endpoint`, by query type: (org_id, query, limit) -> the number of items per endpoint."""
FIND: dict[type[BoundedQuery[Any]], Script] = {
    alert.AlertConfigs: alerts.configs_of,
    AwaitingEntities: entities.awaiting,
    BulkInFlight: bulks.in_flight_of,
    listing.BusiestEndpoints: figures.busiest,
    listing.CircuitHistory: endpoints.circuit_changes,
    listing.DeliveryAttempts: deliveries.attempts_of,
    listing.DeliveryHistory: deliveries.history_of,
    EntityHistory: entities.history_of,
    EntityStatuses: entities.entity_statuses,
    listing.EventDeliveries: deliveries.deliveries_of,
    listing.FailingEndpoints: figures.failing_endpoints,
    alert.Incidents: alerts.incidents_of,
    listing.KeyChecks: documents.key_checks,
    listing.KeyNames: accounts.key_names,
    listing.KeyPrefixes: accounts.key_prefixes,
    listing.KeysByDigest: accounts.keys_by_digest,
    alert.LiveAlerts: alerts.live_alerts,
    LiveBulks: bulks.live_bulks,
    listing.OrgKeys: accounts.keys_of,
    listing.Orgs: accounts.all_orgs,
    alert.OrgsToReview: alerts.orgs_to_review,
    alert.OrgsWithIncidents: alerts.orgs_with_incidents,
    PipelineDeclarations: documents.declarations,
    listing.RejectedMessages: outbox.rejected,
    listing.RoutingChanges: accounts.routing_changes,
    listing.ShortIds: events.short_ids,
    StaleEntities: entities.stale,
    listing.UnhealthyEndpoints: endpoints.unhealthy,
    listing.Workers: documents.workers_seen,
}
"""The scripts for `find`, by query type: (org_id, query) -> a list of items."""


class Mode(Enum):
    """How to run a script."""

    READ = auto()
    """Read one consistent snapshot. The script changes nothing."""
    WRITE = auto()
    """Write. When the call returns, the changes are durable."""
    WRITE_RELAXED = auto()
    """Write. A power failure may undo the changes."""


class SqlVerbs(ABC):
    """The methods outside the hot path; stores/store.py documents each of them."""

    aggregate_max: ClassVar[int]

    @abstractmethod
    async def _run(self, mode: Mode, scope: UUID | None, make_script: Callable[[], Transaction[T]]) -> T:
        """Run a script in one transaction."""

    async def _read(
        self, scope: UUID | None, script: Callable[P, Transaction[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._run(Mode.READ, scope, lambda: script(*args, **kwargs))

    async def _write(
        self, scope: UUID | None, script: Callable[P, Transaction[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        result = await self._maintain(scope, script, *args, **kwargs)
        self._announce_change()
        return result

    async def _maintain(
        self, scope: UUID | None, script: Callable[P, Transaction[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write something that no service waits for."""
        return await self._run(Mode.WRITE, scope, lambda: script(*args, **kwargs))

    @abstractmethod
    def wake_others(self, topic: Topic) -> None: ...

    @abstractmethod
    def _announce_change(self) -> None:
        """Wake the services, also of this process, that look for incidents and other changes. Called after every write
        except those that do not concern these services: acceptances, claims, heartbeats, maintenance, and settlements
        without a dead letter."""

    # -- engine --------------------------------------------------------------------------------------------

    async def routing(self, known: Mapping[UUID, int]) -> list[Routing]:
        return await self._read(None, endpoints.routing, known)

    async def renew_leases(self, worker: str, now: Instant) -> None:
        await self._write(None, waits.renew_leases, worker, now)

    async def shift_waits(self, now: Instant, limit: int) -> int:
        return await self._write(None, waits.shift_waits, now, limit)

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        return await self._write(None, endpoints.put_circuit, circuit, expected_version, reason)

    async def act(self, action: Action) -> tuple[ActionResult, Moved]:
        result = await self._write(action.org_id, actions.act, action)
        self._wake_for(action)
        return result

    async def step_bulk(
        self, bulk: Bulk, expected_version: int, action: Action | None = None, entry: AuditEntry | None = None
    ) -> BulkStep | None:
        step = await self._write(bulk.org_id, bulks.step_bulk, bulk, expected_version, action, entry)
        if step is not None:
            self._wake_for(action)
        return step

    def _wake_for(self, action: Action | None) -> None:
        if action is not None and action.kind is ActionKind.RETRY:
            self.wake_others(Topic.DELIVERIES)

    async def lease_inbox(
        self,
        org_id: UUID,
        event_types: Sequence[str],
        limit: int,
        holder: str,
        now: Instant,
        until: Instant,
        user_id: str | None = None,
    ) -> list[EventView]:
        return await self._write(org_id, events.lease_inbox, org_id, event_types, limit, holder, now, until, user_id)

    async def answer_inbox(
        self, org_id: UUID, answers: Sequence[InboxAnswer], actor: str, now: Instant
    ) -> InboxAnswered:
        return await self._write(org_id, events.answer_inbox, org_id, answers, actor, now)

    async def delete_event(self, org_id: UUID, event_id: UUID, actor: str, now: Instant, reason: str = "") -> Moved:
        return await self._write(org_id, events.delete_event, org_id, event_id, actor, now, reason)

    async def dead_letter_waiting(
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

    async def outbox(self, limit: int) -> list[OutboxMessage]:
        return await self._read(None, outbox.outbox, limit)

    async def reject(self, event_id: UUID, reason: str, now: Instant) -> None:
        await self._write(None, outbox.reject, event_id, reason, now)

    async def requeue(self, event_ids: Sequence[UUID], entry: AuditEntry) -> list[OutboxMessage]:
        found = await self._write(None, outbox.change_rejected, outbox.REQUEUE, event_ids, entry)
        self.wake_others(Topic.OUTBOX)
        return found

    async def discard(self, event_ids: Sequence[UUID], entry: AuditEntry) -> list[OutboxMessage]:
        return await self._write(None, outbox.change_rejected, outbox.DISCARD, event_ids, entry)

    async def put_entity(
        self,
        entity: Entity,
        expected_version: int,
        change: EntityChange | None = None,
        messages: Sequence[OutboxMessage] = (),
        entry: AuditEntry | None = None,
    ) -> bool:
        return await self._write(entity.org_id, entities.put_entity, entity, expected_version, change, messages, entry)

    async def delete_entity(self, entity: Entity, entry: AuditEntry, arrival: UUID | None = None) -> Moved | None:
        return await self._write(entity.org_id, entities.delete_entity, entity, entry, arrival)

    async def write_alerts(self, write: AlertWrite) -> bool:
        # Without a scope, because the messages belong to the reserved organization.
        written = await self._write(None, alerts.write_alerts, write)
        if written and write.messages:
            self.wake_others(Topic.OUTBOX)
        return written

    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        return await self._write(None, cleaning.archive, dead_before, now, limit)

    async def expire(self, code: str, reason: str, since: Instant, now: Instant, limit: int) -> Moved:
        # Usually nothing has expired. A read checks this first, so that SQLite's only writer is not occupied.
        found = await self._read(None, cleaning.expired_events, since, now, limit)
        return await self._write(None, cleaning.expire, found, code, reason, now) if found else Moved()

    async def clean(self, retention: Retention, now: Instant, limit: int) -> Cleaned:
        return await self._maintain(None, cleaning.clean, retention, now, limit)

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
            org_id, entities.clean_entities, org_id, pipeline, status, phases, before, cursor, limit
        )

    # -- documents -----------------------------------------------------------------------------------------

    async def get(self, kind: type[T], org_id: UUID | None, key: UUID | tuple[str, str]) -> T:
        return cast(T, await self._read(org_id, GET[kind], org_id, key))

    async def get_many(self, kind: type[T], org_id: UUID | None, keys: Sequence[UUID]) -> list[T]:
        return cast("list[T]", await self._read(org_id, GET_MANY[kind], org_id, keys))

    async def write(self, changes: Sequence[Put | Delete], entry: AuditEntry | None = None) -> bool:
        try:
            if entry is None and documents.is_heartbeat(changes):
                # An idle process, which writes only heartbeats, must not keep the disk busy.
                await self._run(Mode.WRITE_RELAXED, None, lambda: documents.write(changes, entry))
            else:
                await self._write(documents.scope_of(changes, entry), documents.write, changes, entry)
        except documents.VersionConflict:
            return False
        return True

    async def revoke_key(self, org_id: UUID, key_id: UUID, now: Instant, entry: AuditEntry) -> ApiKey:
        return await self._write(org_id, accounts.revoke_key, org_id, key_id, now, entry)

    # -- lists ---------------------------------------------------------------------------------------------

    async def page(
        self, org_id: UUID | None, query: PagedQuery[T], cursor: str | None = None, limit: int = 50
    ) -> Page[T]:
        return cast("Page[T]", await self._read(org_id, PAGE[type(query)], org_id, query, cursor, limit))

    async def count(self, org_id: UUID | None, query: PagedQuery[T], limit: int = COUNT_MAX) -> Count:
        return cast(Count, await self._read(org_id, COUNT[type(query)], org_id, query, limit))

    async def count_by_endpoint(
        self, org_id: UUID, query: RetryQueueFilter | DeadLetterFilter, limit: int = COUNT_MAX
    ) -> dict[UUID, int]:
        script = COUNT_BY_ENDPOINT[type(query)]
        return cast("dict[UUID, int]", await self._read(org_id, script, org_id, query, limit))

    async def find(self, org_id: UUID | None, query: BoundedQuery[T]) -> list[T]:
        return cast("list[T]", await self._read(org_id, FIND[type(query)], org_id, query))

    # -- figures -------------------------------------------------------------------------------------------

    async def aggregate(
        self, now: Instant, limit: int | None = None, *, minutes_before: Instant = 0, hours_before: Instant = 0
    ) -> int:
        limit = self.aggregate_max if limit is None else limit
        return await self._maintain(None, figures.aggregate, now, limit, minutes_before, hours_before)

    async def figures(
        self,
        org_id: UUID | None,
        endpoint_ids: Sequence[EndpointKey],
        since: Instant | None = None,
        until: Instant | None = None,
        names: tuple[str, ...] = FIGURES,
    ) -> dict[EndpointKey, Figures]:
        return await self._read(org_id, figures.figures, org_id, endpoint_ids, since, until, names)

    async def series(
        self,
        org_id: UUID | None,
        endpoint_ids: Sequence[EndpointKey],
        span: Span,
        since: Instant,
        until: Instant,
        names: tuple[str, ...] = FIGURES,
    ) -> dict[EndpointKey, list[Point]]:
        return await self._read(org_id, figures.series, org_id, endpoint_ids, span, since, until, names)

    async def dead_letters_by_hour(
        self, org_id: UUID, causes: Sequence[int], since: Instant, hours: int
    ) -> dict[int, tuple[int, ...]]:
        return await self._read(org_id, dead_letters.dead_letters_by_hour, org_id, causes, since, hours)

    async def waiting_since(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        return await self._read(org_id, endpoints.waiting_since, org_id, endpoint_ids)

    async def circuit_counts(self, org_id: UUID | None = None) -> Mapping[CircuitState, int]:
        return await self._read(org_id, endpoints.circuit_counts, org_id)
