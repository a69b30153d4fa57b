"""Sending events and waiting for their delivery, the inbox, batches and pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, TypeVar, Unpack
from uuid import uuid4

import msgspec

from doorstep.client.call import (
    JSON,
    Call,
    Page,
    Paging,
    Reader,
    delete,
    get,
    given,
    json_of,
    one,
    paged,
    post,
    text,
)
from doorstep.client.errors import DeliveryFailed
from doorstep.client.verbs import Group, R_co, Steps, each_of, flow, until, verb
from doorstep.schemas.accounts import Health
from doorstep.schemas.events import (
    Acknowledged,
    Batch,
    BatchPage,
    BatchStatus,
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
    Submission,
    SubmissionPage,
)
from doorstep.schemas.pipelines import Entity, EntityChange, EntityHistoryPage, EntityPage, Pipeline, PipelinePage
from doorstep.schemas.shape import Id
from doorstep.schemas.stats import Range, Stats

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to send. A payload given as bytes must be JSON and is delivered unchanged."""

    event_type: str
    payload: Any
    endpoint_ids: Iterable[Id] | None = None
    """Deliver only to these endpoints; by default, to all endpoints whose event types match."""
    deliver_at: datetime | None = None
    expires_at: datetime | None = None
    ordering_key: str | None = None
    """Events with the same key are delivered to an endpoint one at a time, in the order of their acceptance."""
    metadata: Mapping[str, Any] | None = None
    idempotency_key: str = field(default_factory=lambda: str(uuid4()))
    """Events with the same key and body are stored once. Set your own key to prevent duplicates across restarts."""

    @property
    def body(self) -> dict[str, object]:
        """The event as the body of a request."""
        body = given({one.name: getattr(self, one.name) for one in fields(self)})
        if self.endpoint_ids is not None:
            body["endpoint_ids"] = list(self.endpoint_ids)
        return body | {"payload": json_of(self.payload)}


class Sending(Group[R_co]):
    """The methods that most programs need."""

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
        """Send an event. When this returns, it is on stable storage. A payload given as bytes is delivered
        unchanged."""
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
        """Send up to 1,000 events in one transaction: all or none are stored.

        The exception is an event whose idempotency key was used before with another body. It is not stored, and its
        receipt has the verdict `conflict`.
        """
        body = {"events": [event.body for event in events]}
        return _sent(_receipts, "/v1/events/batch", body, correlation_id)

    @flow
    def wait_for_delivery(self, event_id: Id, timeout: float = 30.0) -> Steps[EventStatus]:
        """Wait until an event is delivered to every endpoint; `timeout` is in seconds.

        Raises DeliveryFailed when no retries are left, and TimedOut when the timeout expires. An event in the inbox
        counts as delivered when its consumer acknowledges it.
        """
        seen = yield from until(
            poll=lambda: self._perform(status_of(event_id)),
            done=lambda seen: seen.status in ("delivered", "failed"),
            timeout=timeout,
            subject=f"event {event_id}",
        )
        if seen.status == "failed":
            raise DeliveryFailed(f"event {event_id} has failed after {seen.retry_attempts} retries", seen)
        return seen

    @verb
    def stats(self, range: Range | None = None, *, endpoint_id: Id | None = None) -> Call[Stats]:
        """The current queue sizes. With a `range`, the result also contains statistics for that period, for all
        endpoints or for one.

        With an `endpoint_id`, the default range is 24 hours.
        """
        return get(one(Stats), "/v1/stats", query={"range": range, "endpoint_id": endpoint_id})

    @verb
    def health(self) -> Call[Health]:
        """Check that the process responds. The store is not checked."""
        return get(one(Health), "/healthz")

    @verb
    def ready(self) -> Call[Health]:
        """Check that the store responds too. Raises Unavailable if it does not."""
        return replace(get(one(Health), "/readyz"), repeatable=False)

    @verb
    def metrics(self) -> Call[str]:
        """The metrics, in the Prometheus text format."""
        return get(text, "/metrics")


def status_of(event_id: Id) -> Call[EventStatus]:
    return get(one(EventStatus), "/v1/events/{event_id}/status", event_id)


def _sent(reader: Reader[T], route: str, body: object, correlation_id: str | None) -> Call[T]:
    """A call that may be repeated, because every event carries an idempotency key."""
    headers = JSON | ({} if correlation_id is None else {"x-correlation-id": correlation_id})
    return Call("POST", route, (), reader, headers=headers, content=msgspec.json.encode(body), repeatable=True)


def _receipts(content: bytes) -> tuple[Receipt, ...]:
    return msgspec.json.decode(content, type=Receipts).events


class EventQuery(Paging, total=False):
    """The filters and paging arguments for lists of events."""

    status: Status | None
    event_type: str | None
    created_from: datetime | None
    created_before: datetime | None


class Events(Group[R_co]):
    """`client.events`."""

    @verb
    def read(self, event_id: Id) -> Call[Event]:
        """An event with its payload and its deliveries."""
        return get(one(Event), "/v1/events/{event_id}", event_id)

    @verb
    def status(self, event_id: Id) -> Call[EventStatus]:
        """The status of an event, without its payload."""
        return status_of(event_id)

    @verb
    def page(self, **filters: Unpack[EventQuery]) -> Call[Page[EventItem]]:
        """One page of events, newest first."""
        return get(paged(EventPage), "/v1/events", query=filters)

    each = each_of(page)

    @verb
    def retry(self, event_id: Id, *, reason: str | None = None) -> Call[Retried]:
        """Retry an event's failed and waiting deliveries now."""
        return post(one(Retried), "/v1/events/{event_id}/retry", event_id, body={"reason": reason})

    @verb
    def cancel(self, event_id: Id, *, reason: str | None = None) -> Call[Cancelled]:
        """Cancel an event's waiting deliveries."""
        return post(one(Cancelled), "/v1/events/{event_id}/cancel", event_id, body={"reason": reason})

    @verb
    def replay(self, event_id: Id, endpoint_id: Id) -> Call[Receipt]:
        """Send an event again, as a new event, to this endpoint only."""
        return post(one(Receipt), "/v1/events/{event_id}/replay", event_id, body={"endpoint_id": str(endpoint_id)})

    @verb
    def delete(self, event_id: Id) -> Call[None]:
        """Delete an event and its payload, and cancel its waiting deliveries. Raises Conflict while one of its
        deliveries is in progress."""
        return delete("/v1/events/{event_id}", event_id)


class Inbox(Group[R_co]):
    """`client.inbox`: events that no endpoint subscribes to. Programs fetch and acknowledge them."""

    @verb
    def page(self, *, status: InboxStatus | None = None, **paging: Unpack[Paging]) -> Call[Page[InboxItem]]:
        """One page of the inbox, oldest first, with payloads."""
        return get(paged(InboxPage), "/v1/inbox", query={"status": status, **paging})

    each = each_of(page)

    @verb
    def acknowledge(self, event_id: Id) -> Call[Acknowledged]:
        """Acknowledge an event. It then counts as delivered and leaves the inbox."""
        return post(one(Acknowledged), "/v1/events/{event_id}/ack", event_id)


_ENTITIES = "/v1/pipelines/{pipeline}/entities"
_ENTITY = f"{_ENTITIES}/{{entity_id}}"


class Pipelines(Group[R_co]):
    """`client.pipelines`."""

    @verb
    def page(self) -> Call[Page[Pipeline]]:
        """All pipelines, each with its statuses."""
        return get(paged(PipelinePage), "/v1/pipelines")

    @verb
    def entities(
        self, pipeline: str, *, status: str | None = None, archived: bool | None = None, **paging: Unpack[Paging]
    ) -> Call[Page[Entity]]:
        """One page of a pipeline's entities, newest first; archived ones are included only with `archived`."""
        return get(paged(EntityPage), _ENTITIES, pipeline, query={"status": status, "archived": archived, **paging})

    each_entity = each_of(entities)

    @verb
    def read(self, pipeline: str, entity_id: str) -> Call[Entity]:
        """One entity."""
        return get(one(Entity), _ENTITY, pipeline, entity_id)

    @verb
    def history(self, pipeline: str, entity_id: str) -> Call[Page[EntityChange]]:
        """Every change of an entity's status, oldest first."""
        return get(paged(EntityHistoryPage), f"{_ENTITY}/history", pipeline, entity_id)

    @verb
    def retry(self, pipeline: str, entity_id: str, *, reason: str | None = None) -> Call[dict[str, str]]:
        """Restart a failed, dead or archived entity from the first stage."""
        return post(one(dict[str, str]), f"{_ENTITY}/retry", pipeline, entity_id, body={"reason": reason})

    @verb
    def approve(self, pipeline: str, entity_id: str, *, gate: str | None = None) -> Call[Entity]:
        """Approve an entity that is waiting at a gate. Raises Conflict if it is not waiting at a gate, or if it is
        waiting at a gate other than `gate`."""
        return post(one(Entity), f"{_ENTITY}/approve", pipeline, entity_id, body={"gate": gate})

    @verb
    def reject(
        self, pipeline: str, entity_id: str, *, reason: str | None = None, gate: str | None = None
    ) -> Call[Entity]:
        """Reject an entity that is waiting at a gate; it becomes a dead letter.

        Raises Conflict if it is not waiting at a gate, or if it is waiting at a gate other than `gate`.
        """
        return post(one(Entity), f"{_ENTITY}/reject", pipeline, entity_id, body={"reason": reason, "gate": gate})

    @verb
    def delete(self, pipeline: str, entity_id: str) -> Call[None]:
        """Delete an entity and its history, regardless of its status."""
        return delete(_ENTITY, pipeline, entity_id)


class Batches(Group[R_co]):
    """`client.batches`. A batch is sent as an event, and has the id of that event."""

    @verb
    def page(
        self, *, status: BatchStatus | None = None, event_type: str | None = None, **paging: Unpack[Paging]
    ) -> Call[Page[Batch]]:
        """One page of batches, newest first."""
        return get(paged(BatchPage), "/v1/batches", query={"status": status, "event_type": event_type, **paging})

    each = each_of(page)

    @verb
    def read(self, batch_id: Id) -> Call[Batch]:
        """One batch."""
        return get(one(Batch), "/v1/batches/{batch_id}", batch_id)

    @verb
    def attempts(self, batch_id: Id) -> Call[Page[Submission]]:
        """The carrier log of a batch: every submission, in order."""
        return get(paged(SubmissionPage), "/v1/batches/{batch_id}/attempts", batch_id)

    @verb
    def resubmit(self, batch_id: Id, *, reason: str | None = None) -> Call[Batch]:
        """Submit a batch again immediately, with its retry count reset. Raises Conflict unless the batch is FAILED."""
        return post(one(Batch), "/v1/batches/{batch_id}/resubmit", batch_id, body={"reason": reason})
