"""Sending events and waiting for their delivery, the inbox, batches and pipelines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias, TypeVar, Unpack
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
    put,
    text,
)
from doorstep.client.errors import DeliveryFailed
from doorstep.client.verbs import Group, R_co, Steps, each_of, flow, invoke, pause, until, verb
from doorstep.schemas import accounts, events, inbox, pipelines, search, stats
from doorstep.schemas.shape import Id

T = TypeVar("T")
_log = logging.getLogger("doorstep.client")


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
        if self.metadata is not None:
            body["metadata"] = json_of(self.metadata)
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
    ) -> Call[events.Receipt]:
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
        return _sent(one(events.Receipt), "/v1/events", event.body, correlation_id)

    @verb
    def send_many(
        self, events: Iterable[NewEvent], *, correlation_id: str | None = None
    ) -> Call[tuple[events.Receipt, ...]]:
        """Send up to 1,000 events in one transaction: all or none are stored.

        The exception is an event whose idempotency key was used before with another body. It is not stored, and its
        receipt has the verdict `conflict`.
        """
        body = {"events": [event.body for event in events]}
        return _sent(_receipts, "/v1/events/batch", body, correlation_id)

    @flow
    def wait_for_delivery(self, event_id: Id, timeout: float = 30.0) -> Steps[events.EventStatus]:
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
    def stats(self, range: stats.Range | None = None, *, endpoint_id: Id | None = None) -> Call[stats.Stats]:
        """The current queue sizes. With a `range`, the result also contains statistics for that period, for all
        endpoints or for one.

        With an `endpoint_id`, the default range is 24 hours.
        """
        return get(one(stats.Stats), "/v1/stats", query={"range": range, "endpoint_id": endpoint_id})

    @verb
    def find(self, id: str) -> Call[search.FoundItems]:
        """What has this id, which may be a short id: its last eight digits."""
        return get(one(search.FoundItems), "/v1/find", query={"id": id})

    @verb
    def search_fields(self) -> Call[search.SearchFields]:
        """The fields of payloads and metadata by which events are found at once."""
        return get(one(search.SearchFields), "/v1/search-fields")

    @verb
    def set_search_fields(self, fields: Iterable[str]) -> Call[search.SearchFields]:
        """Declare the fields by which events are found at once, in place of those declared before:
        `["payload.order.id", "metadata.customer"]`."""
        return put(one(search.SearchFields), "/v1/search-fields", body={"fields": list(fields)})

    @verb
    def health(self) -> Call[accounts.Health]:
        """Check that the process responds. The store is not checked."""
        return get(one(accounts.Health), "/healthz")

    @verb
    def ready(self) -> Call[accounts.Health]:
        """Also check that the store responds. Raises Unavailable if it does not."""
        return replace(get(one(accounts.Health), "/readyz"), repeatable=False)

    @verb
    def metrics(self) -> Call[str]:
        """The metrics, in the Prometheus text format."""
        return get(text, "/metrics")


def status_of(event_id: Id) -> Call[events.EventStatus]:
    return get(one(events.EventStatus), "/v1/events/{event_id}/status", event_id)


def _sent(reader: Reader[T], route: str, body: object, correlation_id: str | None) -> Call[T]:
    """A call that may be repeated, because every event carries an idempotency key."""
    headers = JSON | ({} if correlation_id is None else {"x-correlation-id": correlation_id})
    return Call("POST", route, (), reader, headers=headers, content=msgspec.json.encode(body), repeatable=True)


def _receipts(content: bytes) -> tuple[events.Receipt, ...]:
    return msgspec.json.decode(content, type=events.Receipts).events


Scalar: TypeAlias = str | int | float | bool | None


class EventQuery(Paging, total=False):
    """The filters and paging arguments for lists of events."""

    status: events.Status | None
    event_type: str | None
    since: datetime | None
    until: datetime | None
    created_from: datetime | None
    """An older name of `since`."""
    created_before: datetime | None
    """An older name of `until`."""
    endpoint: Id | None
    """An endpoint's id or name."""
    correlation_id: str | None
    ordering_key: str | None
    idempotency_key: str | None
    user_id: str | None
    payload: Mapping[str, Scalar] | None
    """Values in the payload, by path: `{"order.id": 42}`."""
    metadata: Mapping[str, Scalar] | None


class Events(Group[R_co]):
    """`client.events`."""

    @verb
    def read(self, event_id: Id) -> Call[events.Event]:
        """An event with its payload and its deliveries."""
        return get(one(events.Event), "/v1/events/{event_id}", event_id)

    @verb
    def status(self, event_id: Id) -> Call[events.EventStatus]:
        """The status of an event, without its payload."""
        return status_of(event_id)

    @verb
    def page(self, **filters: Unpack[EventQuery]) -> Call[Page[events.EventItem]]:
        """One page of events, newest first. If a field in `payload` or `metadata` has no index, the pagination says how
        far back the events have been searched."""
        return get(paged(events.EventPage), "/v1/events", query=filters)

    each = each_of(page)

    @verb
    def retry(self, event_id: Id, *, reason: str | None = None) -> Call[events.Retried]:
        """Retry an event's failed and waiting deliveries now."""
        return post(one(events.Retried), "/v1/events/{event_id}/retry", event_id, body={"reason": reason})

    @verb
    def cancel(self, event_id: Id, *, reason: str | None = None) -> Call[events.Cancelled]:
        """Cancel an event's waiting deliveries."""
        return post(one(events.Cancelled), "/v1/events/{event_id}/cancel", event_id, body={"reason": reason})

    @verb
    def replay(self, event_id: Id, endpoint_id: Id) -> Call[events.Receipt]:
        """Send an event again, as a new event, to this endpoint only."""
        return post(
            one(events.Receipt), "/v1/events/{event_id}/replay", event_id, body={"endpoint_id": str(endpoint_id)}
        )

    @verb
    def delete(self, event_id: Id) -> Call[None]:
        """Delete an event and its payload, and cancel its waiting deliveries. Raises Conflict while one of its
        deliveries is in progress."""
        return delete("/v1/events/{event_id}", event_id)


class Inbox(Group[R_co]):
    """`client.inbox`: events that no endpoint subscribes to. Programs fetch and acknowledge them."""

    @verb
    def page(self, *, status: inbox.InboxStatus | None = None, **paging: Unpack[Paging]) -> Call[Page[inbox.InboxItem]]:
        """One page of the inbox, oldest first, with payloads."""
        return get(paged(inbox.InboxPage), "/v1/inbox", query={"status": status, **paging})

    each = each_of(page)

    @verb
    def lease(
        self,
        *,
        limit: int | None = None,
        visibility_seconds: float | None = None,
        event_types: Iterable[str] | None = None,
    ) -> Call[tuple[inbox.LeasedEvent, ...]]:
        """Lease events, oldest first. No other consumer gets them until the lease ends (default: 60 seconds).

        Acknowledge each event, or give it back with `nack`, and pass the event itself: it carries the token of your
        lease. If the response is lost, the events are available again when the lease ends.
        """
        types = None if event_types is None else list(event_types)
        body = {"limit": limit, "visibility_seconds": visibility_seconds, "event_types": types}
        return replace(post(_leased, "/v1/inbox/lease", body=body), repeatable=True)

    @verb
    def acknowledge(self, event: Id | inbox.LeasedEvent, *, lease_token: int | None = None) -> Call[inbox.Acknowledged]:
        """Acknowledge an event. It then counts as delivered and leaves the inbox.

        Given a leased event, or the token of a lease, raises Conflict if another consumer leased the event after your
        lease had ended. Given only an id, the event is acknowledged regardless of who holds it.
        """
        event_id, token = _addressed(event, lease_token)
        return _answered(inbox.Acknowledged, "/v1/events/{event_id}/ack", event_id, body=token)

    @verb
    def nack(
        self,
        event: Id | inbox.LeasedEvent,
        *,
        delay_seconds: float | None = None,
        lease_token: int | None = None,
    ) -> Call[inbox.Nacked]:
        """Give an event back. It can be leased again, at once or after a delay. Raises Conflict like `acknowledge`."""
        event_id, token = _addressed(event, lease_token)
        body = token | {"delay_seconds": delay_seconds}
        return _answered(inbox.Nacked, "/v1/events/{event_id}/nack", event_id, body=body)

    @verb
    def acknowledge_many(self, events: Iterable[Id | inbox.LeasedEvent]) -> Call[inbox.InboxAnswers]:
        """Acknowledge up to 1,000 events in one request. Each event has its own result; none raises Conflict."""
        return _answered(inbox.InboxAnswers, "/v1/inbox/ack", body={"events": _named(events)})

    @verb
    def nack_many(
        self, events: Iterable[Id | inbox.LeasedEvent], *, delay_seconds: float | None = None
    ) -> Call[inbox.InboxAnswers]:
        """Give up to 1,000 events back in one request. Each event has its own result; none raises Conflict."""
        body = {"events": _named(events), "delay_seconds": delay_seconds}
        return _answered(inbox.InboxAnswers, "/v1/inbox/nack", body=body)

    @flow
    def consume(
        self,
        handle: Callable[[inbox.LeasedEvent], object],
        *,
        event_types: Iterable[str] | None = None,
        limit: int = 10,
        visibility_seconds: float = 60.0,
        retry_seconds: float = 30.0,
        until_empty: bool = False,
    ) -> Steps[int]:
        """Call `handle` with each event of the inbox, one after the other, and acknowledge those that it processed.

        If `handle` raises an exception, the event is given back, and is available again after `retry_seconds`; the
        exception is logged. Any number of consumers can run at the same time. An event may be handled twice, for
        example when a consumer crashes before it acknowledges its events, or when handling takes longer than
        `visibility_seconds`. Runs until it is cancelled or an exception such as KeyboardInterrupt ends it; with
        `until_empty`, until no event is available. Returns the number of acknowledged events. With AsyncClient,
        `handle` may be a coroutine function.
        """
        types = None if event_types is None else tuple(event_types)
        lease = Inbox.lease.described(self, limit=limit, visibility_seconds=visibility_seconds, event_types=types)
        count, idle_seconds = 0, _IDLE_SECONDS_MIN
        while True:
            ends_at = (yield from pause(0.0)) + visibility_seconds
            leased = yield from self._perform(lease)
            if not leased:
                if until_empty:
                    return count
                yield from pause(idle_seconds)
                idle_seconds = min(idle_seconds * 2, _IDLE_SECONDS_MAX)
                continue
            idle_seconds = _IDLE_SECONDS_MIN
            count += yield from self._handle_all(leased, handle, ends_at, retry_seconds)

    def _handle_all(
        self,
        leased: tuple[inbox.LeasedEvent, ...],
        handle: Callable[[inbox.LeasedEvent], object],
        ends_at: float,
        retry_seconds: float,
    ) -> Steps[int]:
        """Handle events until their lease ends; then acknowledge those that succeeded and give the others back.
        Returns the number of acknowledged events."""
        done: list[inbox.LeasedEvent] = []
        failed: list[inbox.LeasedEvent] = []
        for event in leased:
            if (yield from pause(0.0)) >= ends_at:
                break  # another consumer may have the others by now
            error = yield from invoke(partial(handle, event))
            if error is not None:
                _log.error("event %s (%s) could not be handled", event.event_id, event.event_type, exc_info=error)
            (done if error is None else failed).append(event)
        acknowledged = 0
        if done:
            answers = yield from self._perform(Inbox.acknowledge_many.described(self, done))
            acknowledged = sum(one.refusal is None for one in answers.events)
        if failed:
            yield from self._perform(Inbox.nack_many.described(self, failed, delay_seconds=retry_seconds))
        return acknowledged


_IDLE_SECONDS_MIN, _IDLE_SECONDS_MAX = 0.1, 2.0
"""How long a consumer pauses when the inbox is empty; the pause doubles each time."""


def _leased(content: bytes) -> tuple[inbox.LeasedEvent, ...]:
    return msgspec.json.decode(content, type=inbox.Leased).events


def _addressed(event: Id | inbox.LeasedEvent, lease_token: int | None = None) -> tuple[Id, dict[str, object]]:
    """The id of an event, and the token of the lease as a part of a body."""
    if isinstance(event, inbox.LeasedEvent):
        return event.event_id, {"lease_token": event.lease_token}
    return event, given({"lease_token": lease_token})


def _named(events: Iterable[Id | inbox.LeasedEvent]) -> list[dict[str, object]]:
    return [{"event_id": event_id} | token for event_id, token in map(_addressed, events)]


def _answered(shape: type[T], route: str, *ids: Id, body: Mapping[str, object]) -> Call[T]:
    """A call that may be repeated: a second answer for the same lease has the same effect as the first."""
    return replace(post(one(shape), route, *ids, body=body), repeatable=True)


_ENTITIES = "/v1/pipelines/{pipeline}/entities"
_ENTITY = f"{_ENTITIES}/{{entity_id}}"


class Pipelines(Group[R_co]):
    """`client.pipelines`."""

    @verb
    def page(self) -> Call[Page[pipelines.Pipeline]]:
        """All pipelines, each with its statuses."""
        return get(paged(pipelines.PipelinePage), "/v1/pipelines")

    @verb
    def entities(
        self, pipeline: str, *, status: str | None = None, archived: bool | None = None, **paging: Unpack[Paging]
    ) -> Call[Page[pipelines.Entity]]:
        """One page of a pipeline's entities, newest first; archived ones are included only with `archived`."""
        return get(
            paged(pipelines.EntityPage), _ENTITIES, pipeline, query={"status": status, "archived": archived, **paging}
        )

    each_entity = each_of(entities)

    @verb
    def read(self, pipeline: str, entity_id: str) -> Call[pipelines.Entity]:
        """One entity."""
        return get(one(pipelines.Entity), _ENTITY, pipeline, entity_id)

    @verb
    def history(self, pipeline: str, entity_id: str) -> Call[Page[pipelines.EntityChange]]:
        """Every change of an entity's status, oldest first."""
        return get(paged(pipelines.EntityHistoryPage), f"{_ENTITY}/history", pipeline, entity_id)

    @verb
    def retry(self, pipeline: str, entity_id: str, *, reason: str | None = None) -> Call[dict[str, str]]:
        """Restart a failed, dead or archived entity from the first stage."""
        return post(one(dict[str, str]), f"{_ENTITY}/retry", pipeline, entity_id, body={"reason": reason})

    @verb
    def approve(self, pipeline: str, entity_id: str, *, gate: str | None = None) -> Call[pipelines.Entity]:
        """Approve an entity that is waiting at a gate. Raises Conflict if it is not waiting at a gate, or if it is
        waiting at a gate other than `gate`."""
        return post(one(pipelines.Entity), f"{_ENTITY}/approve", pipeline, entity_id, body={"gate": gate})

    @verb
    def reject(
        self, pipeline: str, entity_id: str, *, reason: str | None = None, gate: str | None = None
    ) -> Call[pipelines.Entity]:
        """Reject an entity that is waiting at a gate; it becomes a dead letter.

        Raises Conflict if it is not waiting at a gate, or if it is waiting at a gate other than `gate`.
        """
        return post(
            one(pipelines.Entity), f"{_ENTITY}/reject", pipeline, entity_id, body={"reason": reason, "gate": gate}
        )

    @verb
    def delete(self, pipeline: str, entity_id: str) -> Call[None]:
        """Delete an entity and its history, regardless of its status."""
        return delete(_ENTITY, pipeline, entity_id)


class Batches(Group[R_co]):
    """`client.batches`. A batch is sent as an event, and has the id of that event."""

    @verb
    def page(
        self, *, status: events.BatchStatus | None = None, event_type: str | None = None, **paging: Unpack[Paging]
    ) -> Call[Page[events.Batch]]:
        """One page of batches, newest first."""
        return get(paged(events.BatchPage), "/v1/batches", query={"status": status, "event_type": event_type, **paging})

    each = each_of(page)

    @verb
    def read(self, batch_id: Id) -> Call[events.Batch]:
        """One batch."""
        return get(one(events.Batch), "/v1/batches/{batch_id}", batch_id)

    @verb
    def attempts(self, batch_id: Id) -> Call[Page[events.Submission]]:
        """The carrier log of a batch: every submission, in order."""
        return get(paged(events.SubmissionPage), "/v1/batches/{batch_id}/attempts", batch_id)

    @verb
    def resubmit(self, batch_id: Id, *, reason: str | None = None) -> Call[events.Batch]:
        """Submit a batch again immediately, with its retry count reset. Raises Conflict unless the batch is FAILED."""
        return post(one(events.Batch), "/v1/batches/{batch_id}/resubmit", batch_id, body={"reason": reason})
