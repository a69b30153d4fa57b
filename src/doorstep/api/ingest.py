"""Sending events: the two busiest routes, without the framework. The bytes of a payload are kept unchanged.

The response is sent only after the commit, so a 202 means that the event is stored. Concurrent requests share a commit.
"""

from __future__ import annotations

from typing import Any

import msgspec

from doorstep.api.access import Access
from doorstep.api.codec import OVERHEAD_BYTES, decode, instant_from
from doorstep.api.direct import Answer, DirectRequest
from doorstep.api.problems import Problem, Refusal, invalid
from doorstep.api.routing import Routes
from doorstep.engine.accept import KEY_CONFLICT, Draft, check_key
from doorstep.model import event as model
from doorstep.model.event import Verdict
from doorstep.model.org import Permission
from doorstep.operations.shapes import receipt_shown
from doorstep.schemas.events import BATCH_MAX, KEY_RULES, BatchIn, EventIn, Events, Receipt, Receipts
from doorstep.schemas.shape import FieldProblem
from doorstep.telemetry.tracing import incoming

BATCH_PATH = "/v1/events/batch"
routes = Routes("/v1/events", "events")
_event_decoder = msgspec.json.Decoder(EventIn)
_list_decoder = msgspec.json.Decoder(list[EventIn])
_batch_decoder = msgspec.json.Decoder(BatchIn)
_MIXED = (
    "Stored, except for events with the verdict `conflict`: their idempotency key was used before for another event"
)
_STORED: dict[str, Any] = {"status": 202, "more": {207: (Receipts, _MIXED)}}
_KEY_HEADER = b"idempotency-key"
_IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "If you send the same event with the same key again within 24 hours, nothing new is stored.",
    "schema": {"type": "string", **KEY_RULES},
}


@routes.direct(
    "POST",
    "/v1/events",
    Access(Permission.SEND, conflict=True, own=True),
    Receipt | Receipts,
    body=EventIn | Events,
    headers=(_IDEMPOTENCY_KEY,),
    **_STORED,
)
async def send_event(request: DirectRequest) -> Answer:
    """Send an event, or a list of up to 1,000 events. A 202 means that each event is durably stored, with one delivery
    for each matching endpoint. A 429 means that more events arrive than can be stored in time; nothing was stored: send
    the event again after `Retry-After`. With the header `Idempotency-Key`, a repeated request gets the same response as the
    first."""
    body = await request.body(request.settings.payload_bytes_max + OVERHEAD_BYTES)
    if body.lstrip()[:1] == b"[":
        return await _store_batch(request, body)
    event = decode(_event_decoder, body)
    (receipt,) = await _store(request, [event], _header_key(request, event))
    if receipt.verdict is Verdict.CONFLICT:
        raise Refusal(Problem.CONFLICT, KEY_CONFLICT)
    return Answer(202, receipt_shown(receipt))


@routes.direct("POST", BATCH_PATH, Access(Permission.SEND, own=True), Receipts, body=BatchIn | Events, **_STORED)
async def send_batch(request: DirectRequest) -> Answer:
    """Send up to 1,000 events in one transaction. Returns one receipt for each event, in the order sent."""
    return await _store_batch(request, await request.body(request.settings.batch_bytes_max))


async def _store_batch(request: DirectRequest, body: bytes) -> Answer:
    events = _decode_events(body)
    if not 1 <= len(events) <= BATCH_MAX:
        raise invalid(FieldProblem("events", f"must contain 1 to {BATCH_MAX} events, got {len(events)}"))
    if request.header(_KEY_HEADER) is not None:
        message = "is for a single event; give each event of a batch its own idempotency_key"
        raise invalid(FieldProblem("Idempotency-Key", message))
    receipts = await _store(request, events)
    conflict = any(receipt.verdict is Verdict.CONFLICT for receipt in receipts)
    return Answer(207 if conflict else 202, Receipts(tuple(map(receipt_shown, receipts))))


async def _store(
    request: DirectRequest, events: list[EventIn], idempotency_key: str | None = None
) -> list[model.Receipt]:
    trace = _trace_of(request)
    places = [""] if len(events) == 1 else [f"events[{position}]." for position in range(len(events))]
    drafts = [
        Draft(
            org_id=request.key.org_id,
            event_type=event.event_type,
            payload=bytes(event.payload),
            correlation_id=request.correlation_id,
            endpoint_ids=event.endpoint_ids,
            deliver_at=instant_from(event.deliver_at, f"{place}deliver_at"),
            expires_at=instant_from(event.expires_at, f"{place}expires_at"),
            metadata=bytes(event.metadata),
            ordering_key=event.ordering_key,
            idempotency_key=event.idempotency_key if idempotency_key is None else idempotency_key,
            trace=trace,
            user_id=request.key.user_id,
        )
        for place, event in zip(places, events, strict=True)
    ]
    return await request.components.accepter.accept(drafts)


def _trace_of(request: DirectRequest) -> str | None:
    """The trace context of this request. Malformed headers are ignored, as the W3C specification requires."""
    given = request.header(b"traceparent")
    return None if given is None else incoming(given, request.header(b"tracestate"))


def _header_key(request: DirectRequest, event: EventIn) -> str | None:
    """The idempotency key from the header. If the body also contains a key, both must be equal."""
    given = request.header(_KEY_HEADER)
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
