"""What a Python handler is given: one delivery of one event."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, overload
from uuid import UUID

import msgspec

from doorstep.clock import Instant
from doorstep.errors import Permanent
from doorstep.model.claim import Claim
from doorstep.model.noun import Noun
from doorstep.model.outcome import Code

T = TypeVar("T")


class Received(Noun, frozen=True, kw_only=True):
    """One delivery of one event, at one attempt. The same event may come again."""

    event_id: UUID
    """The same for all attempts: what to recognise a repetition by."""
    delivery_id: UUID
    event_type: str
    payload: bytes
    attempt: int
    retry_attempts: int
    correlation_id: str
    accepted_at: Instant
    endpoint_id: UUID = UUID(int=0)
    org_id: UUID = UUID(int=0)
    retries_max: int = 0
    metadata_bytes: bytes = b"{}"
    traceparent: str | None = None
    """The W3C trace context of this attempt, to be passed on with whatever the handler asks of others. Programs that use
    OpenTelemetry need not: the handler runs within it."""
    tracestate: str | None = None

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = Any) -> Any:
        """The payload, decoded; into a dataclass or msgspec type if one is given.

        A payload that is no such thing is `Permanent("INVALID_FORMAT", …)`: it will be none at the next attempt either.
        """
        try:
            return msgspec.json.decode(self.payload, type=type)
        except msgspec.ValidationError as error:
            raise Permanent(Code.INVALID_FORMAT, _mismatch(type, str(error))) from None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the sender said about the event beside its payload."""
        decoded: dict[str, Any] = msgspec.json.decode(self.metadata_bytes)
        return decoded


Handler = Callable[[Received], object] | Callable[[Received], Awaitable[object]]
"""A plain or async function of one argument. To return is success; see `Transient` and `Permanent` for the rest."""


def received(claim: Claim, headers: Sequence[str] = ()) -> Received:
    """What the handler is given of a claim, and of the headers that a receiver would be sent."""
    said = dict(line.split(": ", 1) for line in headers) if len(headers) > 1 else {}
    return Received(
        event_id=claim.event_id,
        delivery_id=claim.delivery_id,
        event_type=claim.event_type,
        payload=claim.payload,
        attempt=claim.attempt,
        retry_attempts=claim.retry_attempts,
        correlation_id=claim.correlation_id,
        accepted_at=claim.accepted_at,
        endpoint_id=claim.endpoint_id,
        org_id=claim.org_id,
        retries_max=claim.retries_max,
        metadata_bytes=claim.metadata,
        traceparent=said.get("traceparent"),
        tracestate=said.get("tracestate"),
    )


_QUOTED = re.compile(r"(Invalid [a-z ]*value) (?:.*(?= - at `)|.*)", re.DOTALL)
"""Where msgspec quotes what it found: payloads do not belong into reasons."""


def _mismatch(type: Any, complaint: str) -> str:
    name = getattr(type, "__name__", str(type))
    return f"The payload is no {name}: " + _QUOTED.sub(r"\1", complaint)
