"""An attempt, its reply, and the outcome: what the reply meant."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.record import Record


class Attempt(Record, frozen=True, kw_only=True):
    """One row of the attempt log. The request body is the payload that was in force, byte for byte."""

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
    """The lease had ended and someone else held the delivery: kept for the record, it changed nothing."""

    @property
    def was_sent(self) -> bool:
        """Whether a request is known to have been made, or a handler called. Its row has a correlation id anyway."""
        return b"webhook-id:" in self.request_headers or self.code not in UNSEEN


class Category(StrEnum):
    TRANSIENT = "transient"
    PERMANENT = "permanent"


class Code:
    """The stable error codes. Handlers and code maps may add their own; these have a built-in category."""

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
    UNSEALABLE = "UNSEALABLE"


UNSEEN = frozenset({Code.WORKER_LOST, Code.EXPIRED, Code.ENDPOINT_DELETED, Code.NO_HANDLER, Code.UNSEALABLE})
"""Of a try that came to this no request is known: none was made, or nobody is left who could tell."""


class Timings(Record, frozen=True):
    """The parts of one try in microseconds from its start, as the client measured them; 0 where there was none."""

    dns: int = 0
    connect: int = 0
    tls: int = 0
    first_byte: int = 0


class Failure(Record, frozen=True):
    """Why no usable answer came, in the words of whoever tried."""

    code: str
    message: str
    category: Category | None = None
    """Set where the handler itself said so; otherwise classification decides by the code."""
    retry_after: float | None = None
    detail: str = ""
    """For operators: a traceback, the client's own error text."""


class Reply(Record, frozen=True, kw_only=True):
    """The raw result of one try, before anyone judged it."""

    started_at: Instant
    finished_at: Instant
    timings: Timings = Timings()
    request_headers: bytes = b""
    """As sent, one a line, with the values of secret ones masked."""
    status: int | None = None
    headers: bytes = b""
    body: bytes = b""
    """At most the cap; what follows is not read."""
    body_cut: bool = False
    """The receiver had more to say than the cap lets through."""
    failure: Failure | None = None
    begun: bool = True
    """False where the try was given up before the receiver heard of it: for want of a thread or a process."""


class Outcome(Record, frozen=True, kw_only=True):
    """What a reply meant. Exactly the failed ones have a category."""

    reply: Reply
    category: Category | None = None
    code: str | None = None
    reason: str = ""
    detail: str = ""
    retry_after_seconds: float | None = None
    disable_endpoint: bool = False
    """The receiver asked not to be called again (410, or `webhook-delivery: disable`)."""
    blames_endpoint: bool = True
    """False where the payload or our own worker is at fault: such failures do not count for the circuit."""

    @property
    def succeeded(self) -> bool:
        return self.category is None
