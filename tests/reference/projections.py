"""Converts rows to the values of the model: deliveries, views, claims, attempts."""

from __future__ import annotations

from doorstep.clock import Instant
from doorstep.model.attempt import Attempt, AttemptSummary
from doorstep.model.claim import Claim, Settlement
from doorstep.model.delivery import Delivery, DeliveryState, NewDelivery
from doorstep.model.endpoint import CircuitState, EndpointState
from doorstep.model.event import EventBody, EventSummary, EventView
from doorstep.stores.limits import storable
from tests.reference.tables import DeliveryRow, EventRow, Tables


def new_delivery(row: EventRow, new: NewDelivery) -> Delivery:
    """A delivery just after acceptance: waiting, with the creation time of its event."""
    return Delivery(
        delivery_id=new.delivery_id,
        event_id=row.event.event_id,
        endpoint_id=new.endpoint_id,
        org_id=row.event.org_id,
        event_type=row.event.event_type,
        state=DeliveryState.PENDING,
        due_at=new.due_at,
        created_at=row.event.created_at,
        retries_max=new.retries_max,
        batch=new.batch,
    )


def retried_at(delivery: Delivery, tables: Tables) -> Instant | None:
    """When a worker will really retry it: not while its endpoint is stopped, nor before the next probe."""
    at = delivery.next_retry_at
    if at is None or tables.endpoints[delivery.endpoint_id].state is not EndpointState.ACTIVE:
        return None
    circuit = tables.circuits.get(delivery.endpoint_id)
    if delivery.forced or circuit is None or circuit.state is CircuitState.CLOSED:
        return at
    return max(at, circuit.until or at)


def view_of(row: EventRow, tables: Tables) -> EventView:
    """An event with the figures of its deliveries."""
    retries = (retried_at(row.delivery, tables) for row in row.deliveries)
    deliveries = [one.delivery for one in row.deliveries]
    retried = (one.last_attempt_at for one in deliveries if one.attempt > 1)
    return EventView(
        event=row.event,
        status=row.status,
        deliveries=row.accepted_deliveries,
        retry_attempts=max((one.retry_attempts for one in deliveries), default=0),
        last_retry_at=max((at for at in retried if at is not None), default=None),
        failed_at=row.failed_at,
        next_retry_at=min((at for at in retries if at is not None), default=None),
        receive_count=row.receive_count,
        leased_by=row.leased_by,
        visible_at=row.visible_at,
    )


def body_of(row: EventRow) -> EventBody:
    return EventBody(event_id=row.event.event_id, metadata=row.event.metadata, payload=row.event.payload)


def summary_of(row: EventRow, tables: Tables) -> EventSummary:
    """The same view without payload and metadata."""
    view = view_of(row, tables)
    return EventSummary(
        event_id=view.event.event_id,
        event_type=view.event.event_type,
        created_at=view.event.created_at,
        correlation_id=view.event.correlation_id,
        user_id=view.event.user_id,
        status=view.status,
        deliveries=view.deliveries,
        retry_attempts=view.retry_attempts,
        last_retry_at=view.last_retry_at,
        failed_at=view.failed_at,
        next_retry_at=view.next_retry_at,
    )


def claim_of(row: DeliveryRow, picked_up: bool, was_due_at: Instant | None = None) -> Claim:
    """The claim that holds a delivery in progress."""
    delivery, event = row.delivery, row.event.event
    assert delivery.claimed_at is not None and delivery.due_at is not None and delivery.worker is not None
    return Claim(
        key=row.key,
        event_key=event.event_id,
        token=row.token,
        delivery_id=delivery.delivery_id,
        event_id=event.event_id,
        endpoint_id=delivery.endpoint_id,
        org_id=event.org_id,
        event_type=event.event_type,
        payload=row.payload,
        correlation_id=event.correlation_id,
        accepted_at=event.created_at,
        expires_at=event.expires_at,
        attempt=delivery.attempt,
        retry_attempts=delivery.retry_attempts,
        retries_max=delivery.retries_max,
        first_failed_at=delivery.first_failed_at,
        claimed_at=delivery.claimed_at,
        lease_until=delivery.due_at,
        worker=delivery.worker,
        picked_up=picked_up,
        ordering_key=event.ordering_key,
        metadata=event.metadata,
        trace=event.trace,
        deliver_at=event.deliver_at,
        was_due_at=was_due_at,
        uncounted=row.uncounted,
        user_id=event.user_id,
    )


def attempt_of(settlement: Settlement, late: bool) -> Attempt:
    """The attempt-log row for one result."""
    claim, outcome, reply = settlement.claim, settlement.outcome, settlement.outcome.reply
    return Attempt(
        delivery_id=claim.delivery_id,
        number=claim.attempt,
        started_at=reply.started_at,
        finished_at=reply.finished_at,
        timings=reply.timings,
        request_headers=reply.request_headers,
        response_code=reply.status,
        response_headers=reply.headers,
        response_body=reply.body,
        category=outcome.category,
        code=outcome.code and storable(outcome.code),
        reason=storable(outcome.reason),
        detail=storable(outcome.detail),
        worker=claim.worker,
        next_retry_at=None if late else settlement.due_at,
        late=late,
    )


def attempt_summary(row: DeliveryRow, attempt: Attempt) -> AttemptSummary:
    """An attempt as the list of attempts shows it."""
    delivery = row.delivery
    return AttemptSummary(
        delivery_id=delivery.delivery_id,
        event_id=delivery.event_id,
        endpoint_id=delivery.endpoint_id,
        event_type=delivery.event_type,
        number=attempt.number,
        started_at=attempt.started_at,
        finished_at=attempt.finished_at,
        response_code=attempt.response_code,
        category=attempt.category,
        code=attempt.code,
        reason=attempt.reason,
        worker=attempt.worker,
        next_retry_at=attempt.next_retry_at,
        late=attempt.late,
    )
