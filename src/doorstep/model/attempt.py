"""Attempts, their replies, and their outcomes. An outcome says what a reply means."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.record import Record


class Attempt(Record, frozen=True, kw_only=True):
    """One row of the attempt log. The request body is not stored: it was the payload of the delivery at that time."""

    delivery_id: UUID
    number: int
    started_at: Instant
    finished_at: Instant
    timings: Timings
    request_headers: bytes
    response_code: int | None
    response_headers: bytes
    response_body: bytes
    category: str | None
    code: str | None
    reason: str
    detail: str
    worker: str
    next_retry_at: Instant | None
    late: bool
    """The result came after the lease had expired and the delivery was settled or claimed again. It was logged but
    changed nothing."""

    @property
    def was_sent(self) -> bool:
        """Whether it is certain that a request was sent or a handler was called."""
        return b"webhook-id:" in self.request_headers or self.code not in UNSEEN


class AttemptSummary(Record, frozen=True, kw_only=True):
    """An attempt in a list: what was attempted and how it ended, without the request and the response."""

    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    event_type: str
    number: int
    started_at: Instant
    finished_at: Instant
    response_code: int | None
    category: str | None
    code: str | None
    reason: str
    worker: str
    next_retry_at: Instant | None
    late: bool


class Category(StrEnum):
    TRANSIENT = "transient"
    PERMANENT = "permanent"


class Code:
    """The stable error codes, which have a built-in category. Handlers and code maps may add other codes."""

    TIMEOUT = "TIMEOUT"
    CONNECTION = "CONNECTION"
    DNS = "DNS"
    RATE_LIMIT = "RATE_LIMIT"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    TOO_EARLY = "TOO_EARLY"
    HANDLER_ERROR = "HANDLER_ERROR"
    HANDLER_CRASHED = "HANDLER_CRASHED"
    WORKER_LOST = "WORKER_LOST"
    BAD_RESPONSE = "BAD_RESPONSE"
    TIMESTAMP_REFUSED = "TIMESTAMP_REFUSED"

    AUTH_FAILED = "AUTH_FAILED"
    NOT_FOUND = "NOT_FOUND"
    GONE = "GONE"
    INVALID_FORMAT = "INVALID_FORMAT"
    BATCH_REJECTED = "BATCH_REJECTED"
    TLS = "TLS"
    BLOCKED = "BLOCKED"
    REDIRECT = "REDIRECT"
    REJECTED = "REJECTED"
    ABORTED = "ABORTED"
    RECIPIENT_REFUSED = "RECIPIENT_REFUSED"
    EXPIRED = "EXPIRED"
    SKIPPED = "SKIPPED"
    ENDPOINT_DELETED = "ENDPOINT_DELETED"
    NO_HANDLER = "NO_HANDLER"
    NO_PLACE = "NO_PLACE"


UNSEEN = frozenset({Code.WORKER_LOST, Code.EXPIRED, Code.ENDPOINT_DELETED, Code.NO_HANDLER})
"""The codes of attempts that may not have sent a request. After `WORKER_LOST`, nobody knows whether one was sent; with
all other codes in this set, none was sent."""
UNREACHED = UNSEEN | {Code.CONNECTION, Code.DNS, Code.TLS, Code.BLOCKED, Code.NO_PLACE}
"""The codes of attempts whose duration says nothing about the receiver, because it was not reached."""


class Timings(Record, frozen=True):
    """When each phase of an attempt ended, in microseconds since the start of the attempt, as measured by the HTTP
    client; 0 if the phase did not occur."""

    dns: int = 0
    connect: int = 0
    tls: int = 0
    first_byte: int = 0


class Failure(Record, frozen=True):
    """Why there is no usable response, as reported by the transport or the handler."""

    code: str
    message: str
    category: Category | None = None
    """Set if the handler or the transport stated it. Otherwise classification derives it from the code."""
    retry_after: float | None = None
    detail: str = ""
    """For operators: a traceback, or the error text of the HTTP client."""


class Reply(Record, frozen=True, kw_only=True):
    """The raw result of one attempt, before classification."""

    started_at: Instant
    finished_at: Instant
    timings: Timings = Timings()
    request_headers: bytes = b""
    """The headers as sent, one per line, with secret values masked."""
    status: int | None = None
    headers: bytes = b""
    body: bytes = b""
    """The body up to the size limit; the rest is not read."""
    body_cut: bool = False
    """The body was longer than the limit."""
    failure: Failure | None = None
    started: bool = True
    """False if the attempt was abandoned before it reached the receiver, because no thread or process was available."""
    shortage: str = ""
    """What this process lacked, if that prevented the attempt: descriptors, memory for sockets or local ports."""


class Outcome(Record, frozen=True, kw_only=True):
    """What a reply means. It has a category if and only if the attempt failed."""

    reply: Reply
    category: Category | None = None
    code: str | None = None
    reason: str = ""
    detail: str = ""
    retry_after_seconds: float | None = None
    disable_endpoint: bool = False
    """The receiver asked for no more requests (410, or `webhook-delivery: disable`)."""
    blames_endpoint: bool = True
    """False if the payload or our own worker is at fault. The circuit does not count such failures."""

    @property
    def succeeded(self) -> bool:
        return self.category is None
