"""SQL that a program declares: views and functions for people who look at its tables. Created with the schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from doorstep.errors import ConfigError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,50}")


class Sql(NamedTuple):
    """The database for which a program writes statements, and the expressions that differ between databases."""

    database: Literal["sqlite", "postgresql"]

    def view(self, name: str, select: str) -> list[str]:
        """The statements that create a view, or replace it.

        On PostgreSQL, a view reads the tables with the privileges of its reader, so that row-level security applies. A
        view that is replaced keeps its grants, unless a column of it was removed, renamed or got another type.
        """
        if self.database == "sqlite":
            return [f"DROP VIEW IF EXISTS {name}", f"CREATE VIEW {name} AS {select}"]
        view = f"VIEW {name} WITH (security_invoker = true) AS {select}"
        recreate = f"DROP VIEW {name}; CREATE {view};"
        replace = f"CREATE OR REPLACE {view}; EXCEPTION WHEN invalid_table_definition THEN {recreate}"
        return [f"DO $doorstep$ BEGIN {replace} END $doorstep$"]

    def uuid(self, column: str) -> str:
        """A UUID: of the type `uuid` on PostgreSQL, text on SQLite."""
        if self.database == "postgresql":
            return column
        parts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
        text = " || '-' || ".join(f"substr(hex({column}), {at}, {length})" for at, length in parts)
        return f"iif({column} IS NULL, NULL, lower({text}))"

    def time(self, column: str) -> str:
        """A time from a column in microseconds: `timestamptz` on PostgreSQL, ISO 8601 text in UTC on SQLite."""
        if self.database == "postgresql":
            return f"(timestamptz 'epoch' + {column} * interval '1 microsecond')"
        date = f"strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch')"
        return f"({date} || printf('.%06dZ', {column} % 1000000))"

    def json(self, column: str) -> str:
        """JSON from a column with its bytes: `json` on PostgreSQL, text on SQLite. NULL if it was erased, which leaves
        no bytes."""
        if self.database == "postgresql":
            return f"convert_from(NULLIF({column}, ''), 'UTF8')::json"
        return f"CAST(NULLIF({column}, x'') AS TEXT)"


SqlDefinition = Callable[[Sql], Sequence[str]]
"""Returns the statements that create or replace something in this database; none if the database does not need it."""
SqlDefinitions = Mapping[str, SqlDefinition]
"""The definitions of a program, by name."""
NO_DEFINITIONS: SqlDefinitions = MappingProxyType({})


def check_sql_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name.startswith("doorstep_"):
        raise ConfigError(
            f"the name of a definition in SQL is up to 51 lower-case letters, digits and _ and does not begin with "
            f"doorstep_, got {name!r}"
        )


def define(execute: Callable[[str], Any], sql: Sql, definitions: SqlDefinitions) -> None:
    """Run the statements of each definition that has changed since it was last run, in the current transaction.

    Statements take locks, so an unchanged program runs none. A row in `doorstep_variables` has the digest of the
    statements that were run last.
    """
    for name, definition in definitions.items():
        statements, variable = list(definition(sql)), f"sql:{name}"
        digest = int.from_bytes(hashlib.sha256("\0".join(statements).encode()).digest()[:7])
        known = execute(f"SELECT value FROM doorstep_variables WHERE name = '{variable}'").fetchone()
        if known is not None and known[0] == digest:
            continue
        try:
            for statement in statements:
                execute(statement)
        except Exception as error:
            cause = str(getattr(error, "orig", None) or error)
            raise ConfigError(f"the database refused the definition {name} in SQL: {cause}; correct it") from error
        # Not an UPDATE, which would take the routing lock.
        execute(f"DELETE FROM doorstep_variables WHERE name = '{variable}'")
        execute(f"INSERT INTO doorstep_variables (name, value) VALUES ('{variable}', {digest})")
