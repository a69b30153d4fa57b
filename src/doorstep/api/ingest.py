"""Sending events: the two busiest routes, in plain Starlette and msgspec. The bytes of a payload are kept unchanged.

The response is sent only after the commit, so a 202 means that the event is stored. Concurrent requests share a commit.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.codec import OVERHEAD_BYTES, answer, decode, instant_from, read_body, time
from doorstep.api.middleware import correlation_id, trace_of
from doorstep.api.problems import Problem, Refusal, invalid
from doorstep.api.routing import ApiRequest, Routes
from doorstep.engine.accept import KEY_CONFLICT, Draft, check_key
from doorstep.model import event as model
from doorstep.model.event import Verdict
from doorstep.schemas.events import BATCH_MAX, KEY_RULES, BatchIn, EventIn, Events, Receipt, Receipts
from doorstep.schemas.shape import FieldProblem

routes = Routes("/v1/events", "events")
_event_decoder = msgspec.json.Decoder(EventIn)
_list_decoder = msgspec.json.Decoder(list[EventIn])
_batch_decoder = msgspec.json.Decoder(BatchIn)
_MIXED = (
    "Stored, except for events with the verdict `conflict`: their idempotency key was used before for another event"
)
_STORED: dict[str, Any] = {"status": 202, "more": {207: (Receipts, _MIXED)}}
_IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "If you send the same event with the same key again within 24 hours, nothing new is stored.",
    "schema": {"type": "string", **KEY_RULES},
}


@routes.plain("POST", "/v1/events", Receipt | Receipts, body=EventIn | Events, headers=(_IDEMPOTENCY_KEY,), **_STORED)
async def send_event(request: ApiRequest) -> Response:
    """Send an event, or a list of up to 1,000 events. A 202 means that each event is durably stored, with one delivery
    for each matching endpoint. With the header `Idempotency-Key`, a repeated request gets the same response as the
    first."""
    body = await read_body(request.http, request.doorstep.settings.payload_bytes_max + OVERHEAD_BYTES)
    if body.lstrip()[:1] == b"[":
        return await _store_batch(request, body)
    event = decode(_event_decoder, body)
    (receipt,) = await _store(request, [event], _header_key(request.http, event))
    if receipt.verdict is Verdict.CONFLICT:
        raise Refusal(Problem.CONFLICT, KEY_CONFLICT)
    return answer(receipt_shown(receipt), 202)


@routes.plain("POST", "/v1/events/batch", Receipts, body=BatchIn | Events, **_STORED)
async def send_batch(request: ApiRequest) -> Response:
    """Send up to 1,000 events in one transaction. Returns one receipt for each event, in the order sent."""
    return await _store_batch(request, await read_body(request.http, request.doorstep.settings.batch_bytes_max))


async def _store_batch(request: ApiRequest, body: bytes) -> Response:
    events = _decode_events(body)
    if not 1 <= len(events) <= BATCH_MAX:
        raise invalid(FieldProblem("events", f"must contain 1 to {BATCH_MAX} events, got {len(events)}"))
    if "idempotency-key" in request.http.headers:
        message = "is for a single event; give each event of a batch its own idempotency_key"
        raise invalid(FieldProblem("Idempotency-Key", message))
    receipts = await _store(request, events)
    conflict = any(receipt.verdict is Verdict.CONFLICT for receipt in receipts)
    return answer(Receipts(tuple(map(receipt_shown, receipts))), 207 if conflict else 202)


async def _store(request: ApiRequest, events: list[EventIn], idempotency_key: str | None = None) -> list[model.Receipt]:
    correlation, trace = correlation_id(request.http), trace_of(request.http)
    places = [""] if len(events) == 1 else [f"events[{position}]." for position in range(len(events))]
    drafts = [
        Draft(
            org_id=request.org_id,
            event_type=event.event_type,
            payload=bytes(event.payload),
            correlation_id=correlation,
            endpoint_ids=event.endpoint_ids,
            deliver_at=instant_from(event.deliver_at, f"{place}deliver_at"),
            expires_at=instant_from(event.expires_at, f"{place}expires_at"),
            metadata=bytes(event.metadata),
            ordering_key=event.ordering_key,
            idempotency_key=event.idempotency_key if idempotency_key is None else idempotency_key,
            trace=trace,
        )
        for place, event in zip(places, events, strict=True)
    ]
    return await request.components.accepter.accept(drafts)


def receipt_shown(receipt: model.Receipt) -> Receipt:
    return Receipt(receipt.event_id, "received", time(receipt.created_at), receipt.deliveries, receipt.verdict.value)


def _header_key(request: Request, event: EventIn) -> str | None:
    """The idempotency key from the header. If the body also contains a key, both must be equal."""
    given = request.headers.get("idempotency-key")
    check_key("Idempotency-Key", given)
    if given is not None and event.idempotency_key not in (None, given):
        raise invalid(FieldProblem("Idempotency-Key", "differs from idempotency_key in the body; give only one"))
    return given


def _decode_events(body: bytes) -> list[EventIn]:
    """Decode a list of events, or an object that has the list in its field `events`."""
    try:
        if body.lstrip()[:1] == b"[":
            return decode(_list_decoder, body)
        return decode(_batch_decoder, body).events
    except Refusal as refusal:
        raise _with_position(body) or refusal from None


def _with_position(body: bytes) -> Refusal | None:
    """Find the invalid element of a list, because the parser does not report its position."""
    raw = msgspec.json.Decoder(list[msgspec.Raw] | dict[str, msgspec.Raw])
    try:
        parsed = raw.decode(body)
        events = parsed if isinstance(parsed, list) else msgspec.json.decode(parsed["events"], type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, KeyError):
        return None
    for position, event in enumerate(events):
        try:
            decode(_event_decoder, bytes(event))
        except Refusal as refusal:
            return invalid(*(_moved(error, position) for error in refusal.errors)) if refusal.errors else None
    return None


def _moved(error: FieldProblem, position: int) -> FieldProblem:
    where = f"events[{position}]"
    return FieldProblem(where if error.field == "body" else f"{where}.{error.field}", error.message)
