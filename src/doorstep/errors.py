"""Every exception Doorstep raises on purpose, drawn as a tree.

    DoorstepError
    ├── ConfigError            a setting is unknown, out of bounds or contradicts another
    ├── InvalidInput           what the caller gave cannot be used; names the field
    ├── NotFound               no such thing, or it belongs to another organization
    ├── Conflict               the thing exists, but its state does not allow this
    │   └── NotRetryable       the entity of a pipeline is in no state to be sent through again
    ├── Overloaded             more was asked than can be kept up with; try again later
    ├── StoreError
    │   ├── StoreUnavailable   the store cannot be reached or cannot write now; try again later
    │   └── StaleRouting       endpoints changed since the fan-out was computed; compute it again
    └── HandlerFailure
        ├── Transient          a Python handler says: try again
        └── Permanent          a Python handler says: trying again is useless

The failure of a receiver is not among them: that is data (an Outcome), never an exception.
"""

from __future__ import annotations


class DoorstepError(Exception):
    """The root of all errors that Doorstep raises on purpose."""


class ConfigError(DoorstepError):
    """A setting stops the start; the message names it and says what to do."""


class InvalidInput(DoorstepError):
    """The caller gave something that cannot be used. `field` is the path to it, as in the request."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class NotFound(DoorstepError):
    """No such thing here. Deliberately the same for what belongs to another organization."""


class Conflict(DoorstepError):
    """The thing exists, but its present state does not allow what was asked."""


class NotRetryable(Conflict):
    """An entity of a pipeline that did not fail, so there is nothing to retry."""


class Overloaded(DoorstepError):
    """More work is queued than can be kept up with; nothing was stored."""

    def __init__(self, message: str, retry_after_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class StoreError(DoorstepError):
    """The store did not do what was asked; nothing of the call has been kept."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or cannot write now. Whether the last write was kept is unknown."""


class StaleRouting(StoreError):
    """Endpoints changed after the fan-out was computed; read them again and recompute."""


class HandlerFailure(DoorstepError):
    """What a Python handler raises to say how its failure is to be treated.

    `response` is what the other side said, word for word: bytes, text, or anything that can be written as JSON. It is
    kept in the attempt log as the response.
    """

    # A subclass with an `__init__` of its own need not call ours: it says then how to be treated, and nothing else.
    code: str = "HANDLER_ERROR"
    message: str = ""
    retry_after: float | None = None
    response: object = None

    def __init__(self, code: str, message: str = "", retry_after: float | None = None, response: object = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        # Handlers pass on what they were given: an exception as the message, a header's text as the seconds.
        self.code = str(code)
        self.message = str(message)
        self.retry_after = seconds_from(retry_after)
        self.response = response


class Transient(HandlerFailure):
    """Try again: the policy's next delay, or `retry_after` seconds."""


class Permanent(HandlerFailure):
    """Trying again is useless: straight to the dead letters."""


def seconds_from(value: object) -> float | None:
    """A number of seconds as a handler was given it; None for what is none."""
    try:
        return None if value is None else float(str(value))
    except ValueError:
        return None
