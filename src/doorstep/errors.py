"""All exceptions that Doorstep raises deliberately, as a tree.

    DoorstepError
    ├── ConfigError            a setting is unknown or invalid, or contradicts another
    │   └── MissingExtra       an optional part of Doorstep is not installed
    ├── InvalidInput           an argument is invalid; names the field
    ├── NotFound               the object does not exist, or belongs to another organization
    ├── Conflict               the object's state does not allow this
    │   └── NotRetryable       a pipeline entity that did not fail
    ├── Overloaded             too much work is queued; try again later
    ├── NotOffered             the database in use does not have this feature
    ├── StoreError
    │   ├── StoreUnavailable   the store cannot be reached or cannot write now; try again later
    │   └── StaleRouting       endpoints changed since the fan-out was computed; compute it again
    └── HandlerFailure
        ├── Transient          a Python handler failed, and a retry may help
        └── Permanent          a Python handler failed, and a retry is useless

A failure of a receiver is not raised as an exception. It is returned as an Outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class DoorstepError(Exception):
    """The base of all exceptions that Doorstep raises deliberately."""


class ConfigError(DoorstepError):
    """A setting is invalid. The message names it and says what to do."""


class MissingExtra(ConfigError):
    """An optional part of Doorstep is not installed. The message names it and says how to install it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the extra `{extra}`, which is not installed; "
            f"install it with pip install '<wheel or clone of Doorstep>[{extra}]'"
        )


class InvalidInput(DoorstepError):
    """An argument is invalid. `field` is its path, as in a request."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class NotFound(DoorstepError):
    """The object does not exist. Also raised, on purpose, for objects of another organization."""


class Conflict(DoorstepError):
    """The object's current state does not allow the action."""


class NotRetryable(Conflict):
    """The pipeline entity has not failed, so there is nothing to retry."""


class Overloaded(DoorstepError):
    """Too much work is queued. Nothing was stored."""

    def __init__(self, message: str, retry_after_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class NotOffered(DoorstepError):
    """The database in use does not have this feature. The message says so and names the alternative."""


class StoreError(DoorstepError):
    """The store rejected a call. Nothing was stored."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, or cannot write at the moment. Whether the last write was stored is unknown."""


class StaleRouting(StoreError):
    """Endpoints changed after the fan-out was computed; read them again and recompute."""


class HandlerFailure(DoorstepError):
    """Raised by a Python handler to tell Doorstep whether to retry.

    `response` is the original response of the other system: bytes, text, or anything that can be serialized to JSON. It
    is stored in the attempt log.
    """

    # Class-level defaults, because the `__init__` of a subclass might not call this one.
    code: str = "HANDLER_ERROR"
    message: str = ""
    retry_after: float | None = None
    response: object = None

    def __init__(self, code: str, message: str = "", retry_after: float | None = None, response: object = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        # Handlers pass values of any type: an exception as the message, or a Retry-After header as text.
        self.code = str(code)
        self.message = str(message)
        self.retry_after = seconds_from(retry_after)
        self.response = response


class Transient(HandlerFailure):
    """Retry after the policy's next delay, or after `retry_after` seconds."""


class Permanent(HandlerFailure):
    """Do not retry: move the delivery to the dead letters."""


def seconds_from(value: object) -> float | None:
    """The number of seconds in any value that a handler may pass; None if the value is not a number."""
    try:
        return None if value is None else float(str(value))
    except ValueError:
        return None


async def process_all(items: Iterable[T], process: Callable[[T], Awaitable[object]]) -> None:
    """Process the items one after the other. The first error is raised after all items have had their turn."""
    errors: list[Exception] = []
    for item in items:
        try:
            await process(item)
        except Exception as error:  # noqa: BLE001  raised below
            errors.append(error)
    if errors:
        raise errors[0]
