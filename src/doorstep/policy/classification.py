"""Classifies replies: delivered, to be retried, or failed permanently."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from doorstep.clock import SECOND, Instant, from_datetime
from doorstep.model.attempt import Category, Code, Failure, Outcome, Reply
from doorstep.model.claim import Claim
from doorstep.model.endpoint import Endpoint

_TRANSIENT, _PERMANENT = Category.TRANSIENT, Category.PERMANENT

CATEGORY: dict[str, Category] = {
    Code.TIMEOUT: _TRANSIENT,
    Code.CONNECTION: _TRANSIENT,
    Code.DNS: _TRANSIENT,
    Code.RATE_LIMIT: _TRANSIENT,
    Code.SERVICE_UNAVAILABLE: _TRANSIENT,
    Code.REQUEST_TIMEOUT: _TRANSIENT,
    Code.TOO_EARLY: _TRANSIENT,
    Code.HANDLER_ERROR: _TRANSIENT,
    Code.HANDLER_CRASHED: _TRANSIENT,
    Code.WORKER_LOST: _TRANSIENT,
    Code.BAD_RESPONSE: _TRANSIENT,
    Code.AUTH_FAILED: _PERMANENT,
    Code.NOT_FOUND: _PERMANENT,
    Code.GONE: _PERMANENT,
    Code.INVALID_FORMAT: _PERMANENT,
    Code.BATCH_REJECTED: _PERMANENT,
    Code.TLS: _PERMANENT,
    Code.BLOCKED: _PERMANENT,
    Code.REDIRECT: _PERMANENT,
    Code.REJECTED: _PERMANENT,
    Code.ABORTED: _PERMANENT,
    Code.RECIPIENT_REFUSED: _PERMANENT,  # unless the transport reports it as temporary
    Code.EXPIRED: _PERMANENT,
    Code.ENDPOINT_DELETED: _PERMANENT,
    Code.NO_HANDLER: _TRANSIENT,  # during a deployment, another worker may have the handler
    Code.NO_PLACE: _TRANSIENT,  # other messages used up the capacity
    Code.UNSEALABLE: _TRANSIENT,  # this worker runs with a different secret key
}
"""The built-in category of each code; an unknown code is retried."""

_BLAMELESS = frozenset(
    {
        Code.INVALID_FORMAT,
        Code.BATCH_REJECTED,
        Code.WORKER_LOST,
        Code.ABORTED,
        Code.RECIPIENT_REFUSED,
        Code.NO_HANDLER,
        Code.NO_PLACE,
        Code.UNSEALABLE,
    }
)
"""Codes that say nothing about the health of the endpoint, so its circuit does not count them."""

_GONE = 410
"""Only this status disables the endpoint. If a handler raises `Permanent("GONE")`, or a code map yields it, only the
subject of one event is gone, such as an account or a document."""
_STATUS_CODES: dict[int, str] = {
    400: Code.INVALID_FORMAT,
    401: Code.AUTH_FAILED,
    403: Code.AUTH_FAILED,
    404: Code.NOT_FOUND,
    408: Code.REQUEST_TIMEOUT,
    _GONE: Code.GONE,
    422: Code.INVALID_FORMAT,
    425: Code.TOO_EARLY,
    429: Code.RATE_LIMIT,
}

_REASONS: dict[str, str] = {
    Code.INVALID_FORMAT: "The receiver rejected the payload as invalid ({status}).",
    Code.AUTH_FAILED: "The receiver denied access ({status}).",
    Code.NOT_FOUND: "The receiver does not know this URL ({status}).",
    Code.GONE: "The receiver no longer exists and wants no more requests ({status}).",
    Code.REQUEST_TIMEOUT: "The receiver timed out while waiting for the request ({status}).",
    Code.TOO_EARLY: "The receiver asks to try again later ({status}).",
    Code.RATE_LIMIT: "The receiver asks to slow down ({status}).",
    Code.SERVICE_UNAVAILABLE: "The receiver could not handle the request ({status}).",
    Code.REDIRECT: "The receiver returned a redirect ({status}), which Doorstep never follows; update the URL.",
    Code.REJECTED: "The receiver rejected the request ({status}).",
    Code.BAD_RESPONSE: "The receiver returned an invalid status ({status}).",
    Code.ABORTED: "The receiver asked not to receive this message again.",
}


DELETED_WHILE_WAITING = "The endpoint was deleted while the delivery was waiting."
EXPIRED_WHILE_WAITING = "The event expired before it could be delivered."
_CUT = "The response was longer than the part that is kept."


def classify(reply: Reply, endpoint: Endpoint) -> Outcome:
    """Classify one reply by the built-in rules and those of the endpoint."""
    request = _delivery_request(reply.headers)
    if reply.failure is None and (reply.status is None or 200 <= reply.status < 300):
        return Outcome(reply=reply, detail=_detail(reply), disable_endpoint=request == "disable")
    if reply.failure is not None:
        return _classify_failure(reply, reply.failure, endpoint)
    return _classify_status(reply, reply.status or 0, endpoint, request)


def lost_worker(claim: Claim, now: Instant) -> Outcome:
    """The outcome of an attempt whose worker never reported a result: it was killed, frozen or cut off."""
    return Outcome(
        reply=no_reply(claim, claim.claimed_at, now),
        category=_TRANSIENT,
        code=Code.WORKER_LOST,
        reason="The worker stopped before it could report a result.",
        detail=f"worker {claim.worker} held the lease until it ended",
        blames_endpoint=False,
    )


def without_attempt(claim: Claim, code: str, reason: str, now: Instant) -> Outcome:
    """The outcome of a claim that is not attempted: it expired, or its endpoint was deleted."""
    return Outcome(
        reply=no_reply(claim, now, now),
        category=_PERMANENT,
        code=code,
        reason=reason,
        blames_endpoint=False,
    )


def no_reply(claim: Claim, started_at: Instant, now: Instant, failure: Failure | None = None) -> Reply:
    """The reply of an attempt that got no response or was never made. Only its correlation header is known."""
    header_line = claim.correlation_line.encode()
    return Reply(started_at=started_at, finished_at=now, request_headers=header_line, failure=failure)


def _detail(reply: Reply) -> str:
    return _CUT if reply.body_cut else ""


def _classify_failure(reply: Reply, failure: Failure, endpoint: Endpoint) -> Outcome:
    code = endpoint.code_map.get(failure.code, failure.code)
    default = CATEGORY.get(code) if code != failure.code else failure.category or CATEGORY.get(code)
    return Outcome(
        reply=reply,
        category=_with_endpoint_rules(default or failure.category or _TRANSIENT, (code, failure.code), endpoint),
        code=code,
        reason=failure.message or code,
        detail=failure.detail,
        retry_after_seconds=failure.retry_after,
        blames_endpoint=code not in _BLAMELESS,
    )


def _classify_status(reply: Reply, status: int, endpoint: Endpoint, request: str | None) -> Outcome:
    code = endpoint.code_map.get(str(status)) or (Code.ABORTED if request == "abort-message" else _code_of(status))
    names = (code, str(status), f"{status // 100}xx")
    default = CATEGORY.get(code, _TRANSIENT)
    return Outcome(
        reply=reply,
        # If a receiver asks not to receive a message again, that overrides the settings of the endpoint.
        category=_PERMANENT if request == "abort-message" else _with_endpoint_rules(default, names, endpoint),
        code=code,
        reason=_REASONS.get(code, "The receiver returned {status}.").format(status=_with_phrase(status)),
        detail=_detail(reply),
        retry_after_seconds=retry_after(reply.headers, reply.finished_at),
        disable_endpoint=(status == _GONE and code == Code.GONE) or request == "disable",
        blames_endpoint=code not in _BLAMELESS,
    )


def _with_endpoint_rules(default: Category, names: Sequence[str], endpoint: Endpoint) -> Category:
    """Applies `retry_on` and `give_up_on` of the endpoint; a name takes precedence over `*`."""
    if any(name in endpoint.give_up_on for name in names):
        return _PERMANENT
    if "*" in endpoint.retry_on or any(name in endpoint.retry_on for name in names):
        return _TRANSIENT
    return default


def _code_of(status: int) -> str:
    if known := _STATUS_CODES.get(status):
        return known
    by_hundred = {3: Code.REDIRECT, 4: Code.REJECTED, 5: Code.SERVICE_UNAVAILABLE}
    return by_hundred.get(status // 100, Code.BAD_RESPONSE)


def _with_phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _delivery_request(headers: bytes) -> str | None:
    """The value of the response header `webhook-delivery`, if there is one."""
    value = header(headers, b"webhook-delivery")
    return value.strip().lower() if value else None


def retry_after(headers: bytes, now: Instant) -> float | None:
    """The `Retry-After` header, a number or a date, as seconds from now; None if it is missing or invalid."""
    value = header(headers, b"retry-after")
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return (from_datetime(parsedate_to_datetime(value)) - now) / SECOND
    except (ValueError, OverflowError):
        return None


def header(block: bytes, name: bytes) -> str | None:
    """The value of a header in a raw block. If it occurs several times, the last one counts, because the headers of the
    final response come last."""
    lowered = block.lower()
    at = lowered.rfind(b"\n" + name + b":")
    if at < 0:
        return None
    start = at + len(name) + 2
    end = block.find(b"\n", start)
    return block[start : end if end >= 0 else None].strip().decode("latin-1")
