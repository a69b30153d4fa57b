"""Turns values of the model into the shapes of `schemas/`, with times as datetimes: for the responses of the API, and for
what the methods of `Doorstep` return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from msgspec import convert, to_builtins

from doorstep.clock import Instant, to_datetime
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Hold
from doorstep.model.endpoint import Endpoint, RetryPolicy
from doorstep.model.event import Event, EventSummary, EventView, Receipt
from doorstep.model.outbox import OutboxMessage
from doorstep.operations.reader import Described, Reader, hold_of_event
from doorstep.schemas import deliveries, endpoints, events

S = TypeVar("S", bound=msgspec.Struct)


def shape(kind: type[S], value: object, /, **given: Any) -> S:
    """Build a shape from a value of the model. Fields with the same name are copied; the others must be `given`."""
    for name, converted in _fields(kind):
        if name not in given:
            found = getattr(value, name)
            given[name] = found if converted is None or found is None else converted(found)
    return kind(**given)


def shapes(kind: type[S], values: Iterable[object]) -> tuple[S, ...]:
    return tuple(shape(kind, value) for value in values)


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, Callable[[Any], Any] | None]]:
    """The fields of a shape, each with the function that converts the model's value, if it needs one."""
    return [(name, _conversion(hint)) for name, hint in get_type_hints(kind).items()]


def _conversion(hint: Any) -> Callable[[Any], Any] | None:
    forms = {hint, *(one for one in get_args(hint) if get_origin(hint) is not tuple)}
    if datetime in forms:
        return time
    if float in forms:
        return float
    return tuple if get_origin(hint) is tuple else None


# -- times -----------------------------------------------------------------------------------------------------


class WholeSecond(datetime):
    """A time without a fraction of a second. msgspec omits zero microseconds, but our times always include them.

    The API's encoder calls its hook for this class, because it is a subclass of datetime. The hook takes a few
    microseconds, but only one timestamp in a million needs it.
    """

    def __repr__(self) -> str:
        return f"datetime.{super().__repr__().replace(type(self).__name__, datetime.__name__, 1)}"


def time(at: Instant | datetime) -> datetime:
    """A time as the model or the library has it, as a datetime."""
    known = at if isinstance(at, datetime) else to_datetime(at)
    return known if known.microsecond else WholeSecond.fromtimestamp(known.timestamp(), UTC)


def time_or_none(instant: Instant | None) -> datetime | None:
    return None if instant is None else time(instant)


# -- events ----------------------------------------------------------------------------------------------------


def receipt_shown(receipt: Receipt) -> events.Receipt:
    return events.Receipt(
        receipt.event_id, "received", time(receipt.created_at), receipt.deliveries, receipt.verdict.value
    )


def rejected_shown(message: OutboxMessage, default_org: UUID) -> events.RejectedMessage:
    org_id = None if message.org_id == default_org else message.org_id
    return shape(events.RejectedMessage, message, org_id=org_id)


def status_fields(event: EventSummary | EventView) -> dict[str, Any]:
    return {
        "status": event.status.value,
        "retry_attempts": event.retry_attempts,
        "last_retry_at": time_or_none(event.last_retry_at),
        "failed_at": time_or_none(event.failed_at),
        "next_retry_at": time_or_none(event.next_retry_at),
    }


def item_fields(event: Event | EventSummary) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "created_at": time(event.created_at),
        "correlation_id": event.correlation_id,
        "user_id": event.user_id,
    }


def event_shown(view: EventView, described: Sequence[Described]) -> events.Event:
    return shape(
        events.Event,
        view.event,
        **status_fields(view),
        refusal=view.refusal,
        metadata_json=as_it_is(view.event.metadata),
        payload_json=as_it_is(view.event.payload),
        held=held_shown(hold_of_event(described)),
        deliveries=tuple(map(delivery_shown, described)),
    )


async def read_event(reader: Reader, org_id: UUID, event_id: UUID, user_id: str | None = None) -> events.Event:
    """An event in full, with its payload and its deliveries. With `user_id`, another user's event is not found."""
    view = await reader.event(org_id, event_id, user_id)
    return event_shown(view, await reader.described(org_id, await reader.deliveries(org_id, event_id)))


async def read_deliveries(reader: Reader, org_id: UUID, event_id: UUID) -> list[deliveries.Delivery]:
    """The deliveries of an event, each with the reason why it is held."""
    described = await reader.described(org_id, await reader.deliveries(org_id, event_id))
    return list(map(delivery_shown, described))


def as_it_is(content: bytes) -> msgspec.Raw:
    """The bytes unchanged if they are JSON. Other bytes, which programs can send through the library, become a JSON
    string."""
    if content == b"{}":
        return _EMPTY
    try:
        content.decode()
        return msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(content.decode("utf-8", "replace")))


_EMPTY = msgspec.Raw(b"{}")


# -- deliveries ------------------------------------------------------------------------------------------------


def delivery_shown(described: Described) -> deliveries.Delivery:
    return shape(deliveries.Delivery, described.delivery, **delivery_fields(described))


def delivery_fields(described: Described) -> dict[str, Any]:
    delivery = described.delivery
    return {
        "attempts": delivery.attempt,
        "next_retry_at": time_or_none(described.next_retry_at),
        "error_category": delivery.category,
        "error_code": delivery.code,
        "held": held_shown(described.held),
    }


def held_shown(hold: Hold | None) -> deliveries.Held | None:
    return None if hold is None else deliveries.Held(hold.reason, time_or_none(hold.until))


def attempt_shown(attempt: Attempt) -> deliveries.Attempt:
    return shape(
        deliveries.Attempt,
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


# -- endpoints -------------------------------------------------------------------------------------------------


def endpoint_shown(endpoint: Endpoint) -> endpoints.Endpoint:
    return shape(endpoints.Endpoint, endpoint, **endpoint_fields(endpoint))


def endpoint_fields(endpoint: Endpoint) -> dict[str, Any]:
    signing = endpoint.signing_secret
    return {
        "policy": None if endpoint.policy is None else _policy_shown(endpoint.policy),
        "policy_by_event_type": {key: _policy_shown(value) for key, value in endpoint.policy_by_event_type.items()},
        "circuit": shape(endpoints.CircuitRules, endpoint.circuit),
        "destination": convert(to_builtins(endpoint.destination), endpoints.Destination),
        "slo": None if endpoint.slo is None else shape(endpoints.Slo, endpoint.slo),
        "signing": "v1" if signing is None else signing.scheme,
        "public_key": None if signing is None else signing.public_key or None,
    }


def _policy_shown(policy: RetryPolicy) -> endpoints.Policy:
    return shape(endpoints.Policy, policy, delays=tuple(map(float, policy.delays)))
