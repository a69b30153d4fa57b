"""What a reply means: delivered, worth another try, or hopeless."""

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
    Code.RECIPIENT_REFUSED: _PERMANENT,  # unless whoever tried says that it is only for now
    Code.EXPIRED: _PERMANENT,
    Code.ENDPOINT_DELETED: _PERMANENT,
    Code.NO_HANDLER: _TRANSIENT,  # a deployment in progress: another worker may have it
    Code.NO_PLACE: _TRANSIENT,  # others' messages were in the way
    Code.UNSEALABLE: _TRANSIENT,  # this worker runs with another key than the rest
}
"""The built-in judgement of each code; a code nobody knows is worth another try."""

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
"""Codes that say nothing about the endpoint's health: they do not count for its circuit."""

_GONE = 410
"""Only a receiver that answers so is gone for everybody. A handler that raises `Permanent("GONE")`, or a code map, speaks
of one event: of an account, a document, a number."""
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
    Code.INVALID_FORMAT: "The receiver says the payload is invalid ({status}).",
    Code.AUTH_FAILED: "The receiver refused our credentials ({status}).",
    Code.NOT_FOUND: "The receiver knows no such address ({status}).",
    Code.GONE: "The receiver is gone and asks not to be called again ({status}).",
    Code.REQUEST_TIMEOUT: "The receiver waited too long for the request ({status}).",
    Code.TOO_EARLY: "The receiver asks to try again later ({status}).",
    Code.RATE_LIMIT: "The receiver asks to slow down ({status}).",
    Code.SERVICE_UNAVAILABLE: "The receiver is not able to answer now ({status}).",
    Code.REDIRECT: "The receiver answered with a redirect ({status}), which is never followed; update the URL.",
    Code.REJECTED: "The receiver rejected the request ({status}).",
    Code.BAD_RESPONSE: "The receiver's answer makes no sense ({status}).",
    Code.ABORTED: "The receiver asked not to be sent this message again.",
}


DELETED_WHILE_WAITING = "The endpoint was deleted while this waited."
EXPIRED_WHILE_WAITING = "It expired before it could be delivered."
_CUT = "The answer was longer than what is kept of it."


def classify(reply: Reply, endpoint: Endpoint) -> Outcome:
    """Judge one reply by the built-in rules and the endpoint's own."""
    wish = _wish(reply.headers)
    if reply.failure is None and (reply.status is None or 200 <= reply.status < 300):
        return Outcome(reply=reply, detail=_detail(reply), disable_endpoint=wish == "disable")
    if reply.failure is not None:
        return _judge_failure(reply, reply.failure, endpoint)
    return _judge_status(reply, reply.status or 0, endpoint, wish)


def lost_worker(claim: Claim, now: Instant) -> Outcome:
    """The outcome of a try whose worker never reported: killed, frozen or cut off."""
    return Outcome(
        reply=no_reply(claim, claim.claimed_at, now),
        category=_TRANSIENT,
        code=Code.WORKER_LOST,
        reason="The worker stopped before it could report a result.",
        detail=f"worker {claim.worker} held the lease until it ended",
        blames_endpoint=False,
    )


def without_try(claim: Claim, code: str, reason: str, now: Instant) -> Outcome:
    """The outcome of a claim that was not worth trying at all: expired, or its endpoint is gone."""
    return Outcome(
        reply=no_reply(claim, now, now),
        category=_PERMANENT,
        code=code,
        reason=reason,
        blames_endpoint=False,
    )


def no_reply(claim: Claim, started_at: Instant, now: Instant, failure: Failure | None = None) -> Reply:
    """Of a try that nobody answered, or that was never made: all that is known of its headers is what ties it to the
    request that sent the event."""
    told = claim.correlation_line.encode()
    return Reply(started_at=started_at, finished_at=now, request_headers=told, failure=failure)


def _detail(reply: Reply) -> str:
    return _CUT if reply.body_cut else ""


def _judge_failure(reply: Reply, failure: Failure, endpoint: Endpoint) -> Outcome:
    code = endpoint.code_map.get(failure.code, failure.code)
    natural = CATEGORY.get(code) if code != failure.code else failure.category or CATEGORY.get(code)
    return Outcome(
        reply=reply,
        category=_with_wishes(natural or failure.category or _TRANSIENT, (code, failure.code), endpoint),
        code=code,
        reason=failure.message or code,
        detail=failure.detail,
        retry_after_seconds=failure.retry_after,
        blames_endpoint=code not in _BLAMELESS,
    )


def _judge_status(reply: Reply, status: int, endpoint: Endpoint, wish: str | None) -> Outcome:
    code = endpoint.code_map.get(str(status)) or (Code.ABORTED if wish == "abort-message" else _code_of(status))
    names = (code, str(status), f"{status // 100}xx")
    natural = CATEGORY.get(code, _TRANSIENT)
    return Outcome(
        reply=reply,
        # A receiver that asks not to be sent a message again is obeyed whatever the endpoint's settings say.
        category=_PERMANENT if wish == "abort-message" else _with_wishes(natural, names, endpoint),
        code=code,
        reason=_REASONS.get(code, "The receiver answered {status}.").format(status=_worded(status)),
        detail=_detail(reply),
        retry_after_seconds=retry_after(reply.headers, reply.finished_at),
        disable_endpoint=(status == _GONE and code == Code.GONE) or wish == "disable",
        blames_endpoint=code not in _BLAMELESS,
    )


def _with_wishes(natural: Category, names: Sequence[str], endpoint: Endpoint) -> Category:
    """The endpoint's `retry_on` and `give_up_on`; a name beats the `*` that retries everything."""
    if any(name in endpoint.give_up_on for name in names):
        return _PERMANENT
    if "*" in endpoint.retry_on or any(name in endpoint.retry_on for name in names):
        return _TRANSIENT
    return natural


def _code_of(status: int) -> str:
    if known := _STATUS_CODES.get(status):
        return known
    by_hundred = {3: Code.REDIRECT, 4: Code.REJECTED, 5: Code.SERVICE_UNAVAILABLE}
    return by_hundred.get(status // 100, Code.BAD_RESPONSE)


def _worded(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _wish(headers: bytes) -> str | None:
    """The receiver's `webhook-delivery` answer, if it gave one."""
    value = header(headers, b"webhook-delivery")
    return value.strip().lower() if value else None


def retry_after(headers: bytes, now: Instant) -> float | None:
    """`Retry-After` in seconds from now, from either of its two forms; None for nonsense."""
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
    """One header out of a raw block; the last one wins, as the final answer's headers come last."""
    lowered = block.lower()
    at = lowered.rfind(b"\n" + name + b":")
    if at < 0:
        return None
    start = at + len(name) + 2
    end = block.find(b"\n", start)
    return block[start : end if end >= 0 else None].strip().decode("latin-1")
