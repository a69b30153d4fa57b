"""Lists that are returned whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.alert import AlertConfigs, Incidents, LiveAlerts, OrgsToReview, OrgsWithIncidents
from doorstep.model.attempt import Attempt
from doorstep.model.bulk import BulkInFlight, LiveBulks
from doorstep.model.delivery import OPEN_STATES
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import owed_since
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
from doorstep.model.org import ApiKey
from doorstep.stores.dynamodb.attempts import attempt_from
from doorstep.stores.dynamodb.features import not_offered
from doorstep.stores.dynamodb.keys import KEY_CHECK, WORKERS, digest_key, keys_partition
from doorstep.stores.dynamodb.lists import ListVerbs
from doorstep.stores.dynamodb.rows import DeliveryRow, attempt_prefix, event_key
from doorstep.stores.dynamodb.stored import change_from, key_check_from, key_from_item, worker_from
from doorstep.stores.dynamodb.tables import LIST_INDEX, SHARDS
from doorstep.stores.dynamodb.unit import gather
from doorstep.stores.dynamodb.variables import ORG_ROUTING, number_of
from doorstep.stores.limits import WAITING_EXAMINED_MAX
from doorstep.stores.store import Part

T = TypeVar("T")


class FindVerbs(ListVerbs):
    async def find(self, org_id: UUID | None, query: BoundedQuery[T]) -> list[T]:
        return list(await self._find(org_id, query))

    async def _find(self, org_id: UUID | None, query: Any) -> Sequence[Any]:
        match query:
            case Orgs():
                return [org for org in await self._orgs() if org_id in (None, org.org_id)]
            case OrgKeys():
                return await self._keys_of(org_id)
            case KeysByDigest():
                return await self._keys_by_digest(org_id, query.digest)
            case KeyChecks():
                item = await self._aws.get(KEY_CHECK)
                return [] if item is None else [key_check_from(item)]
            case KeyNames():
                return await self._key_names(org_id, query)
            case KeyPrefixes():
                named = [key.prefix for key in await self._keys_of(org_id) if key.name == query.name]
                return list(dict.fromkeys(named[::-1][: query.limit]))
            case RoutingChanges():
                return await self._routing_changes(query)
            case Workers():
                found = [worker_from(item) for item in await self._aws.query(WORKERS)]
                seen = (one for one in found if one.seen_at > query.seen_after)
                return sorted(seen, key=lambda one: (-one.seen_at, one.name))[: query.limit]
            case EventDeliveries():
                found_event = await self._event_with_deliveries(query.event_id)
                if found_event is None or org_id not in (None, found_event[0].event.org_id):
                    return []
                return [row.delivery for row in found_event[1]]
            case DeliveryAttempts():
                return await self._attempts(await self._row(org_id, query.delivery_id))
            case DeliveryHistory():
                return (await self._row(org_id, query.delivery_id)).history
            case CircuitHistory():
                return await self._circuit_history(org_id, query)
            case ShortIds():
                return await self._short_ids(org_id, query)
            case LiveBulks() | BulkInFlight():
                raise not_offered(Part.BULK)
            case RejectedMessages():
                raise not_offered(Part.OUTBOX)
            case AlertConfigs() | Incidents() | LiveAlerts() | OrgsToReview() | OrgsWithIncidents():
                raise not_offered(Part.ALERTS)
            case BusiestEndpoints() | FailingEndpoints() | UnhealthyEndpoints():
                raise not_offered(Part.STATISTICS)
        raise not_offered(Part.PIPELINES)

    async def waiting_since(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        own = await self.get_many(Endpoint, org_id, endpoint_ids)
        rows = await gather([self._open_rows(one.endpoint_id, WAITING_EXAMINED_MAX) for one in own])
        wanted = {one.endpoint_id for one in own}
        leased = await self._in_progress(WAITING_EXAMINED_MAX) if own else []
        rows.append([row for row in leased if row.delivery.endpoint_id in wanted])
        events = await self._read_events({row.delivery.event_id for found in rows for row in found})
        found: dict[UUID, Instant] = {}
        for row in (row for of_endpoint in rows for row in of_endpoint):
            event = events.get(row.delivery.event_id)
            if event is not None and row.delivery.state in OPEN_STATES:
                at = owed_since(event.event.created_at, event.event.deliver_at)
                endpoint_id = row.delivery.endpoint_id
                found[endpoint_id] = min(found.get(endpoint_id, at), at)
        return found

    async def _routing_changes(self, query: RoutingChanges) -> list[tuple[UUID, int]]:
        found = {UUID(item["sk"]["S"]): number_of(item) for item in await self._aws.query(ORG_ROUTING)}
        versions = ((org.org_id, found.get(org.org_id, 0)) for org in await self._orgs())
        changes = sorted(versions, key=lambda change: change[1])
        return changes[-1:] if query.since is None else [one for one in changes if one[1] >= query.since]

    # -- keys ----------------------------------------------------------------------------------------------

    async def _keys_of(self, org_id: UUID | None) -> list[ApiKey]:
        orgs = [org_id] if org_id is not None else [org.org_id for org in await self._orgs()]
        return [key for keys in await gather([self._org_keys(one) for one in orgs]) for key in keys]

    async def _keys_by_digest(self, org_id: UUID | None, digest: bytes) -> list[ApiKey]:
        pointer = await self._aws.get(digest_key(digest))
        if pointer is None or org_id not in (None, UUID(pointer["org_id"]["S"])):
            return []
        item = await self._aws.get((keys_partition(UUID(pointer["org_id"]["S"])), pointer["key_id"]["S"]))
        key = None if item is None else key_from_item(item)
        return [] if key is None or key.digest != digest else [key]

    async def _key_names(self, org_id: UUID | None, query: KeyNames) -> list[tuple[str, str]]:
        names: defaultdict[str, set[str]] = defaultdict(set)
        for key in await self._keys_of(org_id):
            names[key.prefix].add(key.name)
        return [(prefix, min(names[prefix])) for prefix in query.prefixes if len(names.get(prefix, ())) == 1]

    # -- deliveries and endpoints --------------------------------------------------------------------------

    async def _row(self, org_id: UUID | None, delivery_id: UUID) -> DeliveryRow:
        row = (await self._find_rows(org_id, [delivery_id])).get(delivery_id)
        if row is None:
            raise NotFound(f"no delivery {delivery_id}")
        return row

    async def _attempts(self, row: DeliveryRow) -> list[Attempt]:
        partition = event_key(row.delivery.event_id)[0]
        items = await self._aws.query(partition, prefix=attempt_prefix(row.delivery.delivery_id))
        return [attempt_from(item) for item in items]

    async def _circuit_history(self, org_id: UUID | None, query: CircuitHistory) -> list[Any]:
        if not await self.get_many(Endpoint, org_id, [query.endpoint_id]):
            return []
        changes = [
            change_from(item)
            for item in await self._aws.query(
                f"endpoint#{query.endpoint_id}", prefix="change#", limit=query.newest, descending=True
            )
        ]
        return changes[::-1]

    async def _short_ids(self, org_id: UUID | None, query: ShortIds) -> list[UUID]:
        """Ids by their last digits. Those digits name the partition of an id, so one is searched for each range."""
        kind = "events" if query.kind == "event" else "deliveries"
        orgs = [org_id] if org_id is not None else [org.org_id for org in await self._orgs()]
        shard = query.tail % SHARDS
        found = await gather(
            [
                self._aws.query(
                    f"{kind}#{one}#{shard}", index=LIST_INDEX, after=str(UUID(int=low.int - 1)), before=str(high)
                )
                for low, high in query.ranges
                for one in orgs
            ]
        )
        ids = [UUID(item[LIST_INDEX.sort_key]["S"]) for items in found for item in items]
        return sorted((one for one in ids if one.int & 0xFFFF_FFFF == query.tail), reverse=True)[: query.limit]
