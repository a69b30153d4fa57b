"""Every error that the API responds with, as `application/problem+json`. The text of each error is defined once,
here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from http.client import responses as phrases
from typing import Any, NamedTuple

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from doorstep.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    NotOffered,
    NotRetryable,
    Overloaded,
    StoreUnavailable,
)
from doorstep.schemas.shape import FieldProblem

MEDIA_TYPE = "application/problem+json"


class _Row(NamedTuple):
    status: int
    title: str
    detail: str


class Problem(_Row, Enum):
    """A kind of error: its status, its title, and a default for the detail."""

    BAD_REQUEST = _Row(400, "Bad request", "see the detail")
    NOT_RETRYABLE = _Row(400, "Cannot be retried in its current status", "only failed items can be retried")
    INVALID_JSON = _Row(400, "The body is not JSON", "send one JSON value in UTF-8")
    UNAUTHENTICATED = _Row(401, "No valid API key", "send a valid key in the header X-API-Key")
    FORBIDDEN = _Row(403, "Not allowed with this key", "use a key with another role")
    NOT_FOUND = _Row(404, "Not found", "check the path and the id")
    METHOD_NOT_ALLOWED = _Row(405, "Method not allowed", "see the header Allow")
    TIMEOUT = _Row(408, "The request did not arrive in time", "send the whole request without pauses")
    CONFLICT = _Row(409, "Not possible in its current state", "read it again, then decide")
    TOO_LARGE = _Row(413, "The body is too large", "send less in one request")
    INVALID_INPUT = _Row(422, "Invalid request", "see errors for the field and its rule")
    OVERLOADED = _Row(429, "Too many requests", "nothing was stored; send it again later")
    HEADERS_TOO_LARGE = _Row(431, "The headers are too large", "send fewer and shorter headers")
    INTERNAL = _Row(500, "Internal error", "look for the correlation id in the log")
    NOT_OFFERED = _Row(501, "Not offered with this database", "use another kind of database")
    STORE_UNAVAILABLE = _Row(
        503, "The store is unavailable or cannot write now", "try again later, with the same idempotency key"
    )

    @property
    def urn(self) -> str:
        """A stable name for programs."""
        return f"urn:doorstep:problem:{self.name.lower()}"

    def body(self, detail: str) -> dict[str, object]:
        """The body of a response, without field errors."""
        return {"type": self.urn, "title": self.title, "status": self.status, "detail": detail}


class Refusal(HTTPException):
    """Raised by a route to respond with a problem. It is an HTTPException, because the framework passes such
    exceptions to the registered handler and does not log them as errors."""

    def __init__(
        self,
        problem: Problem,
        detail: str | None = None,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(problem.status, detail or problem.detail, dict(headers or {}))
        self.problem = problem
        self.errors = errors


def refusal_for(error: Exception) -> Refusal:
    """The response for an exception. All exceptions are converted here."""
    match error:
        case Refusal():
            return error
        case InvalidInput():
            return invalid(FieldProblem(error.field, error.message))
        case NotFound():
            return Refusal(Problem.NOT_FOUND, str(error))
        case NotRetryable():
            return Refusal(Problem.NOT_RETRYABLE, str(error))
        case Conflict():
            return Refusal(Problem.CONFLICT, str(error))
        case Overloaded():
            return Refusal(Problem.OVERLOADED, str(error), headers={"Retry-After": str(error.retry_after_seconds)})
        case NotOffered():
            return Refusal(Problem.NOT_OFFERED, str(error))
        case StoreUnavailable():
            return Refusal(Problem.STORE_UNAVAILABLE, headers={"Retry-After": "1"})
        case RequestValidationError():
            return invalid(*map(_field_problem, error.errors()))
        case HTTPException() if error.detail != _phrase(error.status_code):
            return _of_program(error)
        case HTTPException():
            fallback = Problem.INTERNAL if error.status_code >= 500 else Problem.INVALID_JSON
            return Refusal(_BY_STATUS.get(error.status_code, fallback), headers=error.headers)
    return Refusal(Problem.INTERNAL)


def _of_program(error: HTTPException) -> Refusal:
    """An HTTPException that a route of the program raised keeps its status and its detail."""
    fallback = Problem.INTERNAL if error.status_code >= 500 else Problem.BAD_REQUEST
    known = {status: problem for status, problem in _BY_STATUS.items() if status != Problem.BAD_REQUEST.status}
    refusal = Refusal(known.get(error.status_code, fallback), error.detail, headers=error.headers)
    refusal.status_code = error.status_code
    return refusal


def _phrase(status: int) -> str:
    """The detail of an HTTPException that was raised without one."""
    return phrases.get(status, "")


def _field_problem(error: Mapping[str, Any]) -> FieldProblem:
    """An error that FastAPI found in a request to a route of the program."""
    place = [str(part) for part in error["loc"]]
    return FieldProblem(".".join(place[1:]) or place[0], str(error["msg"]))


def invalid(*errors: FieldProblem) -> Refusal:
    """A 422. Its detail is the first error, for people; its `errors` lists all of them, for programs."""
    first = errors[0]
    return Refusal(Problem.INVALID_INPUT, f"{first.field}: {first.message}", errors)


def respond(refusal: Refusal) -> Response:
    body = refusal.problem.body(refusal.detail) | {"status": refusal.status_code}
    if refusal.errors:
        body["errors"] = refusal.errors
    return Response(msgspec.json.encode(body), refusal.status_code, refusal.headers, MEDIA_TYPE)


async def handle(_: Request, error: Exception) -> Response:
    """The exception handler of the whole application."""
    return respond(refusal_for(error))


_BY_STATUS = {problem.status: problem for problem in Problem}
