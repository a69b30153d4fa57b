"""Deliveries, the retry queue, the dead letters, and actions on one delivery."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from starlette.responses import Response

from doorstep.api.codec import all_of, counted, instant_from, position, span_of, whole
from doorstep.api.examples import FIELDS
from doorstep.api.routing import ApiRequest, Routes
from doorstep.clock import Clock, seconds
from doorstep.model.action import ActionKind
from doorstep.model.attempt import AttemptSummary
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES, DeliveryState, States
from doorstep.model.listing import AttemptFilter, DeadLetterFilter, DeliveryFilter, RetryQueueFilter
from doorstep.model.listing import CauseGroup as Group
from doorstep.model.org import Permission
from doorstep.operations.reader import Described
from doorstep.operations.shapes import as_it_is, attempt_shown, delivery_fields, delivery_shown, shape, time
from doorstep.operations.waits import Change, read_history
from doorstep.schemas import deliveries as schemas
from doorstep.schemas.shape import ReasonIn

_NO_REASON, _NOTHING_ELSE = ReasonIn(), schemas.LetterRetryIn()
_ANY_JSON = {
    "description": "The payload",
    "content": {"application/json": {"schema": {}, "example": FIELDS["payload"]}},
}

delivery_routes = Routes("/v1/deliveries", "deliveries")
attempt_routes = Routes("/v1/attempts", "deliveries")
retry_queue_routes = Routes("/v1/retry-queue", "retry queue")
dead_letter_routes = Routes("/v1/dead-letters", "dead letters")


@delivery_routes.get("", Permission.LOOK)
async def list_deliveries(query: schemas.DeliveriesQuery, request: ApiRequest) -> schemas.DeliveryPage:
    """Deliveries in any state, newest first: by endpoint, state, event type, error code of the last attempt, and time
    of creation. Deleted dead letters are not listed."""
    page = await request.reader.delivery_page(request.org_id, _deliveries_from(query), query.cursor, query.limit)
    return schemas.DeliveryPage(all_of(queued_shown, page.items), pagination=position(page, query.limit))


@attempt_routes.get("", Permission.LOOK)
async def list_all_attempts(query: schemas.AttemptsQuery, request: ApiRequest) -> schemas.AttemptListPage:
    """Attempts, newest first: by endpoint, result, event type, error code, and time at which they started. For the
    request and the response of an attempt, read the attempt log of its delivery."""
    page = await request.reader.attempt_page(request.org_id, _attempts_from(query), query.cursor, query.limit)
    names = await request.reader.endpoint_names(request.org_id, {one.endpoint_id for one in page.items})
    attempts = tuple(_attempt_item(one, names[one.endpoint_id]) for one in page.items)
    return schemas.AttemptListPage(attempts, pagination=position(page, query.limit))


@delivery_routes.get("/{delivery_id}", Permission.LOOK)
async def read_delivery(delivery_id: UUID, request: ApiRequest) -> schemas.Delivery:
    """The delivery of one event to one endpoint, in its current state."""
    delivery = await request.reader.delivery(request.org_id, delivery_id)
    return delivery_shown(await request.reader.described_one(delivery))


@delivery_routes.get("/{delivery_id}/payload", Permission.LOOK, more={200: _ANY_JSON})
async def read_payload(delivery_id: UUID, request: ApiRequest) -> Response:
    """The exact bytes that are delivered: the event's payload, or the payload that an operator edited."""
    payload = await request.reader.payload(request.org_id, delivery_id)
    return Response(bytes(as_it_is(payload)), media_type="application/json")


@delivery_routes.get("/{delivery_id}/attempts", Permission.LOOK)
async def list_attempts(delivery_id: UUID, request: ApiRequest) -> schemas.AttemptPage:
    """The attempt log of a delivery, oldest first. The log is kept even when a dead letter is deleted."""
    await request.reader.delivery(request.org_id, delivery_id)
    attempts = await request.reader.attempts(request.org_id, delivery_id)
    return whole(schemas.AttemptPage, all_of(attempt_shown, attempts))


@delivery_routes.get("/{delivery_id}/history", Permission.LOOK)
async def list_history(delivery_id: UUID, request: ApiRequest) -> schemas.HistoryPage:
    """Every change of the delivery's state, oldest first, starting with its acceptance; and what held it back before."""
    delivery = await request.reader.delivery(request.org_id, delivery_id)
    revive_after_seconds = request.components.tuning.revive_after_seconds
    changes = await read_history(request.reader, delivery, request.doorstep.clock.now(), revive_after_seconds)
    return whole(schemas.HistoryPage, all_of(_transition_shown, changes))


@retry_queue_routes.get("", Permission.LOOK)
async def list_retry_queue(query: schemas.QueueQuery, request: ApiRequest) -> schemas.RetryQueuePage:
    """Deliveries that failed at least once and will be retried, or are being retried; soonest retry first."""
    filter = queue_from(query, request.doorstep.clock)
    page, count = await request.reader.retry_queue(request.org_id, filter, query.cursor, query.limit)
    described = await request.reader.described(request.org_id, page.items)
    return schemas.RetryQueuePage(all_of(queued_shown, described), pagination=counted(page, query.limit, count))


@retry_queue_routes.post("/{delivery_id}/retry", Permission.ACT, conflict=True, status=202)
async def retry_delivery(delivery_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Delivery:
    """Retry a waiting delivery now, ahead of the queue and through an open circuit."""
    return await _act(ActionKind.RETRY, delivery_id, request, WAITING_STATES, body.reason)


@retry_queue_routes.post("/{delivery_id}/skip", Permission.ACT, conflict=True)
async def skip_delivery(delivery_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Delivery:
    """Move a waiting delivery to the dead letters without another attempt."""
    return await _act(ActionKind.SKIP, delivery_id, request, WAITING_STATES, body.reason)


@dead_letter_routes.get("", Permission.LOOK)
async def list_dead_letters(query: schemas.LettersQuery, request: ApiRequest) -> schemas.DeadLetterPage:
    """Deliveries that failed permanently, newest first. Archived ones are listed only with `status=archived`."""
    filter = letters_from(query)
    page, count = await request.reader.dead_letters(request.org_id, filter, query.cursor, query.limit)
    described = await request.reader.described(request.org_id, page.items)
    return schemas.DeadLetterPage(all_of(_dead_letter_shown, described), pagination=counted(page, query.limit, count))


@dead_letter_routes.get("/groups", Permission.LOOK)
async def list_groups(query: schemas.LettersQuery, request: ApiRequest) -> schemas.CauseGroupPage:
    """Dead letters grouped by cause: endpoint, error code, and error message without its numbers and names."""
    page = await request.reader.cause_groups(request.org_id, letters_from(query), query.cursor, query.limit)
    names = await request.reader.endpoint_names(request.org_id, (group.endpoint_id for group in page.items))
    groups = tuple(_group_shown(group, names[group.endpoint_id]) for group in page.items)
    return schemas.CauseGroupPage(groups, pagination=position(page, query.limit))


@dead_letter_routes.post("/{delivery_id}/retry", Permission.ACT, conflict=True, status=202, payload=True)
async def retry_dead_letter(
    delivery_id: UUID, request: ApiRequest, body: schemas.LetterRetryIn = _NOTHING_ELSE
) -> schemas.Delivery:
    """Retry a dead letter in 5 seconds, with its retry count reset. A `payload` replaces the event's payload for this
    delivery."""
    payload = bytes(body.payload) or None  # empty if the field was omitted; JSON null is a payload
    return await _act(ActionKind.RETRY, delivery_id, request, DEAD_STATES, body.reason, payload)


@dead_letter_routes.post("/{delivery_id}/resolve", Permission.ACT, conflict=True)
async def resolve_dead_letter(delivery_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Delivery:
    """Mark a dead letter as resolved: it no longer needs to be delivered."""
    return await _act(ActionKind.RESOLVE, delivery_id, request, DEAD_STATES, body.reason)


@dead_letter_routes.delete("/{delivery_id}", Permission.ACT, conflict=True)
async def delete_dead_letter(delivery_id: UUID, request: ApiRequest) -> None:
    """Remove a dead letter from every list. Its attempt log is kept."""
    await request.components.deliveries.act_on(ActionKind.DELETE, request.org_id, delivery_id, request.actor)


async def _act(
    kind: ActionKind,
    delivery_id: UUID,
    request: ApiRequest,
    only_in: States,
    reason: str,
    payload: bytes | None = None,
) -> schemas.Delivery:
    """Act on a delivery if its state is in `only_in`, and return it with its new state."""
    await request.components.deliveries.act_on(
        kind, request.org_id, delivery_id, request.actor, reason, payload, only_in=only_in
    )
    return await read_delivery(delivery_id, request)


# -- filters -------------------------------------------------------------------------------------------


def _deliveries_from(query: schemas.DeliveriesQuery) -> DeliveryFilter:
    return DeliveryFilter(
        endpoint_id=query.endpoint_id,
        state=None if query.state is None else DeliveryState(query.state),
        event_type=query.event_type,
        code=query.error_code,
        created_from=instant_from(query.since, "since"),
        created_before=instant_from(query.until, "until"),
    )


def _attempts_from(query: schemas.AttemptsQuery) -> AttemptFilter:
    return AttemptFilter(
        endpoint_id=query.endpoint_id,
        succeeded=None if query.state is None else query.state == "succeeded",
        event_type=query.event_type,
        code=query.error_code,
        started_from=instant_from(query.since, "since"),
        started_before=instant_from(query.until, "until"),
    )


def queue_from(query: schemas.QueueFilter, clock: Clock) -> RetryQueueFilter:
    age = query.older_than_seconds
    return RetryQueueFilter(
        waiting=None if query.status is None else query.status == "pending",
        event_type=query.event_type,
        endpoint_id=query.endpoint_id,
        failed_before=None if age is None else clock.now() - seconds(age),
    )


def letters_from(query: schemas.LettersFilter, where: str = "") -> DeadLetterFilter:
    since, until = span_of(query, where)
    return DeadLetterFilter(
        archived=query.status == "archived",
        event_type=query.event_type,
        endpoint_id=query.endpoint_id,
        cause=None if query.cause is None else int(query.cause, 16),
        died_from=since,
        died_before=until,
    )


# -- shapes ------------------------------------------------------------------------------------------------------


def queued_shown(described: Described) -> schemas.QueuedDelivery:
    return shape(schemas.QueuedDelivery, described.delivery, **_list_fields(described))


def _attempt_item(attempt: AttemptSummary, endpoint_name: str) -> schemas.AttemptItem:
    return shape(
        schemas.AttemptItem,
        attempt,
        endpoint_name=endpoint_name,
        duration_ms=(attempt.finished_at - attempt.started_at) / 1_000,
        error_category=attempt.category,
        error_code=attempt.code,
        error_reason=attempt.reason,
    )


def _dead_letter_shown(described: Described) -> schemas.DeadLetter:
    cause = described.delivery.cause
    cause_shown = None if cause is None else hexadecimal(cause)
    return shape(schemas.DeadLetter, described.delivery, **_list_fields(described), cause=cause_shown)


def hexadecimal(cause: int) -> str:
    return f"{cause:016x}"


def _list_fields(described: Described) -> dict[str, Any]:
    delivery = described.delivery
    return delivery_fields(described) | {
        "endpoint_name": described.endpoint_name,
        "error": delivery.code,
        "error_reason": delivery.reason,
        "retry_count": f"{delivery.retry_attempts} / {delivery.retries_max}",
    }


def _transition_shown(change: Change) -> schemas.Transition:
    holds = tuple(schemas.PastHold(time(one.begin), time(one.end), one.sentence) for one in change.holds)
    return shape(schemas.Transition, change.entry, holds=holds)


def _group_shown(group: Group, endpoint_name: str) -> schemas.CauseGroup:
    return shape(
        schemas.CauseGroup,
        group,
        cause=hexadecimal(group.cause),
        endpoint_name=endpoint_name,
        error_code=group.code,
        error_reason=group.reason,
        count=group.count.value,
        count_is_floor=not group.count.exact,
        sample_delivery_id=group.sample_id,
    )
