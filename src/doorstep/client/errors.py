"""What a client raises, drawn as a tree.

ClientError
├── Unreachable           no answer came; whether anything was done is unknown
├── UnexpectedAnswer      an answer came that is not Doorstep's, say a proxy's page
├── WaitEnded             what was waited for did not come; `seen` is what was seen last
│   ├── TimedOut          not within the time given
│   └── DeliveryFailed    the event has failed: nothing is left to try
└── ApiError              Doorstep said no: `status`, `code`, `title`, `detail`, `errors`, `correlation_id`
    ├── Unauthenticated   401
    ├── Forbidden         403
    ├── NotFound          404, also for what belongs to another organization
    ├── Conflict          409
    ├── Invalid           400, 413, 422 and other 4xx; `errors` names the fields
    ├── Overloaded        429; `retry_after_seconds`
    └── ServerFault       5xx
        └── Unavailable   502, 503, 504; `retry_after_seconds`
"""

from __future__ import annotations

import msgspec

from doorstep.client.steps import Answer
from doorstep.errors import DoorstepError
from doorstep.schemas.shape import Problem


class ClientError(DoorstepError):
    """The root of what a client raises."""


class Unreachable(ClientError):
    """No answer came. A request that changes something may have been carried out all the same."""


class UnexpectedAnswer(ClientError):
    """An answer that cannot be read as Doorstep's; is the URL right, is a proxy in between?"""


class WaitEnded(ClientError):
    """What was waited for did not come."""

    def __init__(self, message: str, seen: object) -> None:
        super().__init__(message)
        self.seen = seen


class TimedOut(WaitEnded):
    """It did not come within the time given; it may come yet."""


class DeliveryFailed(WaitEnded):
    """Nothing is left to try, and at least one delivery is dead."""


class ApiError(ClientError):
    """Doorstep refused a request, and says why."""

    def __init__(self, problem: Problem, answer: Answer) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}".rstrip(": "))
        self.status = answer.status
        self.title = problem.title
        self.detail = problem.detail
        self.errors = problem.errors
        self.code = problem.type.rpartition(":")[2]
        """The stable name of the problem: `not_found`, `conflict`, `invalid_input`."""
        self.correlation_id = answer.headers.get("x-correlation-id")
        """Look for it in Doorstep's log."""
        self.retry_after_seconds = answer.retry_after_seconds


class Unauthenticated(ApiError):
    """No key was sent, or it is unknown, revoked or expired."""


class Forbidden(ApiError):
    """The role of the key does not allow this."""


class NotFound(ApiError):
    """There is no such thing, or it belongs to another organization."""


class Conflict(ApiError):
    """It exists, but its present state does not allow this."""


class Invalid(ApiError):
    """Something in the request cannot be used; `errors` names the fields."""


class Overloaded(ApiError):
    """More was sent than can be kept up with; nothing was stored."""


class ServerFault(ApiError):
    """Doorstep, or a proxy in front of it, failed."""


class Unavailable(ServerFault):
    """It cannot do that now; try again later."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: Overloaded,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_for(answer: Answer) -> ApiError:
    """The exception that an answer of 400 or more stands for, whoever wrote it."""
    kind = _BY_STATUS.get(answer.status, ServerFault if answer.status >= 500 else Invalid)
    return kind(_problem(answer), answer)


def _problem(answer: Answer) -> Problem:
    try:
        return msgspec.json.decode(answer.content, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Problem(status=answer.status, title="An answer without a reason")
