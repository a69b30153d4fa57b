"""Lists that are returned as a whole: one method for each query type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from doorstep.errors import NotFound
from doorstep.model.alert import (
    OCCURRENCES,
    OPERATIONS_ORG,
    Alert,
    AlertConfigs,
    Incidents,
    LiveAlerts,
    OrgsToReview,
    OrgsWithIncidents,
)
from doorstep.model.bulk import IN_FLIGHT_MAX, BulkInFlight, InFlightRetry, LiveBulks
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import CircuitState, EndpointState
from doorstep.model.entity import (
    AwaitingEntities,
    Entity,
    EntityHistory,
    EntityStatuses,
    Phase,
    PipelineDeclarations,
    StaleEntities,
)
from doorstep.model.listing import (
    BoundedQuery,
    BusiestEndpoints,
    CircuitHistory,
    DeliveryAttempts,
    DeliveryHistory,
    EventDeliveries,
    FailingEndpoints,
    KeyChecks,
    KeyNames,
    KeyPrefixes,
    KeysByDigest,
    OrgKeys,
    Orgs,
    RejectedMessages,
    RoutingChanges,
    ShortIds,
    UnhealthyEndpoints,
    Workers,
)
from doorstep.model.rollup import Figures, Span
from doorstep.stores import notes
from tests.reference.lists import ListVerbs
from tests.reference.tables import DeliveryRow

T = TypeVar("T")


class FindVerbs(ListVerbs):
    async def find(self, org_id: UUID | None, query: BoundedQuery[T]) -> list[T]:
        tables = self._tables
        own: Callable[[Any], bool] = lambda document: org_id in (None, document.org_id)
        match query:
            case Orgs():
                found: Any = filter(own, tables.orgs)
            case OrgKeys():
                found = filter(own, tables.keys)
            case KeysByDigest():
                found = (key for key in filter(own, tables.keys) if key.digest == query.digest)
            case KeyChecks():
                found = tables.key_checks
            case KeyNames():
                found = self._key_names(org_id, query)
            case KeyPrefixes():
                named = [key.prefix for key in filter(own, tables.keys) if key.name == query.name]
                found = dict.fromkeys(named[::-1][: query.limit])
            case AlertConfigs():
                found = filter(own, tables.alert_configs)
            case PipelineDeclarations():
                found = tables.pipelines
            case RoutingChanges():
                found = self._routing_changes(query)
            case Workers():
                seen = (one for one in tables.workers if one.seen_at > query.seen_after)
                found = sorted(seen, key=lambda one: (-one.seen_at, one.name))[: query.limit]
            case RejectedMessages():
                rejected = (one for one in tables.outbox.values() if one.refused_at is not None)
                found = list(rejected)[: query.limit]
            case Incidents():
                found = list(filter(own, tables.incidents))[: query.limit]
            case OrgsWithIncidents():
                found = {one.org_id: None for one in filter(own, tables.incidents)}
            case LiveAlerts():
                found = _live_alerts(list(filter(own, tables.alerts)), query)
            case OrgsToReview():
                due = (one for one in filter(own, tables.alerts) if (one.review_at or query.now + 1) <= query.now)
                found = {one.org_id: None for one in due}
            case LiveBulks():
                found = (bulk for bulk in filter(own, tables.bulks) if bulk.live)
            case _:
                found = self._find_details(org_id, query)
        return list(found)

    def _routing_changes(self, query: RoutingChanges) -> list[tuple[UUID, int]]:
        versions = ((org.org_id, self._tables.routing[org.org_id]) for org in self._tables.orgs)
        changes = sorted(versions, key=lambda change: change[1])
        return changes[-1:] if query.since is None else [one for one in changes if one[1] >= query.since]

    def _find_details(self, org_id: UUID | None, query: Any) -> Any:
        """Lists about one delivery, event, endpoint, bulk operation or pipeline."""
        match query:
            case EventDeliveries():
                event = self._tables.events.get(query.event_id)
                rows = event.deliveries if event and org_id in (None, event.event.org_id) else ()
                return (row.delivery for row in rows)
            case DeliveryAttempts():
                return sorted(self._row(org_id, query.delivery_id).attempts, key=lambda attempt: attempt.number)
            case DeliveryHistory():
                return self._row(org_id, query.delivery_id).history
            case CircuitHistory():
                own = self.owns_endpoint(org_id, query.endpoint_id)
                changes = self._tables.circuit_history.get(query.endpoint_id, []) if own else []
                return changes if query.newest is None else changes[max(0, len(changes) - query.newest) :]
            case ShortIds():
                return self._short_ids(org_id, query)
            case UnhealthyEndpoints():
                return self._unhealthy(org_id, query)
            case FailingEndpoints():
                return self._failing(org_id, query)
            case BusiestEndpoints():
                return self._busiest(org_id, query)
            case BulkInFlight():
                return self._in_flight(org_id, query.bulk_id)
        return self._find_entities(org_id, query)

    def _find_entities(self, org_id: UUID | None, query: Any) -> Any:
        if isinstance(query, EntityHistory):
            assert org_id is not None, "an entity is found within its organization"
            name = (org_id, query.pipeline, query.entity_id)
            if name not in self._tables.entities:
                raise NotFound(notes.no_entity(query.pipeline, query.entity_id))
            return self._tables.entity_history[name]
        entities = [one for _, one in self.entities(org_id, query.pipeline)]
        match query:
            case EntityStatuses():
                return sorted({one.status for one in entities})
            case AwaitingEntities():
                return [one for one in entities if one.phase is Phase.RUNNING and one.event_id in query.event_ids]
            case StaleEntities():
                dead: list[Entity] = [one for one in entities if one.phase is Phase.DEAD]
                stale = (one for one in dead if one.changed_at < query.dead_before)
                return sorted(stale, key=lambda one: one.changed_at)[: query.limit]
        raise AssertionError(f"{query} is not a list that is returned whole")

    # -- accounts and alerts -------------------------------------------------------------------------------

    def _key_names(self, org_id: UUID | None, query: KeyNames) -> list[tuple[str, str]]:
        names: dict[str, set[str]] = defaultdict(set)
        for key in self._tables.keys:
            if org_id in (None, key.org_id):
                names[key.prefix].add(key.name)
        return [(prefix, min(names[prefix])) for prefix in query.prefixes if len(names.get(prefix, ())) == 1]

    # -- deliveries and bulk operations --------------------------------------------------------------------

    def _row(self, org_id: UUID | None, delivery_id: UUID) -> DeliveryRow:
        row = self._tables.deliveries.get(delivery_id)
        if row is None or org_id not in (None, row.delivery.org_id):
            raise NotFound(f"no delivery {delivery_id}")
        return row

    def _short_ids(self, org_id: UUID | None, query: ShortIds) -> list[UUID]:
        events = ((key, row.event) for key, row in self._tables.events.items())
        deliveries = ((key, row.delivery) for key, row in self._tables.deliveries.items())
        owned = events if query.kind == "event" else deliveries
        ids = [key for key, one in owned if org_id in (None, one.org_id) and key.int & 0xFFFF_FFFF == query.tail]
        within = [key for key in ids if any(begin <= key < end for begin, end in query.ranges)]
        return sorted(within, reverse=True)[: query.limit]

    def _in_flight(self, org_id: UUID | None, bulk_id: UUID) -> list[InFlightRetry]:
        unknown = [(uid, one) for uid, one in self.bulk_items(org_id, bulk_id).items() if one.succeeded is None]
        return [
            InFlightRetry(delivery_id, found.delivery.endpoint_id, found.delivery.state is DeliveryState.PENDING)
            for delivery_id, item in unknown[:IN_FLIGHT_MAX]
            if (found := self._tables.deliveries.get(delivery_id)) and self.bulk_result(delivery_id, item) is None
        ]

    # -- endpoints -----------------------------------------------------------------------------------------

    def _unhealthy(self, org_id: UUID | None, query: UnhealthyEndpoints) -> list[UUID]:
        own = [one for one in self._tables.endpoints if org_id in (None, one.org_id)]
        live = sorted((one for one in own if one.state is not EndpointState.DELETED), key=lambda one: one.endpoint_id)
        disabled = [one.endpoint_id for one in live if one.state is EndpointState.DISABLED]
        died_at = {one.endpoint_id: self._last_death_hour(one.org_id, one.endpoint_id) for one in live}
        losing = sorted((one for one in died_at if died_at[one] >= query.since), key=lambda one: -died_at[one])
        tripped = [self._with_circuit(list(died_at), state) for state in (CircuitState.OPEN, CircuitState.HALF_OPEN)]
        return list(dict.fromkeys([*disabled, *tripped[0], *tripped[1], *losing]))[: query.limit]

    def _with_circuit(self, endpoint_ids: list[UUID], state: CircuitState) -> list[UUID]:
        stored = self._tables.circuits
        return [one for one in endpoint_ids if one in stored and stored[one].state is state]

    def _last_death_hour(self, org_id: UUID, endpoint_id: UUID) -> int:
        hours = self._tables.counters.of(org_id, endpoint_id, Span.HOUR)
        return max((at for at, figures in hours.items() if figures.dead), default=-1)

    def _failing(self, org_id: UUID | None, query: FailingEndpoints) -> list[tuple[UUID, UUID]]:
        owners = [(one.org_id, one.endpoint_id) for one in self._tables.endpoints if org_id in (None, one.org_id)]
        hourly = {owner: self._tables.counters.of(*owner, Span.HOUR) for owner in owners}
        return [owner for owner, hours in hourly.items() if any(at >= query.since and hours[at].died for at in hours)]

    def _busiest(self, org_id: UUID | None, query: BusiestEndpoints) -> list[UUID]:
        """Counts the deliveries of every endpoint, which only a store of this size can afford."""
        live = (one for one in self._tables.endpoints if one.state is not EndpointState.DELETED)
        own = [one for one in live if org_id in (None, one.org_id) and one.org_id != OPERATIONS_ORG]
        of = self._tables.counters.of
        ever = {one.endpoint_id: of(one.org_id, one.endpoint_id, Span.EVER).get(0, Figures()) for one in own}
        busy = [key for key, figures in ever.items() if figures.deliveries]
        return sorted(busy, key=lambda key: (-ever[key].deliveries, key))[: query.limit]


def _live_alerts(alerts: list[Alert], query: LiveAlerts) -> list[Alert]:
    ended = [one for one in alerts if not one.is_open]
    to_review = [one for one in ended if one.review_at is not None]
    over = (one for one in ended if one.review_at is None and one.rule not in OCCURRENCES)
    recent = [one for one in over if (one.ended_at or 0) > query.ended_after]
    return [*(one for one in alerts if one.is_open), *to_review, *recent]
