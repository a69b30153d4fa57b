"""Sending events: the two hot routes. Plain Starlette and msgspec; the payload's bytes are kept exactly as they came.

A request is answered only after its commit, so a 202 means stored. Requests that come together are committed together.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.answers import all_of, answer, time
from doorstep.api.auth import api_key
from doorstep.api.bodies import OVERHEAD_BYTES, decode, instant_from, read_body
from doorstep.api.frame import correlation_id, trace_of
from doorstep.api.problems import Problem, Refusal, invalid
from doorstep.api.routing import Operation, Routes
from doorstep.api.wording import FieldError
from doorstep.app import Doorstep
from doorstep.engine.accept import KEY_CONFLICT, Draft, check_key
from doorstep.model import event as model
from doorstep.model.event import Verdict
from doorstep.model.org import ApiKey
from doorstep.schemas.events import BATCH_MAX, KEY_RULES, BatchIn, EventIn, Events, Receipt, Receipts


class Ingest:
    """The routes, bound to the engine that takes the events."""

    def __init__(self, doorstep: Doorstep) -> None:
        self._doorstep = doorstep
        self._payload_bytes_max = doorstep.settings.payload_bytes_max
        self._batch_bytes_max = doorstep.settings.batch_bytes_max

    async def send(self, request: Request) -> Response:
        """POST /v1/events: one event, or a list of them."""
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
        """POST /v1/events/batch: up to 1,000 events, in one transaction."""
        key = api_key(request)
        body = await read_body(request, self._batch_bytes_max)
        return await self._store_batch(request, key, _decode_events(body))

    async def _store_batch(self, request: Request, key: ApiKey, events: list[EventIn]) -> Response:
        if not 1 <= len(events) <= BATCH_MAX:
            raise invalid(FieldError("events", f"must hold 1 to {BATCH_MAX} events, got {len(events)}"))
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
    stored: dict[int, Any] = {207: (Receipts, _MIXED)}
    routes.plain(
        Operation(
            "POST",
            "/v1/events",
            "send_event",
            _SEND,
            ("events",),
            202,
            Receipt | Receipts,
            body=EventIn | Events,
            more=stored,
            headers=(_IDEMPOTENCY_KEY,),
        ),
        ingest.send,
    )
    about = "Send up to 1,000 events in one transaction; one receipt each, in the order sent."
    routes.plain(
        Operation(
            "POST",
            "/v1/events/batch",
            "send_batch",
            about,
            ("events",),
            202,
            Receipts,
            body=BatchIn | Events,
            more=stored,
        ),
        ingest.send_batch,
    )
    return routes


_SEND = (
    "Send an event, or a list of up to 1,000. A 202 means that it is on stable storage with one delivery for each "
    "matching endpoint. With the header `Idempotency-Key` a repeated request is answered like the first one."
)
_MIXED = "Stored, but for those with the verdict `conflict`: their idempotency key was used before"
_IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same event within 24 hours stores nothing new.",
    "schema": {"type": "string", **KEY_RULES},
}


def _header_key(request: Request, event: EventIn) -> str | None:
    """The key in the header, which must not contradict one in the body."""
    given = request.headers.get("idempotency-key")
    check_key("Idempotency-Key", given)
    if given is not None and event.idempotency_key not in (None, given):
        raise invalid(FieldError("Idempotency-Key", "differs from idempotency_key in the body; give one of them"))
    return given


def _decode_events(body: bytes) -> list[EventIn]:
    """A list of events, or an object that holds it as `events`."""
    try:
        if body.lstrip()[:1] == b"[":
            return decode(_list_decoder, body)
        return decode(_batch_decoder, body).events
    except Refusal as refusal:
        raise _with_position(body) or refusal from None


def _with_position(body: bytes) -> Refusal | None:
    """The parser does not tell which element of a list it refused: look for it, now that something is wrong."""
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
