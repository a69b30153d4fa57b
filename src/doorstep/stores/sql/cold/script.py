"""A script: a verb written as a generator that yields statements and is sent their rows.

    def org_key(org_id: UUID) -> Script[int]:
        rows = yield ask(ORG_KEY, org=org_id)
        ...

SQLite runs a script as a plain function on a thread of its own, PostgreSQL on an asyncpg connection; the verb
knows neither. A script is one transaction: an exception raised inside it undoes everything it did. It may be
run again from the start where a database asks for that (deadlock, two inserts of the same key).

SQLAlchemy is used as a compiler only. Statements are module constants with `bindparam`s, so that each is compiled
once for a dialect; spreading the values over their places costs 4 to 13 µs a call.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import Boolean, Insert
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler

from doorstep.stores.sql.schema import UID

T = TypeVar("T")
Row = tuple[Any, ...]
Rows = Sequence[Row]
Values = Mapping[str, object]


class Step(NamedTuple):
    """One statement, to be run once for each set of values."""

    statement: Executable
    values: Sequence[Values]


Script = Generator[Step, Rows, T]
"""A verb while it runs. What was changed is asked for with RETURNING: there is no row count."""


def ask(statement: Executable, **values: object) -> Step:
    """A step that runs `statement` once; it is answered with its rows."""
    return Step(statement, (values,))


def each(statement: Executable, values: Sequence[Values]) -> Step:
    """A step that runs `statement` for every set of values; it is answered with no rows."""
    return Step(statement, values)


class Prepared(NamedTuple):
    """A step as a driver takes it: text, positional arguments for each run, and what its columns are."""

    text: str
    arguments: Sequence[tuple[object, ...]]
    uid_columns: tuple[int, ...]
    bool_columns: tuple[int, ...]


def prepare(step: Step, dialect: Dialect) -> Prepared:
    """Compile a step for `dialect`. A list given for an `IN` must be the only run of its step."""
    if not step.values:
        return Prepared("", (), (), ())
    names = tuple(step.values[0]) if isinstance(step.statement, Insert) else None
    text, uids, bools = _compile(step.statement, dialect, names)
    runs = [text.construct_expanded_state(dict(values)) for values in step.values]
    return Prepared(
        runs[0].statement, [cast("tuple[object, ...]", run.positional_parameters) for run in runs], uids, bools
    )


@lru_cache(maxsize=512)
def _compile(
    statement: Executable, dialect: Dialect, names: tuple[str, ...] | None
) -> tuple[SQLCompiler, tuple[int, ...], tuple[int, ...]]:
    text = cast(SQLCompiler, cast(Any, statement).compile(dialect=dialect, column_keys=names))
    columns = list(getattr(statement, "exported_columns", ()))
    uids = tuple(place for place, column in enumerate(columns) if column.type is UID)
    bools = tuple(place for place, column in enumerate(columns) if isinstance(column.type, Boolean))
    return text, uids, bools
