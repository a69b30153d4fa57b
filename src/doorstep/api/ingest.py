"""Sending events: the two busiest routes, in plain Starlette and msgspec. The bytes of a payload are kept unchanged.

The response is sent only after the commit, so a 202 means that the event is stored. Concurrent requests share a commit.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.codec import OVERHEAD_BYTES, all_of, answer, decode, instant_from, read_body, time
from doorstep.api.middleware import api_key, correlation_id, trace_of
from doorstep.api.problems import FieldError, Problem, Refusal, invalid
from doorstep.api.routing import Routes
from doorstep.app import Doorstep
from doorstep.engine.accept import KEY_CONFLICT, Draft, check_key
from doorstep.model import event as model
from doorstep.model.event import Verdict
from doorstep.model.org import ApiKey
from doorstep.schemas.events import BATCH_MAX, KEY_RULES, BatchIn, EventIn, Events, Receipt, Receipts


class Ingest:
    """The routes, bound to the engine that accepts the events."""

    def __init__(self, doorstep: Doorstep) -> None:
        self._doorstep = doorstep
        self._payload_bytes_max = doorstep.settings.payload_bytes_max
        self._batch_bytes_max = doorstep.settings.batch_bytes_max

    async def send_event(self, request: Request) -> Response:
        """Send an event, or a list of up to 1,000. A 202 means that it is durably stored, with one delivery for each
        matching endpoint. With the header `Idempotency-Key`, a repeated request gets the same response as the first."""
        key = api_key(request)
        body = await read_body(request, self._payload_bytes_max + OVERHEAD_BYTES)
        if body.lstrip()[:1] == b"[":
            return await self._store_batch(request, key, _decode_events(body))
        event = decode(_event_decoder, body)
        (receipt,) = await self._store(request, key, [event], _header_key(request, event))
        if receipt.verdict is Verdict.CONFLICT:
            raise Refusal(Problem.CONFLICT, KEY_CONFLICT)
        return answer(receipt_shown(receipt), 202)

    async def send_batch(self, request: Request) -> Response:
        """Send up to 1,000 events in one transaction. Returns one receipt for each, in the order sent."""
        key = api_key(request)
        body = await read_body(request, self._batch_bytes_max)
        return await self._store_batch(request, key, _decode_events(body))

    async def _store_batch(self, request: Request, key: ApiKey, events: list[EventIn]) -> Response:
        if not 1 <= len(events) <= BATCH_MAX:
            raise invalid(FieldError("events", f"must contain 1 to {BATCH_MAX} events, got {len(events)}"))
        if "idempotency-key" in request.headers:
            message = "is for a single event; give each event of a batch its own idempotency_key"
            raise invalid(FieldError("Idempotency-Key", message))
        receipts = await self._store(request, key, events)
        conflict = any(receipt.verdict is Verdict.CONFLICT for receipt in receipts)
        return answer(Receipts(all_of(receipt_shown, receipts)), 207 if conflict else 202)

    async def _store(
        self, request: Request, key: ApiKey, events: list[EventIn], idempotency_key: str | None = None
    ) -> list[model.Receipt]:
        correlation, trace = correlation_id(request), trace_of(request)
        single = len(events) == 1
        drafts = [
            self._draft(
                event, key.org_id, correlation, idempotency_key, "" if single else f"events[{position}].", trace
            )
            for position, event in enumerate(events)
        ]
        return await self._doorstep.components.accepter.accept(drafts)

    def _draft(
        self, event: EventIn, org_id: UUID, correlation: str, idempotency_key: str | None, where: str, trace: str | None
    ) -> Draft:
        return Draft(
            org_id=org_id,
            event_type=event.event_type,
            payload=bytes(event.payload),
            correlation_id=correlation,
            endpoint_ids=event.endpoint_ids,
            deliver_at=instant_from(event.deliver_at, f"{where}deliver_at"),
            expires_at=instant_from(event.expires_at, f"{where}expires_at"),
            metadata=bytes(event.metadata),
            ordering_key=event.ordering_key,
            idempotency_key=event.idempotency_key if idempotency_key is None else idempotency_key,
            trace=trace,
        )


_event_decoder = msgspec.json.Decoder(EventIn)
_list_decoder = msgspec.json.Decoder(list[EventIn])
_batch_decoder = msgspec.json.Decoder(BatchIn)


def receipt_shown(receipt: model.Receipt) -> Receipt:
    return Receipt(receipt.event_id, "received", time(receipt.created_at), receipt.deliveries, receipt.verdict.value)


def ingest_routes(doorstep: Doorstep) -> Routes:
    routes, ingest = Routes("/v1/events", "events"), Ingest(doorstep)
    mixed: dict[int, Any] = {207: (Receipts, _MIXED)}
    routes.plain(
        "POST",
        "/v1/events",
        ingest.send_event,
        Receipt | Receipts,
        202,
        body=EventIn | Events,
        more=mixed,
        headers=(_IDEMPOTENCY_KEY,),
    )
    routes.plain("POST", "/v1/events/batch", ingest.send_batch, Receipts, 202, body=BatchIn | Events, more=mixed)
    return routes


_MIXED = (
    "Stored, except for those with the verdict `conflict`: their idempotency key was used before with another event"
)
_IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same event within 24 hours stores nothing new.",
    "schema": {"type": "string", **KEY_RULES},
}


def _header_key(request: Request, event: EventIn) -> str | None:
    """The idempotency key from the header. If the body has one too, both must be equal."""
    given = request.headers.get("idempotency-key")
    check_key("Idempotency-Key", given)
    if given is not None and event.idempotency_key not in (None, given):
        raise invalid(FieldError("Idempotency-Key", "differs from idempotency_key in the body; give only one"))
    return given


def _decode_events(body: bytes) -> list[EventIn]:
    """Decode a list of events, or an object with the list as `events`."""
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


def _moved(error: FieldError, position: int) -> FieldError:
    where = f"events[{position}]"
    return FieldError(where if error.field == "body" else f"{where}.{error.field}", error.message)
