"""Deliveries: one by one, in the retry queue, and in the dead letters; and acting on one of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from starlette.responses import Response

from doorstep.api.answers import all_of, as_it_is, counted, position, shape, whole
from doorstep.api.bodies import instant_from
from doorstep.api.examples import FIELDS
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.clock import Clock, seconds
from doorstep.model import attempt as attempts
from doorstep.model import delivery as deliveries
from doorstep.model.action import ActionKind
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES, States
from doorstep.model.listing import CauseGroup as Group
from doorstep.model.listing import DeadLetterFilter, RetryQueueFilter
from doorstep.model.org import ApiKey
from doorstep.operations.reader import Described
from doorstep.schemas.deliveries import (
    Attempt,
    AttemptPage,
    CauseGroup,
    CauseGroupPage,
    DeadLetter,
    DeadLetterPage,
    Delivery,
    HistoryPage,
    LetterRetryIn,
    LettersFilter,
    LettersQuery,
    QueuedDelivery,
    QueueFilter,
    QueueQuery,
    RetryQueuePage,
    Transition,
)
from doorstep.schemas.shape import ReasonIn

_NO_REASON, _NOTHING_ELSE = ReasonIn(), LetterRetryIn()
_ANY_JSON = {
    "description": "The payload",
    "content": {"application/json": {"schema": {}, "example": FIELDS["payload"]}},
}


def delivery_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/deliveries", "deliveries")

    @routes.get("/{delivery_id}")
    async def read_delivery(delivery_id: UUID, caller: Caller) -> Delivery:
        """One event owed to one endpoint, as it stands."""
        return await shown(doorstep, await doorstep.components.reader.delivery(caller.org_id, delivery_id))

    @routes.get("/{delivery_id}/payload", more={200: _ANY_JSON})
    async def read_payload(delivery_id: UUID, caller: Caller) -> Response:
        """The payload that is delivered, byte for byte: the event's, or the one that an operator gave instead."""
        payload = await doorstep.components.store.payload(caller.org_id, delivery_id)
        return Response(bytes(as_it_is(payload)), media_type="application/json")

    @routes.get("/{delivery_id}/attempts")
    async def list_attempts(delivery_id: UUID, caller: Caller) -> AttemptPage:
        """The attempt log of a delivery, in order. It outlives the deletion of a dead letter."""
        await doorstep.components.reader.delivery(caller.org_id, delivery_id)
        log = all_of(attempt_shown, await doorstep.components.reader.attempts(caller.org_id, delivery_id))
        return AttemptPage(log, whole(log))

    @routes.get("/{delivery_id}/history")
    async def list_history(delivery_id: UUID, caller: Caller) -> HistoryPage:
        """Every change of its state in order, its acceptance first."""
        await doorstep.components.reader.delivery(caller.org_id, delivery_id)
        history = all_of(_transition_shown, await doorstep.components.reader.history(caller.org_id, delivery_id))
        return HistoryPage(history, whole(history))

    return routes


def retry_queue_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/retry-queue", "retry queue")

    @routes.get()
    async def list_retry_queue(asked: QueueQuery, caller: Caller) -> RetryQueuePage:
        """Deliveries that failed at least once and will be tried again, or are being tried; the next retry first."""
        wanted = queue_from(asked, doorstep.clock)
        page, count = await doorstep.components.reader.retry_queue(caller.org_id, wanted, asked.cursor, asked.limit)
        described = await doorstep.components.reader.described(caller.org_id, page.items)
        return RetryQueuePage(all_of(queued_shown, described), counted(page, asked.limit, count))

    @routes.post("/{delivery_id}/retry", status=202)
    async def retry_delivery(delivery_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> Delivery:
        """Try a waiting delivery now, ahead of the queue and through an open circuit."""
        return await _after(doorstep, ActionKind.RETRY, delivery_id, caller, WAITING_STATES, body.reason)

    @routes.post("/{delivery_id}/skip")
    async def skip_delivery(delivery_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> Delivery:
        """Move a waiting delivery to the dead letters without another try."""
        return await _after(doorstep, ActionKind.SKIP, delivery_id, caller, WAITING_STATES, body.reason)

    return routes


def dead_letter_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/dead-letters", "dead letters")

    @routes.get()
    async def list_dead_letters(asked: LettersQuery, caller: Caller) -> DeadLetterPage:
        """Deliveries that the machine has given up on, newest first; archived ones only if asked for."""
        wanted = letters_from(asked)
        page, count = await doorstep.components.reader.dead_letters(caller.org_id, wanted, asked.cursor, asked.limit)
        described = await doorstep.components.reader.described(caller.org_id, page.items)
        return DeadLetterPage(all_of(_dead_letter_shown, described), counted(page, asked.limit, count))

    @routes.get("/groups")
    async def list_groups(asked: LettersQuery, caller: Caller) -> CauseGroupPage:
        """The same by cause: endpoint, error code and message, but for the message's numbers and names."""
        page = await doorstep.components.reader.cause_groups(
            caller.org_id, letters_from(asked), asked.cursor, asked.limit
        )
        names = await doorstep.components.reader.endpoint_names(
            caller.org_id, (group.endpoint_id for group in page.items)
        )
        groups = tuple(_group_shown(group, names[group.endpoint_id]) for group in page.items)
        return CauseGroupPage(groups, position(page, asked.limit))

    @routes.post("/{delivery_id}/retry", status=202, payload=True)
    async def retry_dead_letter(delivery_id: UUID, caller: Caller, body: LetterRetryIn = _NOTHING_ELSE) -> Delivery:
        """Try it again in 5 seconds, with a fresh count; with `payload`, deliver that from now on instead."""
        payload = given(body.payload)
        return await _after(doorstep, ActionKind.RETRY, delivery_id, caller, DEAD_STATES, body.reason, payload)

    @routes.post("/{delivery_id}/resolve")
    async def resolve_dead_letter(delivery_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> Delivery:
        """Say that it needs no delivery."""
        return await _after(doorstep, ActionKind.RESOLVE, delivery_id, caller, DEAD_STATES, body.reason)

    @routes.delete("/{delivery_id}")
    async def delete_dead_letter(delivery_id: UUID, caller: Caller) -> None:
        """Take it off every list. Its attempt log stays."""
        await doorstep.components.deliveries.act_on(ActionKind.DELETE, caller.org_id, delivery_id, caller.prefix)

    return routes


def given(payload: msgspec.Raw) -> bytes | None:
    """The bytes, or None where there was no such field. (A payload of null is a payload.)"""
    return bytes(payload) or None


async def shown(doorstep: Doorstep, delivery: deliveries.Delivery) -> Delivery:
    """With the reason for its waiting, where it is held."""
    return delivery_shown(delivery, await doorstep.components.reader.why_held(delivery))


async def _after(
    doorstep: Doorstep,
    kind: ActionKind,
    delivery_id: UUID,
    caller: ApiKey,
    only_in: States,
    reason: str = "",
    payload: bytes | None = None,
) -> Delivery:
    """Do it, if the delivery is in the states of this list, and show how it stands then."""
    await doorstep.components.deliveries.act_on(
        kind, caller.org_id, delivery_id, caller.prefix, reason, payload, only_in=only_in
    )
    return await shown(doorstep, await doorstep.components.reader.delivery(caller.org_id, delivery_id))


# -- what is asked for -------------------------------------------------------------------------------------------


def queue_from(asked: QueueFilter, clock: Clock) -> RetryQueueFilter:
    age = asked.older_than_seconds
    return RetryQueueFilter(
        waiting=None if asked.status is None else asked.status == "pending",
        event_type=asked.event_type,
        endpoint_id=asked.endpoint_id,
        failed_before=None if age is None else clock.now() - seconds(age),
    )


def letters_from(asked: LettersFilter, where: str = "") -> DeadLetterFilter:
    return DeadLetterFilter(
        archived=asked.status == "archived",
        event_type=asked.event_type,
        endpoint_id=asked.endpoint_id,
        cause=None if asked.cause is None else int(asked.cause, 16),
        died_from=instant_from(asked.died_from, f"{where}died_from"),
        died_before=instant_from(asked.died_before, f"{where}died_before"),
    )


# -- shapes ------------------------------------------------------------------------------------------------------


def delivery_shown(delivery: deliveries.Delivery, held: str | None) -> Delivery:
    return shape(Delivery, delivery, **_worded(delivery, held))


def queued_shown(described: Described) -> QueuedDelivery:
    return shape(QueuedDelivery, described.delivery, **_at_a_glance(described))


def _dead_letter_shown(described: Described) -> DeadLetter:
    cause = described.delivery.cause
    cause_shown = None if cause is None else hexadecimal(cause)
    return shape(DeadLetter, described.delivery, **_at_a_glance(described), cause=cause_shown)


def hexadecimal(cause: int) -> str:
    return f"{cause:016x}"


def _worded(delivery: deliveries.Delivery, held: str | None) -> dict[str, Any]:
    return {
        "attempts": delivery.attempt,
        "error_category": delivery.category,
        "error_code": delivery.code,
        "held": held,
    }


def _at_a_glance(described: Described) -> dict[str, Any]:
    delivery = described.delivery
    return _worded(delivery, described.held) | {
        "endpoint_name": described.endpoint_name,
        "error": delivery.code,
        "error_reason": delivery.reason,
        "retry_count": f"{delivery.retry_attempts} / {delivery.retries_max}",
    }


def _group_shown(group: Group, endpoint_name: str) -> CauseGroup:
    return shape(
        CauseGroup,
        group,
        cause=hexadecimal(group.cause),
        endpoint_name=endpoint_name,
        error_code=group.code,
        error_reason=group.reason,
        count=group.count.value,
        count_is_floor=not group.count.exact,
        sample_delivery_id=group.sample_id,
    )


def attempt_shown(attempt: attempts.Attempt) -> Attempt:
    return shape(
        Attempt,
        attempt,
        duration_ms=(attempt.finished_at - attempt.started_at) / 1_000,
        dns_ms=attempt.timings.dns / 1_000,
        connect_ms=attempt.timings.connect / 1_000,
        tls_ms=attempt.timings.tls / 1_000,
        first_byte_ms=attempt.timings.first_byte / 1_000,
        request_headers=attempt.request_headers.decode("utf-8", "replace"),
        response_headers=attempt.response_headers.decode("utf-8", "replace"),
        response_body=attempt.response_body.decode("utf-8", "replace"),
        error_category=attempt.category,
        error_code=attempt.code,
        error_reason=attempt.reason,
        error_detail=attempt.detail,
    )


def _transition_shown(line: deliveries.HistoryLine) -> Transition:
    return shape(Transition, line)
