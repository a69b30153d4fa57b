"""Events and deliveries as readers see them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.delivery import Delivery, DeliveryPayload
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint, EndpointState
from doorstep.model.event import EventSummary, EventView
from doorstep.stores.dynamodb.client import Item
from doorstep.stores.dynamodb.keys import endpoint_key
from doorstep.stores.dynamodb.path import PathVerbs
from doorstep.stores.dynamodb.rows import (
    DeliveryRow,
    EventRow,
    delivery_from,
    delivery_key,
    event_from,
    event_key,
    is_delivery,
    pointer_key,
)
from doorstep.stores.dynamodb.stored import endpoint_from
from doorstep.stores.dynamodb.unit import gather
from doorstep.stores.dynamodb.variables import circuit_from, circuit_key


class ViewVerbs(PathVerbs):
    async def _find_events(self, delivery_ids: Iterable[UUID]) -> dict[UUID, UUID]:
        """The event of each delivery that exists."""
        wanted = {pointer_key(one): one for one in delivery_ids}
        found = await self._aws.get_many(wanted) if wanted else {}
        return {wanted[key]: UUID(item["event_id"]["S"]) for key, item in found.items()}

    async def _find_rows(self, org_id: UUID | None, delivery_ids: Sequence[UUID]) -> dict[UUID, DeliveryRow]:
        """The deliveries of this organization with these ids."""
        events = await self._find_events(delivery_ids)
        rows = await self._read_deliveries([delivery_key(event_id, one) for one, event_id in events.items()])
        return {row.delivery.delivery_id: row for row in rows if org_id in (None, row.delivery.org_id)}

    async def _deliveries(self, kind: Any, org_id: UUID | None, ids: Sequence[UUID]) -> list[Any]:
        rows = await self._find_rows(org_id, ids)
        if kind is Delivery:
            return [row.delivery for row in rows.values()]
        events = await self._read_events({row.delivery.event_id for row in rows.values()})
        return [
            DeliveryPayload(one, row.payload(events[row.delivery.event_id]))
            for one, row in rows.items()
            if row.delivery.event_id in events and not events[row.delivery.event_id].deleted
        ]

    async def _events(self, kind: Any, org_id: UUID | None, ids: Sequence[UUID]) -> list[Any]:
        found = await gather([self._event_with_deliveries(one) for one in ids])
        own = [one for one in found if one is not None and org_id in (None, one[0].event.org_id) and not one[0].deleted]
        return await self._views(kind, own)

    async def _event_with_deliveries(self, event_id: UUID) -> tuple[EventRow, list[DeliveryRow]] | None:
        """An event and its deliveries, read at once: they are neighbours in one partition."""
        partition = event_key(event_id)[0]
        items = await self._aws.query(partition, after="delivery#", before="event\x01")
        return _split(items)

    async def _views(self, kind: Any, events: Sequence[tuple[EventRow, list[DeliveryRow]]]) -> list[Any]:
        waiting = {
            row.delivery.endpoint_id for _, rows in events for row in rows if row.delivery.next_retry_at is not None
        }
        endpoints = await self._stopping(waiting)
        return [(_view if kind is EventView else _summary)(event, rows, endpoints) for event, rows in events]

    async def _stopping(self, endpoint_ids: set[UUID]) -> dict[UUID, tuple[bool, Circuit | None]]:
        """Whether each endpoint is active, and its circuit. Both decide when a delivery will really be retried."""
        if not endpoint_ids:
            return {}
        keys = [key for one in endpoint_ids for key in (endpoint_key(one), circuit_key(one))]
        found = await self._aws.get_many(keys)
        known: dict[UUID, tuple[bool, Circuit | None]] = {}
        for one in endpoint_ids:
            endpoint: Endpoint | None = None
            if item := found.get(endpoint_key(one)):
                endpoint = endpoint_from(item)
            circuit = found.get(circuit_key(one))
            active = endpoint is not None and endpoint.state is EndpointState.ACTIVE
            known[one] = (active, None if circuit is None else circuit_from(circuit))
        return known

    async def _own_event(self, org_id: UUID | None, event_id: UUID) -> EventRow:
        item = await self._aws.get(event_key(event_id))
        row = None if item is None else event_from(item)
        if row is None or org_id not in (None, row.event.org_id):
            raise NotFound(f"no event {event_id}")
        return row


def _split(items: Sequence[Item]) -> tuple[EventRow, list[DeliveryRow]] | None:
    events = [event_from(item) for item in items if not is_delivery(item)]
    if not events:
        return None
    rows = [delivery_from(item) for item in items if is_delivery(item)]
    return events[0], sorted(rows, key=lambda row: row.ordinal)


Stopping = dict[UUID, tuple[bool, Circuit | None]]


def _retried_at(row: DeliveryRow, endpoints: Stopping) -> Instant | None:
    """When a worker will really retry it: not while its endpoint is stopped, nor before the next probe."""
    at = row.delivery.next_retry_at
    if at is None:
        return None
    active, circuit = endpoints[row.delivery.endpoint_id]
    if not active:
        return None
    if row.delivery.forced or circuit is None or circuit.state is CircuitState.CLOSED:
        return at
    return max(at, circuit.until or at)


def _totals(event: EventRow, rows: Sequence[DeliveryRow], endpoints: Stopping) -> dict[str, Any]:
    deliveries = [row.delivery for row in rows]
    retried = [one.last_attempt_at for one in deliveries if one.attempt > 1 and one.last_attempt_at is not None]
    next_retries = [at for row in rows if (at := _retried_at(row, endpoints)) is not None]
    return {
        "status": event.status,
        "deliveries": event.deliveries,
        "retry_attempts": max((one.retry_attempts for one in deliveries), default=event.retry_attempts),
        "last_retry_at": max(retried, default=event.last_retry_at),
        "failed_at": event.failed_at,
        "next_retry_at": min(next_retries, default=None),
    }


def _view(event: EventRow, rows: Sequence[DeliveryRow], endpoints: Stopping) -> EventView:
    return EventView(
        event=event.event,
        receive_count=event.receive_count,
        leased_by=event.leased_by,
        visible_at=event.visible_at,
        **_totals(event, rows, endpoints),
    )


def _summary(event: EventRow, rows: Sequence[DeliveryRow], endpoints: Stopping) -> EventSummary:
    one = event.event
    return EventSummary(
        event_id=one.event_id,
        event_type=one.event_type,
        created_at=one.created_at,
        correlation_id=one.correlation_id,
        user_id=one.user_id,
        **_totals(event, rows, endpoints),
    )
