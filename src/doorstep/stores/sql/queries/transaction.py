"""A script: a verb written as a generator that yields statements and is sent their rows.

    def org_key(org_id: UUID) -> Script[int]:
        rows = yield ask(_ORG_KEY, org=org_id)
        ...

SQLite runs a script as a plain function on a thread of its own, PostgreSQL on an asyncpg connection; the verb
knows neither. A script is one transaction: an exception raised inside it undoes everything it did. It may be
run again from the start where a database asks for that (deadlock, two inserts of the same key).

SQLAlchemy is used as a compiler only. Statements are module constants with `bindparam`s, so that each is compiled
once for a dialect and for the lengths of its lists.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
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
    dialect: str | None = None
    """Where it is needed, if not everywhere."""


Transaction = Generator[Step, Rows, T]
"""A verb while it runs. What was changed is asked for with RETURNING: there is no row count."""


def execute(statement: Executable, **values: object) -> Step:
    """A step that runs `statement` once; it is answered with its rows."""
    return Step(statement, (values,))


def execute_on_postgres(statement: Executable, **values: object) -> Step:
    """The same for a lock that SQLite does not need, having one writer: there it is skipped, and has no rows."""
    return Step(statement, (values,), "postgresql")


def execute_on_sqlite(statement: Executable, **values: object) -> Step:
    """Likewise what PostgreSQL does in another way."""
    return Step(statement, (values,), "sqlite")


def execute_each(statement: Executable, values: Sequence[Values], dialect: str | None = None) -> Step:
    """A step that runs `statement` for every set of values; it is answered with no rows."""
    return Step(statement, values, dialect)


class Prepared(NamedTuple):
    """A step as a driver takes it: text, positional arguments for each run, and what its columns are."""

    text: str
    arguments: Sequence[tuple[object, ...]]
    uid_columns: tuple[int, ...]
    bool_columns: tuple[int, ...]


def prepare(step: Step, dialect: Dialect) -> Prepared:
    """Compile a step for `dialect`. A list given for an `IN` must be as long in every run of its step."""
    if not step.values or step.dialect not in (None, dialect.name):
        return Prepared("", (), (), ())
    runs = [{name: _filled(value) for name, value in values.items()} for values in step.values]
    lengths = tuple((name, _length(value)) for name, value in runs[0].items())
    shape = _compile(step.statement, dialect, lengths)
    return Prepared(shape.text, [shape.arguments(values) for values in runs], *shape.columns)


def _filled(value: object) -> object:
    """A list up to the next power of two, by its last member: to `IN` that is the same.

    So a statement has ten shapes, not a thousand. Cleaning, whose batches have any length, kept 60 MiB of them.
    """
    if not isinstance(value, (list, tuple)) or not value:
        return value
    length = 1 << (len(value) - 1).bit_length()
    return [*value, *[value[-1]] * (length - len(value))]


@dataclass(frozen=True)
class _Place:
    """Which value an argument is: one by its name, or one of a list. Not a tuple: SQLAlchemy would spread that too."""

    name: str
    position: int | None = None


class _Shape(NamedTuple):
    """A statement compiled for lists of certain lengths."""

    text: str
    places: Sequence[object]
    """In the order of the arguments: a _Place, or a value that is part of the statement itself."""
    columns: tuple[tuple[int, ...], tuple[int, ...]]
    """Those that are ids, and those that are true or false."""

    def arguments(self, values: Values) -> tuple[object, ...]:
        return tuple([_value(place, values) if type(place) is _Place else place for place in self.places])


def _value(place: _Place, values: Values) -> object:
    value = values[place.name]
    return value if place.position is None else cast("Sequence[object]", value)[place.position]


def _length(value: object) -> int | None:
    return len(value) if isinstance(value, (list, tuple)) else None


@lru_cache(maxsize=2_048)
def _compile(statement: Executable, dialect: Dialect, lengths: tuple[tuple[str, int | None], ...]) -> _Shape:
    """For each length of a list anew: to spread 50 ids over the text took 130 µs a call, a quarter of a page's cost."""
    names = tuple(name for name, _ in lengths) if isinstance(statement, Insert) else None
    compiler = cast(SQLCompiler, cast(Any, statement).compile(dialect=dialect, column_keys=names))
    spread = compiler.construct_expanded_state({name: _places(name, length) for name, length in lengths})
    columns = list(getattr(statement, "exported_columns", ()))
    uids = tuple(place for place, column in enumerate(columns) if column.type is UID)
    bools = tuple(place for place, column in enumerate(columns) if isinstance(column.type, Boolean))
    return _Shape(spread.statement, tuple(spread.positional_parameters or ()), (uids, bools))


def _places(name: str, length: int | None) -> _Place | list[_Place]:
    return _Place(name) if length is None else [_Place(name, position) for position in range(length)]
