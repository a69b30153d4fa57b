"""Classifies replies: delivered, to be retried, or failed permanently."""

from __future__ import annotations

import re
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple

from doorstep.clock import SECOND, Instant, from_datetime
from doorstep.model.attempt import Category, Code, Failure, Outcome, Reply
from doorstep.model.claim import Claim
from doorstep.model.endpoint import Endpoint

_TRANSIENT, _PERMANENT = Category.TRANSIENT, Category.PERMANENT


class Meaning(NamedTuple):
    """The built-in meaning of a code."""

    category: Category
    reason: str = "The receiver returned {status}."
    """The reason for a response with an HTTP status, as a sentence for people."""
    blames_endpoint: bool = True
    """False if the code says nothing about the health of the endpoint. Its circuit does not count such failures."""


MEANINGS: dict[str, Meaning] = {
    Code.TIMEOUT: Meaning(_TRANSIENT),
    Code.CONNECTION: Meaning(_TRANSIENT),
    Code.DNS: Meaning(_TRANSIENT),
    Code.RATE_LIMIT: Meaning(_TRANSIENT, "The receiver asks to slow down ({status})."),
    Code.SERVICE_UNAVAILABLE: Meaning(_TRANSIENT, "The receiver could not handle the request ({status})."),
    Code.REQUEST_TIMEOUT: Meaning(_TRANSIENT, "The receiver timed out while waiting for the request ({status})."),
    Code.TOO_EARLY: Meaning(_TRANSIENT, "The receiver asks to try again later ({status})."),
    Code.HANDLER_ERROR: Meaning(_TRANSIENT),
    Code.HANDLER_CRASHED: Meaning(_TRANSIENT),
    Code.WORKER_LOST: Meaning(_TRANSIENT, blames_endpoint=False),
    Code.BAD_RESPONSE: Meaning(_TRANSIENT, "The receiver returned an invalid status ({status})."),
    Code.TIMESTAMP_REFUSED: Meaning(
        _TRANSIENT,
        "The receiver refused the time of the signature ({status}); compare its clock with this one's.",
    ),
    Code.AUTH_FAILED: Meaning(_PERMANENT, "The receiver denied access ({status})."),
    Code.NOT_FOUND: Meaning(_PERMANENT, "The receiver does not know this URL ({status})."),
    Code.GONE: Meaning(_PERMANENT, "The receiver no longer exists and wants no more requests ({status})."),
    Code.INVALID_FORMAT: Meaning(_PERMANENT, "The receiver rejected the payload as invalid ({status}).", False),
    Code.BATCH_REJECTED: Meaning(_PERMANENT, blames_endpoint=False),
    Code.TLS: Meaning(_PERMANENT),
    Code.BLOCKED: Meaning(_PERMANENT),
    Code.REDIRECT: Meaning(
        _PERMANENT, "The receiver returned a redirect ({status}), which Doorstep never follows; update the URL."
    ),
    Code.REJECTED: Meaning(_PERMANENT, "The receiver rejected the request ({status})."),
    Code.ABORTED: Meaning(_PERMANENT, "The receiver asked not to receive this message again.", False),
    Code.RECIPIENT_REFUSED: Meaning(_PERMANENT, blames_endpoint=False),  # unless the transport calls it temporary
    Code.EXPIRED: Meaning(_PERMANENT),
    Code.ENDPOINT_DELETED: Meaning(_PERMANENT),
    Code.NO_HANDLER: Meaning(_TRANSIENT, blames_endpoint=False),  # another worker may have the handler
    Code.NO_PLACE: Meaning(_TRANSIENT, blames_endpoint=False),  # other messages used up the capacity
}
_UNKNOWN = Meaning(_TRANSIENT)
"""The meaning of a code that a handler or a code map has added."""

_GONE = 410
"""Only this HTTP status disables the endpoint. If the code GONE comes from a handler (`Permanent("GONE")`) or a code
map, only the subject of one event, such as an account or a document, is gone."""
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

_TIMESTAMP_REFUSED = re.compile(rb"timestamp[^\n]{0,80}?(?:too (?:old|new)|tolera(?:nce|ted))", re.IGNORECASE)
"""How verifiers of signatures word it: the libraries of Standard Webhooks, `doorstep.receiver`, and others that follow
the same scheme. The next attempt is signed with a new timestamp, so it may succeed once the clocks agree."""
_SIGNATURE_STATUSES = frozenset({400, 401, 403})
_REFUSAL_BYTES_MAX = 2_000

DELETED_WHILE_WAITING = "The endpoint was deleted while the delivery was waiting."
EXPIRED_WHILE_WAITING = "The event expired before it could be delivered."
_CUT = "The response was longer than the part that is kept."


def classify(reply: Reply, endpoint: Endpoint) -> Outcome:
    """Classify one reply by the built-in rules and those of the endpoint."""
    request = (header(reply.headers, b"webhook-delivery") or "").lower()
    if reply.failure is None and (reply.status is None or 200 <= reply.status < 300):
        return Outcome(reply=reply, detail=_CUT if reply.body_cut else "", disable_endpoint=request == "disable")
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
    """The outcome of a claimed delivery that is not attempted, because it expired or its endpoint was deleted."""
    return Outcome(
        reply=no_reply(claim, now, now),
        category=_PERMANENT,
        code=code,
        reason=reason,
        blames_endpoint=False,
    )


def no_reply(claim: Claim, started_at: Instant, now: Instant) -> Reply:
    """The reply of an attempt that got no response or was never made. It records only the correlation header of the
    request."""
    header_line = claim.correlation_line.encode()
    return Reply(started_at=started_at, finished_at=now, request_headers=header_line)


def _classify_failure(reply: Reply, failure: Failure, endpoint: Endpoint) -> Outcome:
    code = endpoint.code_map.get(failure.code, failure.code)
    meaning = MEANINGS.get(code, _UNKNOWN)
    # A code map decides about the codes that it names, even if it leaves the name as it is. In all other cases, and if
    # it gives a name that has no built-in meaning, the category that the transport or handler stated counts.
    stated = None if failure.code in endpoint.code_map and code in MEANINGS else failure.category
    return Outcome(
        reply=reply,
        category=_with_endpoint_rules(stated or meaning.category, (code, failure.code), endpoint),
        code=code,
        reason=failure.message or code,
        detail=failure.detail,
        retry_after_seconds=failure.retry_after,
        blames_endpoint=meaning.blames_endpoint,
    )


def _classify_status(reply: Reply, status: int, endpoint: Endpoint, request: str) -> Outcome:
    code = endpoint.code_map.get(str(status)) or (
        Code.ABORTED if request == "abort-message" else _code_of(status, reply.body)
    )
    names = (code, str(status), f"{status // 100}xx")
    meaning = MEANINGS.get(code, _UNKNOWN)
    return Outcome(
        reply=reply,
        # If a receiver asks not to receive a message again, that overrides the settings of the endpoint.
        category=_PERMANENT if request == "abort-message" else _with_endpoint_rules(meaning.category, names, endpoint),
        code=code,
        reason=meaning.reason.format(status=_with_phrase(status)),
        detail=_CUT if reply.body_cut else "",
        retry_after_seconds=retry_after(reply.headers, reply.finished_at),
        disable_endpoint=(status == _GONE and code == Code.GONE) or request == "disable",
        blames_endpoint=meaning.blames_endpoint,
    )


def _with_endpoint_rules(default: Category, names: Sequence[str], endpoint: Endpoint) -> Category:
    """Applies `retry_on` and `give_up_on` of the endpoint; a name takes precedence over `*`."""
    if any(name in endpoint.give_up_on for name in names):
        return _PERMANENT
    if "*" in endpoint.retry_on or any(name in endpoint.retry_on for name in names):
        return _TRANSIENT
    return default


def _code_of(status: int, body: bytes) -> str:
    if status in _SIGNATURE_STATUSES and _TIMESTAMP_REFUSED.search(body[:_REFUSAL_BYTES_MAX]):
        return Code.TIMESTAMP_REFUSED
    if known := _STATUS_CODES.get(status):
        return known
    by_hundred = {3: Code.REDIRECT, 4: Code.REJECTED, 5: Code.SERVICE_UNAVAILABLE}
    return by_hundred.get(status // 100, Code.BAD_RESPONSE)


def _with_phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


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
    """The value of a header in a raw block of headers. If it occurs several times, the last one counts, because the
    headers of the final response come last."""
    lowered = block.lower()
    at = lowered.rfind(b"\n" + name + b":")
    if at < 0:
        return None
    start = at + len(name) + 2
    end = block.find(b"\n", start)
    return block[start : end if end >= 0 else None].strip().decode("latin-1")
