"""Attempts as items, beside the event and its deliveries."""

from __future__ import annotations

import msgspec

from doorstep.model.attempt import Attempt
from doorstep.model.claim import Settlement
from doorstep.model.event import Event
from doorstep.stores.dynamodb.client import Item, key_of
from doorstep.stores.dynamodb.rows import attempt_key
from doorstep.stores.limits import storable

BODY_BYTES_MAX = 128 * 1024
"""How much of a response body is kept. An item has 400 KB, and bytes take a third more in JSON."""
_TEXT_MAX = 16 * 1024
"""How much of each other text is kept."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Attempt).decode


def attempt_of(settlement: Settlement, late: bool) -> Attempt:
    """The row of the attempt log for one result."""
    claim, outcome, reply = settlement.claim, settlement.outcome, settlement.outcome.reply
    return Attempt(
        delivery_id=claim.delivery_id,
        number=claim.attempt,
        started_at=reply.started_at,
        finished_at=reply.finished_at,
        timings=reply.timings,
        request_headers=reply.request_headers[:_TEXT_MAX],
        response_code=reply.status,
        response_headers=reply.headers[:_TEXT_MAX],
        response_body=reply.body[:BODY_BYTES_MAX],
        category=outcome.category,
        code=outcome.code and storable(outcome.code),
        reason=storable(outcome.reason[:_TEXT_MAX]),
        detail=storable(outcome.detail[:_TEXT_MAX]),
        worker=claim.worker,
        next_retry_at=None if late else settlement.due_at,
        late=late,
    )


def attempt_item(event: Event, attempt: Attempt, sequence: str) -> Item:
    key = attempt_key(event.event_id, attempt, sequence)
    return {**key_of(key), "document": {"S": _encode(attempt).decode()}}


def attempt_from(item: Item) -> Attempt:
    return _decode(item["document"]["S"])
