"""The servers of the profiles, as their users start them, on each store; and the facts that their tests assert."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psycopg

from doorstep.encryption import new_secret_key
from tests.docs.pages import ROOT
from tests.support.postgres_server import PostgresServer
from tests.support.program import ADMIN_KEY, Program, serving

F = TypeVar("F", bound=Callable[..., object])


def fact(*facts: str) -> Callable[[F], F]:
    """What a profile asked for, as far as this test asserts it. The page of the profile lists all facts."""

    def mark(test: F) -> F:
        test.asserted_facts = facts  # type: ignore[attr-defined]
        return test

    return mark


def facts_in(*modules: Any) -> list[tuple[str, str]]:
    """Each fact with the test that asserts it."""
    return [
        (one, f"{Path(module.__file__).relative_to(ROOT)}::{name}")
        for module in modules
        for name, test in vars(module).items()
        for one in getattr(test, "asserted_facts", ())
    ]


def facts_on(page: Path) -> list[tuple[str, str]]:
    """The rows of the table of facts on the page of a profile."""
    _, _, table = page.read_text().partition("## What it was asked for")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "::test_" in line]
    return [(one, test.strip("`")) for one, test in rows]


class Served(NamedTuple):
    """A running profile, and its database."""

    program: Program
    database_url: str

    def key(self, role: str, user: str | None = None) -> str:
        made = self.program.post("/v1/keys", {"name": user or role, "role": role, "user_id": user})
        assert made.status == 201, made.body
        return str(made.json["key"])

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The result of a query, as a person sees it who looks with SQL."""
        with self._connection() as connection:
            cursor = connection.execute(query)
            return [dict(zip([column[0] for column in cursor.description], row, strict=True)) for row in cursor]

    def refuses(self, statement: str) -> bool:
        """Whether the database refuses to execute a statement."""
        with self._connection() as connection:
            try:
                connection.execute(statement)
            except (sqlite3.IntegrityError, psycopg.errors.CheckViolation):
                return True
            finally:
                connection.rollback()
        return False

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        if self.database_url.startswith("sqlite"):
            opened: Any = sqlite3.connect(self.database_url.removeprefix("sqlite:///"), timeout=30)
        else:
            opened = psycopg.connect(self.database_url)
            opened.execute("SET doorstep.org = '*'")
            opened.commit()
        try:
            yield opened
        finally:
            opened.close()

    def facts(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """The lines of the log with this event and these fields."""
        lines = map(json.loads, list(self.program.out))
        return [line for line in lines if line["event"] == event and line.items() >= fields.items()]


@contextmanager
def profile_served(
    name: str, store: str, folder: Path, server: PostgresServer | None, **environment: str
) -> Iterator[Served]:
    """Run `doorstep serve --app examples.<name>:app` on a new database."""
    url, database = f"sqlite:///{folder}/doorstep.db", f"profile_{name}_{folder.name.replace('-', '_')}".lower()
    given = {"PYTHONPATH": str(ROOT), **environment}
    if server is not None and store == "postgres":
        server.create_database(database)
        url = server.url(database)
        given["DOORSTEP_SECRET_KEY"] = new_secret_key()
    arguments = ("--app", f"examples.{name}:app", "--database", url)
    try:
        with serving(folder, *arguments, environment=given, admin_key=ADMIN_KEY) as program:
            yield Served(program, url)
    finally:
        if server is not None and store == "postgres":
            server.drop_database(database)
