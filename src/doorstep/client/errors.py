"""The exceptions of the client, as a tree.

ClientError
├── Unreachable           no response; whether the request had an effect is unknown
├── UnexpectedAnswer      a response that is not from Doorstep, such as a proxy's error page
├── WaitEnded             a wait ended without success; `seen` is the last state
│   ├── TimedOut          the timeout expired
│   └── DeliveryFailed    the event has failed, and no retries are left
└── ApiError              an error response: `status`, `code`, `title`, `detail`, `errors`, `correlation_id`
    ├── Unauthenticated   401
    ├── Forbidden         403
    ├── NotFound          404, also for objects of another organization
    ├── Conflict          409
    ├── Invalid           400, 413, 422 and other 4xx; `errors` names the fields
    ├── Overloaded        429; `retry_after_seconds`
    └── ServerFault       5xx
        └── Unavailable   502, 503, 504; `retry_after_seconds`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from doorstep.errors import DoorstepError
from doorstep.schemas.shape import Problem


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def retry_after_seconds(self) -> float | None:
        given = self.headers.get("retry-after", "")
        return float(given) if given.isascii() and given.isdigit() else None


class ClientError(DoorstepError):
    """The base of all exceptions of the client."""


class Unreachable(ClientError):
    """No response. The request may have been processed nevertheless."""


class UnexpectedAnswer(ClientError):
    """A response that does not come from Doorstep. Check the URL and any proxies."""


class WaitEnded(ClientError):
    """A wait ended without success. `seen` is the event or operation as it was last read."""

    def __init__(self, message: str, seen: object) -> None:
        super().__init__(message)
        self.seen = seen


class TimedOut(WaitEnded):
    """The timeout expired. The event or operation may still succeed later."""


class DeliveryFailed(WaitEnded):
    """No retries are left, and at least one delivery is dead."""


class ApiError(ClientError):
    """Doorstep rejected a request. The attributes contain the reason."""

    def __init__(self, problem: Problem, answer: Answer) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}".rstrip(": "))
        self.status = answer.status
        self.title = problem.title
        self.detail = problem.detail
        self.errors = problem.errors
        self.code = problem.type.rpartition(":")[2]
        """The stable name of the problem: `not_found`, `conflict`, `invalid_input`."""
        self.correlation_id = answer.headers.get("x-correlation-id")
        """The id of the request in Doorstep's log."""
        self.retry_after_seconds = answer.retry_after_seconds

    def saying(self, message: str) -> Self:
        """The same error with another message."""
        self.args = (message,)
        return self


class Unauthenticated(ApiError):
    """No key was sent, or the key is unknown, revoked or expired."""


class Forbidden(ApiError):
    """The role of the key does not allow this."""


class NotFound(ApiError):
    """The object does not exist, or belongs to another organization."""


class Conflict(ApiError):
    """The object's current state does not allow this."""


class Invalid(ApiError):
    """The request is invalid; `errors` names the fields."""


class Overloaded(ApiError):
    """Doorstep is overloaded or a rate limit was reached. Nothing was stored."""


class ServerFault(ApiError):
    """Doorstep, or a proxy in front of it, failed."""


class NotOffered(ApiError):
    """The database that Doorstep uses does not have this feature. The message says so."""


class Unavailable(ServerFault):
    """Doorstep cannot process the request now; try again later."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: Overloaded,
    501: NotOffered,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_for(answer: Answer) -> ApiError:
    """The exception for a response with status 400 or higher, from Doorstep or a proxy."""
    kind = _BY_STATUS.get(answer.status, ServerFault if answer.status >= 500 else Invalid)
    return kind(_problem(answer), answer)


def _problem(answer: Answer) -> Problem:
    try:
        return msgspec.json.decode(answer.content, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Problem(status=answer.status, title="An error without details")
