"""The triggers API: programs send events, follow their status, and fetch what nobody takes from an inbox.

    doorstep serve --app examples.triggers:app

Doorstep's `/v1` has these routes already. This program adds the fields `timestamp` and `user_id` where its clients expect
them, one key for each user, and its own defaults.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

import msgspec
from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from doorstep import Doorstep, Settings
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.schemas.events import BATCH_MAX, EventIn, Receipt
from doorstep.web import Caller, allowed, answer, iso, json_body

VARIABLES = {"RETRY_DELAYS": "retry_delays", "MAX_RETRY_ATTEMPTS": "max_retry_attempts", "LOG_LEVEL": "log_level"}
DEFAULTS: dict[str, Any] = {
    "service_name": "triggers",
    "retry_delays": (60.0, 300.0, 900.0),
    "max_retry_attempts": 3,
    "circuits": False,
    "log_format": "json",
}
TIMESTAMP = "_timestamp"
"""The metadata of an event has the field `timestamp` under this key, because the sender may have a `timestamp` there."""

Json: TypeAlias = dict[str, object]


def create(**given: Any) -> Doorstep:
    """The program; `given` are arguments of Doorstep, or settings."""
    options = {name: given.pop(name) for name in ("clock", "telemetry") if name in given}
    settings = Settings.with_defaults(DEFAULTS, VARIABLES, **given)
    # Every failure is retried after exactly these delays, whatever the receiver asks for.
    policy = {"delays": settings.retry_delays, "jitter": 0.0, "ignore_retry_after": True, "name": "triggers"}
    defaults: Any = {"retry_on": ["*"], "code_map": {"410": "REJECTED"}}  # a 410 is retried too
    program = Doorstep(settings, policy=policy, endpoint_defaults=defaults, **options)
    program.server.include_router(routes_of(program))
    program.server.log_line("delivery_failure")(with_sentence)
    program.server.startup_message(first_command)
    return program


def with_sentence(line: Json) -> Json:
    """The line `delivery_failure` with its error as a sentence."""
    return {**line, "error": line["error_reason"], "error_detail": line["error"]}


def first_command(url: str, key: str) -> Iterator[str]:
    yield f"The triggers API: {url}/v1/events, {url}/v1/inbox, {url}/v1/events/<id>/status"
    yield "Each user has a key. Create one, and send a first event with it:"
    yield ""
    yield f"  DOORSTEP_API_KEY={key} doorstep keys create ada --role consumer --user ada --url {url}"
    yield f"""  curl -s {url}/v1/events -H "X-API-Key: <the key>" -d '{{"event_type": "form.sent", "payload": {{"n": 1}}}}'"""
    yield ""


# -- routes ------------------------------------------------------------------------------------------------------


class TriggerIn(EventIn, forbid_unknown_fields=True):
    """An event as it is sent. The sender may say when it happened."""

    timestamp: datetime | None = None


TriggersIn: TypeAlias = Annotated[list[TriggerIn], msgspec.Meta(min_length=1, max_length=BATCH_MAX)]


class TriggerBatchIn(msgspec.Struct, forbid_unknown_fields=True):
    """Several events, as Doorstep's clients send them."""

    events: TriggersIn


def routes_of(program: Doorstep) -> APIRouter:
    routes = APIRouter(tags=["triggers"])

    @routes.post("/v1/events", status_code=202)
    async def send_event(
        caller: Annotated[Caller, allowed("send", own=True)],
        body: Annotated[Any, json_body(TriggerIn | TriggersIn)],
        idempotency_key: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Accept an event, or a list of up to 1,000 events. A 202 means that they are durably stored; a 207, all except
        those with the verdict `conflict`."""
        sent: list[TriggerIn] = body if isinstance(body, list) else [body]
        if idempotency_key is not None:
            if isinstance(body, list) or body.idempotency_key not in (None, idempotency_key):
                raise InvalidInput("Idempotency-Key", "is for a single event without another idempotency_key")
            body.idempotency_key = idempotency_key
        if isinstance(body, list):
            return await send_list(sent, caller)
        (receipt,) = await program.send_many([_as_event(body, caller)])
        if receipt.verdict == "conflict":
            raise Conflict("this idempotency key was used for another event within 24 hours; use a new key")
        return answer(_accepted(body, receipt, caller), 202)

    @routes.post("/v1/events/batch", status_code=202)
    async def send_batch(
        caller: Annotated[Caller, allowed("send", own=True)],
        body: Annotated[Any, json_body(TriggerBatchIn | TriggersIn)],
    ) -> Response:
        """Accept up to 1,000 events. The responses are those of a list that is sent to /v1/events."""
        return await send_list(body if isinstance(body, list) else body.events, caller)

    async def send_list(sent: list[TriggerIn], caller: Caller) -> Response:
        receipts = await program.send_many([_as_event(one, caller) for one in sent])
        shown = [_accepted(one, receipt, caller) for one, receipt in zip(sent, receipts, strict=True)]
        return answer({"events": shown}, 207 if any(one.verdict == "conflict" for one in receipts) else 202)

    @routes.get("/v1/events/{event_id}")
    async def read_event(event_id: str, caller: Annotated[Caller, allowed("inbox", own=True)]) -> Response:
        """An event with its payload and its status."""
        event = await program.event(_id(event_id), org_id=caller.org_id)
        if caller.user_id not in (None, event.user_id):
            raise NotFound(f"no event {event_id}")
        return answer(_with_timestamp(event))

    @routes.get("/v1/inbox")
    async def read_inbox(
        caller: Annotated[Caller, allowed("inbox", own=True)],
        status: Literal["received", "failed"] = "received",
        limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
        cursor: str | None = None,
    ) -> Response:
        """Events that nobody has taken yet, or those that have failed: oldest first, with their payloads."""
        page = await caller.client.inbox.page(status=status, limit=limit, cursor=cursor)
        return answer({"events": [_with_timestamp(one) for one in page], "pagination": page.pagination})

    return routes


def _as_event(sent: TriggerIn, caller: Caller) -> tuple[str, object, Any]:
    metadata = _with_time(bytes(sent.metadata), sent.timestamp)
    options = {
        "org_id": caller.org_id,
        "user_id": caller.user_id,
        "correlation_id": caller.correlation_id,
        "traceparent": caller.traceparent,
        "tracestate": caller.tracestate,
        "metadata": metadata,
        "endpoint_ids": sent.endpoint_ids,
        "deliver_at": sent.deliver_at,
        "expires_at": sent.expires_at,
        "ordering_key": sent.ordering_key,
        "idempotency_key": sent.idempotency_key,
    }
    return sent.event_type, bytes(sent.payload), options


def _with_time(metadata: bytes, timestamp: datetime | None) -> bytes:
    """The metadata with the sender's timestamp, if there is one."""
    given = json.loads(metadata)
    if isinstance(given, dict) and TIMESTAMP in given:
        raise InvalidInput("metadata", f"must not contain {TIMESTAMP}; give the field timestamp instead")
    if timestamp is None:
        return metadata
    if not isinstance(given, dict):
        raise InvalidInput("metadata", "must be an object")
    if timestamp.tzinfo is None or not 1970 < timestamp.year < 9000:
        message = "must have a time zone and a year after 1970, such as 2026-01-31T12:00:00Z"
        raise InvalidInput("timestamp", f"{message}, got {timestamp.isoformat()}")
    return json.dumps(given | {TIMESTAMP: iso(timestamp)}).encode()


def _accepted(sent: TriggerIn, receipt: Receipt, caller: Caller) -> Json:
    created_at = iso(receipt.created_at)
    return {
        "event_id": receipt.event_id,
        "event_type": sent.event_type,
        "timestamp": created_at if sent.timestamp is None else iso(sent.timestamp),
        "payload": sent.payload,
        "status": receipt.status,
        "retry_attempts": 0,
        "last_retry_at": None,
        "failed_at": None,
        "user_id": caller.user_id,
        "created_at": created_at,
        "deliveries": receipt.deliveries,
        "verdict": receipt.verdict,
    }


def _with_timestamp(event: Any) -> Json:
    """An event of `/v1`, with the time that its sender gave, else that of its acceptance."""
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    shown = {event.__struct_encode_fields__[n]: value for n, value in enumerate(fields.values())}
    times = {name: iso(value) for name, value in shown.items() if isinstance(value, datetime)}
    given = event.metadata.get(TIMESTAMP) if isinstance(event.metadata, dict) else None
    return shown | times | {"timestamp": given or times["created_at"]}


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"no event {text}") from None


app = create()
