"""`doorstep.server`: what a program adds to the server that `doorstep serve --app` starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from doorstep.policy.wording import check_wording
from doorstep.stores.program_sql import SqlDefinition, check_sql_name
from doorstep.telemetry.facts import LogLine

Routers = list[tuple[Any, dict[str, Any]]]
"""FastAPI routers, each with the options with which it is included."""
StartupMessage = Callable[[str, str], Iterable[str]]
"""Gets the URL of the server and the API key for a first command; returns lines to print."""


class ServerAdditions:
    """`doorstep.server`: your own routes, views, log lines and wording. Declare them before the server starts."""

    def __init__(self) -> None:
        self.routers: Routers = []
        """The program's own routes, for the HTTP server."""
        self.first_lines: StartupMessage | None = None
        """Writes the lines that `doorstep serve` prints instead of its own first command."""
        self.log_lines: dict[str, LogLine] = {}
        """The functions that change lines of the log, by event."""
        self.wording: dict[str, str] = {}
        """The program's own texts for the console, by their names in CONSOLE_WORDING."""
        self.views: dict[str, SqlDefinition] = {}
        """The statements that create the program's own views and functions in the database, by name."""

    def include_router(self, router: Any, **options: Any) -> None:
        """Add your own routes, a FastAPI `APIRouter`, to the server that `doorstep serve --app` starts. The options are
        those of FastAPI's `include_router`.

        The routes use Doorstep's API keys (`doorstep.web.allowed`), errors, correlation ids and metrics, and can be
        called with and without a slash at the end. A route with the path of one of Doorstep's replaces it.
        """
        self.routers.append((router, options))

    def startup_message(self, function: StartupMessage) -> StartupMessage:
        """Print your own lines when `doorstep serve` has started, instead of its first command. The function gets the
        URL of the server, and the API key for a command: the new admin key, or `$DOORSTEP_ADMIN_KEY`."""
        self.first_lines = function
        return function

    def console_wording(self, **texts: str) -> None:
        """Replace labels and sentences of the console's retry queue and dead letters with your own:

            doorstep.server.console_wording(retry_now="Try again", deleted="Entry removed.")

        An unknown name is rejected with the list of all names.
        """
        check_wording(texts)
        self.wording |= texts

    def log_line(self, event: str) -> Callable[[LogLine], LogLine]:
        """Let a function change every JSON line of the log with this `event`. It gets the fields of the line and returns
        those to write. It runs in the thread of the log, and must be fast."""

        def declare_line(function: LogLine) -> LogLine:
            self.log_lines[event] = function
            return function

        return declare_line

    def sql(self, name: str) -> Callable[[SqlDefinition], SqlDefinition]:
        """Create your own view or function in Doorstep's database, for people who look at it with SQL.

        The decorated function gets the database (`Sql`) and returns the statements that create or replace it. They run
        when the store is opened, after the tables were created, and only if they have changed. On PostgreSQL, a
        view of `Sql.view` reads the tables with the privileges of its reader, and row-level security applies.
        """
        check_sql_name(name)

        def declare_sql(definition: SqlDefinition) -> SqlDefinition:
            self.views[name] = definition
            return definition

        return declare_sql
