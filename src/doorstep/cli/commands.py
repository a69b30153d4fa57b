"""How commands are declared, run and ended.

A command is a function. `remote` gives it a Session and the options of all commands that talk to a server (--url, --key,
--json); `local` gives it an Output and --json. Every error is reported as an exit code and one sentence on standard
error. Scripts rely on the exit codes, so there are few, and each has one meaning. Users never see a traceback, unless
the log level is `debug`.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from uuid import UUID

import msgspec
import typer

from doorstep.cli.extras import extra_of
from doorstep.cli.options import Cursor, Json, Key, Limit, Url, collect, expand, settings_from
from doorstep.cli.output import Column, Output, say, visible
from doorstep.config import Settings, origin
from doorstep.errors import (
    ConfigError,
    Conflict,
    DoorstepError,
    InvalidInput,
    MissingExtra,
    NotFound,
    NotOffered,
    StoreUnavailable,
)
from doorstep.telemetry.redaction import safe_message, traceback_of

if TYPE_CHECKING:
    from doorstep.client import Client, Page
    from doorstep.schemas.endpoints import Endpoint

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., int | None])


# -- exit codes --------------------------------------------------------------------------------------------


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5


MEANINGS = {
    ExitCode.OK: "The command succeeded.",
    ExitCode.FAILED: "The command ran but did not succeed: a delivery failed, a wait timed out, or a check found a problem.",
    ExitCode.USAGE: "An option, a setting or the input is invalid; the message names it.",
    ExitCode.NOT_FOUND: "The object does not exist, or belongs to another organization.",
    ExitCode.REFUSED: "The key is unknown, its role does not allow the action, the object's state does not, or the "
    "database in use does not offer it.",
    ExitCode.UNREACHABLE: "The server cannot be reached or cannot answer now; the same command may work later.",
}

Run = Callable[[], int | None]


def end(run: Run) -> None:
    """Run a command and exit with its code."""
    raise typer.Exit(exit_code_of(run))


def exit_code_of(run: Run) -> int:
    """Run a command. An error is printed to standard error as one sentence; the exit code depends on its kind."""
    try:
        return run() or ExitCode.OK
    except BrokenPipeError:
        _discard_output()
        return ExitCode.OK
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except DoorstepError as error:
        say(visible(f"doorstep: {error}"))
        return _code_of(error)
    except Exception as error:  # noqa: BLE001  any error is reported as one sentence
        if (extra := extra_of(error)) is not None:
            say(visible(f"doorstep: {MissingExtra('this command', extra)}"))
            return ExitCode.USAGE
        reason = safe_message(error)
        say(visible(f"doorstep: unexpected error, {reason}; run it with DOORSTEP_LOG_LEVEL=debug for a traceback"))
        if os.environ.get("DOORSTEP_LOG_LEVEL", "").lower() == "debug":
            print(traceback_of(error), file=sys.stderr)
        return ExitCode.FAILED


def _code_of(error: DoorstepError) -> ExitCode:
    from doorstep.client import errors as remote  # imported here because it loads an HTTP client

    kinds: dict[ExitCode, tuple[type[DoorstepError], ...]] = {
        ExitCode.USAGE: (ConfigError, InvalidInput, remote.Invalid),
        ExitCode.NOT_FOUND: (NotFound, remote.NotFound),
        ExitCode.REFUSED: (
            Conflict,
            NotOffered,
            remote.Conflict,
            remote.NotOffered,
            remote.Forbidden,
            remote.Unauthenticated,
        ),
        ExitCode.UNREACHABLE: (StoreUnavailable, remote.Unreachable, remote.Unavailable, remote.Overloaded),
    }
    return next((code for code, types in kinds.items() if isinstance(error, types)), ExitCode.FAILED)


def none_of(what: str, paging: Paging, otherwise: str | None = None, /, **filters: object) -> str:
    """The text for an empty list. An empty page of a longer list, or a filter, says nothing about the other items."""
    if paging.cursor is not None:
        return f"No more {what}."
    filtered = any(value is not None for value in filters.values())
    return f"No {what} for this filter." if filtered else f"There are no {what}." if otherwise is None else otherwise


def _discard_output() -> None:
    """Discard further output after its reader has exited (`| head`). Otherwise Python would fail to flush it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# -- declaring commands ------------------------------------------------------------------------------------


_SHORT_ID = re.compile(r"[0-9a-fA-F]{8}")
_KINDS = {"event_id": "event", "batch_id": "event", "delivery_id": "delivery"}
"""What the arguments with these names identify."""


class Session(NamedTuple):
    """The first parameter of a remote command."""

    client: Client
    output: Output
    url: str
    """The URL of the server."""

    def endpoint(self, id_or_name: str) -> Endpoint:
        return find_endpoint(self.client, id_or_name)

    def endpoint_id(self, id_or_name: str | None) -> str | None:
        """The endpoint id for a filter. Only names are looked up: an id may belong to a deleted endpoint."""
        if id_or_name is None or _is_id(id_or_name):
            return id_or_name
        return str(self.endpoint(id_or_name).endpoint_id)

    def org_id(self, id_or_name: str) -> str:
        """The id of the organization with this id, or of the only one with this name."""
        if _is_id(id_or_name):
            return id_or_name
        found = [str(one.org_id) for one in self.client.orgs.each(limit=PAGE_MAX) if one.name == id_or_name]
        if not found:
            raise NotFound(f"there is no organization named {id_or_name!r}; `doorstep orgs list` shows all of them")
        if len(found) > 1:
            raise ConfigError(f"{len(found)} organizations are named {id_or_name!r}; give the id: {', '.join(found)}")
        return found[0]

    def whole_id(self, name: str, value: Any) -> Any:
        """The whole id if this argument is a short one, as the console shows them; other arguments stay as they are."""
        kind = _KINDS.get(name)
        if kind is None or not isinstance(value, str) or not _SHORT_ID.fullmatch(value):
            return value
        found = [str(one.item_id) for one in self.client.find(value).items if one.kind == kind]
        if not found:
            raise NotFound(f"no {kind} has an id that ends with {value}; give the whole id or its last eight digits")
        if len(found) > 1:
            raise ConfigError(f"{len(found)} ids end with {value}; give the whole id, one of {', '.join(found)}")
        return found[0]

    def show_page(self, page: Page[Any], name: str, columns: Sequence[Column], empty: str) -> None:
        """Print a list as a table, or as the JSON of the API, with the list under `name` and its pagination."""
        pagination = page.pagination
        self.output.listing({name: page.items, "pagination": pagination}, page.items, columns, empty)
        if pagination.has_more and page.items:
            total = f"{'more than ' if pagination.total_is_floor else ''}{pagination.total_count}"
            shown = f"The first {len(page)}" if pagination.total_count is None else f"{len(page)} of {total}"
            self.output.note(f"{shown}; for more, raise --limit or add --cursor {pagination.cursor}")


class _Local(NamedTuple):
    as_json: Json = False

    def run(self, function: Callable[..., int | None], arguments: dict[str, Any]) -> int | None:
        return function(Output(as_json=self.as_json), **arguments)


class _Remote(NamedTuple):
    server: Url = None
    key: Key = None
    as_json: Json = False

    def run(self, function: Callable[..., int | None], arguments: dict[str, Any]) -> int | None:
        from doorstep.client import Unauthenticated, Unreachable

        settings = settings_from(url=self.server, api_key=self.key)
        try:
            with connect(settings) as client:
                session = Session(client, Output(as_json=self.as_json), settings.url)
                return function(session, **{name: session.whole_id(name, value) for name, value in arguments.items()})
        except Unauthenticated as error:
            raise error.saying(
                f"401 {error.title}: {settings.url} does not accept {_key_origin(self.key, settings)}"
            ) from None
        except Unreachable as error:
            raise Unreachable(
                f"cannot reach {settings.url}: {error}; start `doorstep serve` there, or give another address with --url"
            ) from None


def _key_origin(option: str | None, settings: Settings) -> str:
    """The key that was sent, by its setting, and what to do about it."""
    if option is not None:
        return "the key in --key; give another one"
    name = "admin_key" if settings.api_key is None else "api_key"
    return f"the key in {origin(name)}; set DOORSTEP_API_KEY to a valid key of this server, or give one with --key"


LocalCommand = Callable[Concatenate[Output, P], int | None]
RemoteCommand = Callable[Concatenate[Session, P], int | None]


def local(group: typer.Typer, name: str | None = None) -> Callable[[LocalCommand[P]], LocalCommand[P]]:
    """Declare a command that needs no server. Its parameters are an Output, options and sets of options."""
    return lambda function: _declare(group, name, function, _Local)


def remote(group: typer.Typer, name: str | None = None) -> Callable[[RemoteCommand[P]], RemoteCommand[P]]:
    """Declare a command that calls a server. Its parameters are a Session, options and sets of options."""
    return lambda function: _declare(group, name, function, _Remote)


def _declare(group: typer.Typer, name: str | None, function: F, shared: Any) -> F:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    def command(**given: Any) -> None:
        options = shared(*(given.pop(field) for field in shared._fields))
        end(lambda: options.run(function, collect(own, given)))

    command.__name__ = function.__name__
    command.__doc__ = function.__doc__
    command.__annotations__ = {}
    parameters = expand([*own, Parameter("shared", Parameter.KEYWORD_ONLY, annotation=shared)])
    setattr(command, "__signature__", inspect.Signature(list(parameters)))  # noqa: B010
    group.command(name)(command)
    return function


# -- the server --------------------------------------------------------------------------------------------

_TRIES = 3
"""How many times a request is tried. This outlasts a brief network error but not a restart of the server, because a
person is waiting for the result."""
_TIMEOUT_SECONDS = 10.0
PAGE_MAX = 200
"""The maximum page size of every list in the API."""


def connect(settings: Settings, *, tries: int = _TRIES, timeout_seconds: float = _TIMEOUT_SECONDS) -> Client:
    """A client with the server URL and the key from the settings."""
    from doorstep.client import Client, Retrying

    key = settings.api_key or settings.admin_key
    if key is None:
        raise ConfigError("an API key is needed to talk to the server; give --key or set DOORSTEP_API_KEY")
    return Client(settings.url, key.get_secret_value(), timeout=timeout_seconds, retrying=Retrying(tries_max=tries))


def find_endpoint(client: Client, id_or_name: str) -> Endpoint:
    """The endpoint with this id, or the only one with this name."""
    if _is_id(id_or_name):
        return client.endpoints.read(id_or_name)
    endpoints = list(client.endpoints.each(limit=PAGE_MAX))
    found = [one for one in endpoints if one.name == id_or_name]
    if not found and _SHORT_ID.fullmatch(id_or_name):
        found = [one for one in endpoints if str(one.endpoint_id).endswith(id_or_name.lower())]
    if not found:
        raise NotFound(f"there is no endpoint named {id_or_name!r}; `doorstep endpoints list` shows all of them")
    if len(found) > 1:
        ids = ", ".join(str(endpoint.endpoint_id) for endpoint in found)
        raise ConfigError(f"{len(found)} endpoints are named {id_or_name!r}; give the id instead, one of {ids}")
    return found[0]


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


# -- lists -------------------------------------------------------------------------------------------------


class Paging(NamedTuple):
    """The options of every paginated list."""

    limit: Limit = 50
    cursor: Cursor = None

    def fetch(self, read_page: Callable[..., Page[T]], **filters: Any) -> Page[T]:
        """Up to `limit` rows of a list. A short or empty page need not be the last page, so reading continues."""
        from doorstep.client import Page

        items: list[T] = []
        cursor = self.cursor
        total: int | None = None
        while True:
            page = read_page(limit=min(self.limit - len(items), PAGE_MAX), cursor=cursor, **filters)
            items += page.items
            cursor = page.pagination.cursor
            total = page.pagination.total_count if total is None else total
            if len(items) >= self.limit or not page.pagination.has_more:
                counted = {} if total is None else {"total_count": total}
                return Page(tuple(items), msgspec.structs.replace(page.pagination, limit=self.limit, **counted))
