"""Sending events, waiting for what becomes of them, looking at them, and the inbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import uuid4

from doorstep.client.call import (
    JSON,
    Call,
    Page,
    Reader,
    delete,
    encoded,
    get,
    given,
    json_of,
    one,
    paged,
    post,
    text,
    until,
)
from doorstep.client.errors import DeliveryFailed
from doorstep.client.steps import Steps
from doorstep.client.verbs import Group, R_co, each_of, flow, verb
from doorstep.schemas.accounts import Health
from doorstep.schemas.events import (
    Acknowledged,
    Cancelled,
    Event,
    EventItem,
    EventPage,
    EventStatus,
    InboxItem,
    InboxPage,
    InboxStatus,
    Receipt,
    Receipts,
    Retried,
    Status,
)
from doorstep.schemas.shape import Id
from doorstep.schemas.stats import Range, Stats

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to be sent. A payload given as bytes is JSON already and is delivered exactly so."""

    event_type: str
    payload: Any
    endpoint_ids: Iterable[Id] | None = None
    """Only these endpoints; otherwise all whose event types match."""
    deliver_at: datetime | None = None
    expires_at: datetime | None = None
    ordering_key: str | None = None
    """Events with the same key reach an endpoint one after the other, in the order they were accepted."""
    metadata: Mapping[str, Any] | None = None
    idempotency_key: str = field(default_factory=lambda: str(uuid4()))
    """Sent twice with the same key and body, it is stored once. Give one of your own to be safe over restarts."""

    @property
    def body(self) -> dict[str, object]:
        """What the request says of it."""
        endpoint_ids = None if self.endpoint_ids is None else [str(endpoint_id) for endpoint_id in self.endpoint_ids]
        return {"event_type": self.event_type, "payload": json_of(self.payload)} | given(
            {
                "endpoint_ids": endpoint_ids,
                "deliver_at": self.deliver_at,
                "expires_at": self.expires_at,
                "ordering_key": self.ordering_key,
                "metadata": self.metadata,
                "idempotency_key": self.idempotency_key,
            }
        )


class Sending(Group[R_co]):
    """What most programs need: send, look, wait."""

    @verb
    def send(
        self,
        event_type: str,
        payload: Any,
        *,
        endpoint_ids: Iterable[Id] | None = None,
        deliver_at: datetime | None = None,
        expires_at: datetime | None = None,
        ordering_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        correlation_id: str | None = None,
    ) -> Call[Receipt]:
        """Send an event. When this returns, it is on stable storage. A payload in bytes is delivered exactly so."""
        event = NewEvent(
            event_type=event_type,
            payload=payload,
            endpoint_ids=endpoint_ids,
            deliver_at=deliver_at,
            expires_at=expires_at,
            ordering_key=ordering_key,
            metadata=metadata,
        )
        if idempotency_key is not None:
            event = replace(event, idempotency_key=idempotency_key)
        return _sent(one(Receipt), "/v1/events", event.body, correlation_id)

    @verb
    def send_many(self, events: Iterable[NewEvent], *, correlation_id: str | None = None) -> Call[tuple[Receipt, ...]]:
        """Send up to 1,000 events in one transaction: all of them are stored or none.

        The exception: an event whose idempotency key is known with another body is left out, and its receipt's
        verdict is `conflict`.
        """
        body = {"events": [event.body for event in events]}
        return _sent(_receipts, "/v1/events/batch", body, correlation_id)

    @flow
    def wait_for_delivery(self, event_id: Id, timeout: float = 30.0) -> Steps[EventStatus]:
        """Wait until an event is delivered to every endpoint; `timeout` is in seconds.

        Raises DeliveryFailed when nothing is left to try, TimedOut when it took too long. An event that waits in the
        inbox is delivered when its consumer acknowledges it.
        """
        seen = yield from until(lambda: self._perform(status_of(event_id)), _settled, timeout, f"event {event_id}")
        if seen.status == "failed":
            raise DeliveryFailed(f"event {event_id} has failed after {seen.retry_attempts} retries", seen)
        return seen

    @verb
    def stats(self, range: Range | None = None, *, endpoint_id: Id | None = None) -> Call[Stats]:
        """How much stands where, now; with a `range`, what happened in that time, if wanted to one endpoint alone.

        An endpoint without a range is told of the last 24 hours.
        """
        return get(one(Stats), "/v1/stats", query={"range": range, "endpoint_id": endpoint_id})

    @verb
    def health(self) -> Call[Health]:
        """Whether the process answers. Says nothing about its store."""
        return get(one(Health), "/healthz")

    @verb
    def ready(self) -> Call[Health]:
        """Whether the store answers too; raises Unavailable otherwise."""
        return replace(get(one(Health), "/readyz"), repeatable=False)

    @verb
    def metrics(self) -> Call[str]:
        """The metrics, as Prometheus reads them."""
        return get(text, "/metrics")


def status_of(event_id: Id) -> Call[EventStatus]:
    return get(one(EventStatus), "/v1/events/{event_id}/status", event_id)


def _settled(seen: EventStatus) -> bool:
    return seen.status in ("delivered", "failed")


def _sent(reader: Reader[T], route: str, body: object, correlation_id: str | None) -> Call[T]:
    """Repeatable, because every event carries an idempotency key."""
    headers = JSON | ({} if correlation_id is None else {"x-correlation-id": correlation_id})
    return Call("POST", route, (), reader, headers=headers, content=encoded(body), repeatable=True)


def _receipts(content: bytes) -> tuple[Receipt, ...]:
    return _read_receipts(content).events


_read_receipts = one(Receipts)


class Events(Group[R_co]):
    """`client.events`: what was sent, and what became of it."""

    @verb
    def read(self, event_id: Id) -> Call[Event]:
        """An event in full, with its payload and its deliveries."""
        return get(one(Event), "/v1/events/{event_id}", event_id)

    @verb
    def status(self, event_id: Id) -> Call[EventStatus]:
        """Where an event stands, without its payload."""
        return status_of(event_id)

    @verb
    def page(
        self,
        *,
        status: Status | None = None,
        event_type: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call[Page[EventItem]]:
        """One page of the events, newest first."""
        query = {
            "status": status,
            "event_type": event_type,
            "created_from": created_from,
            "created_before": created_before,
            "limit": limit,
            "cursor": cursor,
        }
        return get(paged(EventPage), "/v1/events", query=query)

    each = each_of(page)

    @verb
    def retry(self, event_id: Id, *, reason: str | None = None) -> Call[Retried]:
        """Try its failed and waiting deliveries now."""
        return post(one(Retried), "/v1/events/{event_id}/retry", event_id, body={"reason": reason})

    @verb
    def cancel(self, event_id: Id, *, reason: str | None = None) -> Call[Cancelled]:
        """Call off its waiting deliveries."""
        return post(one(Cancelled), "/v1/events/{event_id}/cancel", event_id, body={"reason": reason})

    @verb
    def replay(self, event_id: Id, endpoint_id: Id) -> Call[Receipt]:
        """Send it once more, as a new event, to this endpoint only."""
        return post(one(Receipt), "/v1/events/{event_id}/replay", event_id, body={"endpoint_id": str(endpoint_id)})

    @verb
    def delete(self, event_id: Id) -> Call[None]:
        """Erase it, with its payload; what waits is called off. Refused while a delivery is in progress."""
        return delete("/v1/events/{event_id}", event_id)


class Inbox(Group[R_co]):
    """`client.inbox`: events that no endpoint takes, for programs that fetch them instead."""

    @verb
    def page(
        self,
        *,
        status: InboxStatus | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call[Page[InboxItem]]:
        """One page, oldest first, with payloads."""
        query = {"status": status, "limit": limit, "cursor": cursor}
        return get(paged(InboxPage), "/v1/inbox", query=query)

    each = each_of(page)

    @verb
    def acknowledge(self, event_id: Id) -> Call[Acknowledged]:
        """You have it; it is delivered and leaves the inbox."""
        return post(one(Acknowledged), "/v1/events/{event_id}/ack", event_id)
