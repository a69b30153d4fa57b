"""Every error that the API answers with, worded once, as `application/problem+json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.wording import FieldError
from doorstep.errors import Conflict, DoorstepError, InvalidInput, NotFound, NotRetryable, Overloaded, StoreUnavailable

MEDIA_TYPE = "application/problem+json"


class _Row(NamedTuple):
    status: int
    title: str
    detail: str


class Problem(_Row, Enum):
    """The status, the title, and the detail where the case has none of its own."""

    NOT_RETRYABLE = _Row(400, "Its present status cannot be retried", "only what failed can be retried")
    INVALID_JSON = _Row(400, "The body is not JSON", "send one JSON value in UTF-8")
    UNAUTHENTICATED = _Row(401, "No valid API key", "send a valid key in the header X-API-Key")
    FORBIDDEN = _Row(403, "This key may not do that", "use a key with another role")
    NOT_FOUND = _Row(404, "Not found", "there is nothing here; check the path and the id")
    METHOD_NOT_ALLOWED = _Row(405, "This path has no such method", "see the header Allow")
    CONFLICT = _Row(409, "Its present state does not allow that", "read it again and decide anew")
    TOO_LARGE = _Row(413, "The body is too large", "send less at once")
    INVALID_INPUT = _Row(422, "Something in the request cannot be used", "see errors for the field and its rule")
    OVERLOADED = _Row(429, "More was sent than can be kept up with", "nothing was stored; send it again later")
    INTERNAL = _Row(500, "Doorstep made a mistake", "look for the correlation id in the log")
    STORE_UNAVAILABLE = _Row(
        503, "The store cannot be reached or cannot write now", "try again later, with the same idempotency key"
    )

    @property
    def code(self) -> str:
        """The stable name that programs may rely on."""
        return self.name.lower()

    @property
    def urn(self) -> str:
        return f"urn:doorstep:problem:{self.code}"


class Refusal(HTTPException):
    """What a route raises to answer with a problem. (An HTTPException, because frameworks let those through.)"""

    def __init__(
        self,
        problem: Problem,
        detail: str | None = None,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(problem.status, detail or problem.detail, dict(headers or {}))
        self.problem = problem
        self.errors = errors


def refusal_for(error: Exception) -> Refusal:
    """The one place where an exception becomes an answer."""
    match error:
        case Refusal():
            return error
        case InvalidInput():
            return invalid(FieldError(error.field, error.message))
        case NotFound():
            return Refusal(Problem.NOT_FOUND, str(error))
        case NotRetryable():
            return Refusal(Problem.NOT_RETRYABLE, str(error))
        case Conflict():
            return Refusal(Problem.CONFLICT, str(error))
        case Overloaded():
            return Refusal(Problem.OVERLOADED, str(error), headers={"Retry-After": str(error.retry_after_seconds)})
        case StoreUnavailable():
            return Refusal(Problem.STORE_UNAVAILABLE, headers={"Retry-After": "1"})
        case HTTPException():
            return _refusal_for_status(error)
    return Refusal(Problem.INTERNAL)


def invalid(*errors: FieldError) -> Refusal:
    """A 422 whose detail is the first thing wrong, for people, and whose errors are all of them, for programs."""
    first = errors[0]
    return Refusal(Problem.INVALID_INPUT, f"{first.field}: {first.message}", errors)


def respond(refusal: Refusal) -> Response:
    body: dict[str, object] = {
        "type": refusal.problem.urn,
        "title": refusal.problem.title,
        "status": refusal.problem.status,
        "detail": refusal.detail,
    }
    if refusal.errors:
        body["errors"] = [error._asdict() for error in refusal.errors]
    return Response(msgspec.json.encode(body), refusal.status_code, refusal.headers, MEDIA_TYPE)


async def handle(_: Request, error: Exception) -> Response:
    """The exception handler of the whole application."""
    return respond(refusal_for(error))


HANDLED: tuple[type[Exception], ...] = (DoorstepError, HTTPException)


_BY_STATUS = {problem.status: problem for problem in Problem}


def _refusal_for_status(error: HTTPException) -> Refusal:
    problem = _BY_STATUS.get(error.status_code, Problem.INTERNAL if error.status_code >= 500 else Problem.INVALID_JSON)
    return Refusal(problem, headers=error.headers)
