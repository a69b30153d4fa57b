"""Before the first step: what a program gives to be sent, made into a draft."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypedDict
from uuid import UUID

import msgspec

from doorstep.clock import Instant, from_datetime
from doorstep.errors import InvalidInput
from doorstep.path.accept import Draft
from doorstep.telemetry.tracing.context import incoming
from doorstep.telemetry.tracing.program import current

When = datetime | Instant
"""A datetime with a time zone, or an instant."""


class Options(TypedDict, total=False):
    """What may be said about an event beside its type and payload."""

    org_id: UUID
    endpoint_ids: Sequence[UUID] | None
    """Only these endpoints; left out, all whose event types match."""
    deliver_at: When | None
    expires_at: When | None
    """Not to be tried after this; what is still waiting then becomes a dead letter."""
    metadata: Mapping[str, object] | bytes
    ordering_key: str | None
    """Events that share it are delivered to each endpoint in the order of their acceptance."""
    idempotency_key: str | None
    correlation_id: str | None
    traceparent: str | None
    """The W3C trace context that the event belongs to; left out, the current one of OpenTelemetry, if there is one."""
    tracestate: str | None


def draft_of(event_type: str, payload: object, default_org: UUID, options: Options) -> Draft:
    """Bytes must be JSON and are delivered as they are; anything else is encoded as JSON once, now."""
    endpoint_ids = options.get("endpoint_ids")
    return Draft(
        org_id=options.get("org_id", default_org),
        event_type=event_type,
        payload=_json("payload", payload),
        correlation_id=options.get("correlation_id") or new_correlation_id(),
        endpoint_ids=None if endpoint_ids is None else _ids(endpoint_ids),
        deliver_at=_instant("deliver_at", options.get("deliver_at")),
        expires_at=_instant("expires_at", options.get("expires_at")),
        metadata=_json("metadata", options.get("metadata", b"{}")),
        ordering_key=options.get("ordering_key"),
        idempotency_key=options.get("idempotency_key"),
        trace=_trace(options),
    )


def new_correlation_id() -> str:
    return secrets.token_hex(16)


def _trace(options: Options) -> str | None:
    given = options.get("traceparent")
    if given is None:
        return current()
    trace = incoming(given, options.get("tracestate"))
    if trace is None:
        raise InvalidInput(
            "traceparent", "must be a W3C traceparent: 00-<32 hex digits>-<16 hex digits>-<2 hex digits>"
        )
    return trace


def _json(field: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(field, f"cannot be written as JSON: {error}") from None


def _ids(endpoint_ids: object) -> tuple[UUID, ...]:
    if isinstance(endpoint_ids, Iterable) and not isinstance(endpoint_ids, str | bytes):
        return tuple(endpoint_ids)
    raise InvalidInput("endpoint_ids", f"must be a list of UUIDs, got {endpoint_ids!r:.100}")


def _instant(field: str, when: When | None) -> Instant | None:
    try:
        return from_datetime(when) if isinstance(when, datetime) else when
    except ValueError as error:
        raise InvalidInput(field, str(error)) from None
