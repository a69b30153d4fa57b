"""Commands that talk to a server: what they are handed, and how they are declared.

Such a command is a function of a Session and of its own options. `remote` adds the options that all of them have
(--url, --key, --json), so that none of them can forget one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

import msgspec
import typer

from doorstep.cli.connecting import connect
from doorstep.cli.exits import exit_code_of
from doorstep.cli.options import Cursor, Json, Key, Limit, Url, gathered, output_for, settings_from, spread
from doorstep.cli.output import Column, Output

if TYPE_CHECKING:
    from doorstep.client import Client, Page, Pagination


P = ParamSpec("P")
REMOTE_PANEL = "Against a server"
"""Where these commands stand in the help."""


class Session(NamedTuple):
    """What a remote command works with."""

    client: Client
    output: Output
    url: str
    """Where the server was asked."""


class Shared(NamedTuple):
    """The options that all of these commands have."""

    server: Url = None
    key: Key = None
    as_json: Json = False


Command = Callable[Concatenate[Session, P], int | None]


def remote(group: typer.Typer, name: str | None = None, **options: Any) -> Callable[[Command[P]], Command[P]]:
    """Declare a command of a group. Its first parameter is the Session; the others are its options, or sets of them."""

    def declare(function: Command[P]) -> Command[P]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        def command(**given: Any) -> None:
            shared = Shared(*(given.pop(name) for name in Shared._fields))
            raise typer.Exit(exit_code_of(lambda: _run(function, shared, gathered(own, given))))

        command.__name__ = function.__name__
        command.__doc__ = function.__doc__
        command.__annotations__ = {}
        parameters = spread([*own, Parameter("shared", Parameter.KEYWORD_ONLY, annotation=Shared)])
        setattr(command, "__signature__", inspect.Signature(list(parameters)))  # noqa: B010
        group.command(name, **options)(command)
        return function

    return declare


def _run(function: Command[P], shared: Shared, given: dict[str, Any]) -> int | None:
    from doorstep.client import Unreachable

    settings = settings_from(url=shared.server, api_key=shared.key)
    try:
        with connect(settings) as client:
            return function(Session(client, output_for(shared.as_json), settings.url), **given)  # type: ignore[call-arg]
    except Unreachable as error:
        raise Unreachable(
            f"{settings.url} cannot be reached: {error}; start `doorstep serve` there, or say where it is with --url"
        ) from None


T = TypeVar("T")
PAGE_MAX = 200
"""The largest page that every list of the API gives."""


class Paging(NamedTuple):
    """How much of a list."""

    limit: Limit = 50
    cursor: Cursor = None


class Rows(Generic[T]):
    """Rows of one or more pages, and where the list goes on."""

    def __init__(self, items: list[T], pagination: Pagination) -> None:
        self.items = items
        self.pagination = pagination

    def show(self, output: Output, name: str, columns: Sequence[Column], empty: str) -> None:
        """As a table, or as the API gives a list: under its name, with its pagination."""
        output.listing({name: self.items, "pagination": self.pagination}, self.items, columns, empty)
        if self.pagination.has_more and self.items:
            output.note(f"{self._of_how_many()}; for more raise --limit, or add --cursor {self.pagination.cursor}")

    def _of_how_many(self) -> str:
        total = self.pagination.total_count
        if total is None:
            return f"The first {len(self.items)}"
        return f"{len(self.items)} of {'more than ' if self.pagination.total_is_floor else ''}{total}"


def gather(page: Callable[..., Page[T]], paging: Paging, **filters: Any) -> Rows[T]:
    """Up to `limit` rows of a list of the client. A page may be short, even empty, and still not be the last."""
    items: list[T] = []
    limit, cursor = paging
    total: int | None = None
    while True:
        got = page(limit=min(limit - len(items), PAGE_MAX), cursor=cursor, **filters)
        items += got.items
        cursor = got.pagination.cursor
        total = got.pagination.total_count if total is None else total
        if len(items) >= limit or not got.pagination.has_more:
            counted = {} if total is None else {"total_count": total}
            return Rows(items, msgspec.structs.replace(got.pagination, limit=limit, **counted))
