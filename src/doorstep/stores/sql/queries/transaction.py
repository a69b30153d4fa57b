"""A transaction script: a store method written as a generator that yields statements and receives their rows.

    def org_key(org_id: UUID) -> Transaction[int]:
        rows = yield execute(ORG_KEY, org=org_id)
        ...

The SQLite store runs a script as a plain function on its own thread. The PostgreSQL store runs it on an asyncpg
connection. The script depends on neither database. A script is one transaction: an exception raised in it rolls
everything back. After a deadlock, or if two transactions insert the same key, the script may be run again from the
start.

SQLAlchemy is only used to compile SQL. Statements are module constants with `bindparam`s, so that each statement is
compiled only once for each dialect and each length of its lists.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from sqlalchemy import BindParameter, Boolean, Insert, bindparam
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler

from doorstep.errors import NotFound
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
    """The only dialect for which the step runs; None means both."""


Transaction = Generator[Step, Rows, T]
"""A running script. Statements return no row counts: to find out which rows a statement changed, use RETURNING."""


def execute(statement: Executable, **values: object) -> Step:
    """A step that runs `statement` once and returns its rows."""
    return Step(statement, (values,))


def execute_on_postgres(statement: Executable, **values: object) -> Step:
    """A step that runs only on PostgreSQL, for example a lock that SQLite does not need because it has one writer. On
    SQLite it returns no rows."""
    return Step(statement, (values,), "postgresql")


def execute_on_sqlite(statement: Executable, **values: object) -> Step:
    """A step that runs only on SQLite, for statements that differ on PostgreSQL. On PostgreSQL it returns no rows."""
    return Step(statement, (values,), "sqlite")


def execute_each(statement: Executable, values: Sequence[Values], dialect: str | None = None) -> Step:
    """A step that runs `statement` once for each set of values. It returns no rows."""
    return Step(statement, values, dialect)


def execute_one(missing: str, statement: Executable, **values: object) -> Transaction[Row]:
    """The first row of a query. Raises NotFound with the message `missing` if there is none."""
    rows = yield execute(statement, **values)
    if not rows:
        raise NotFound(missing)
    return rows[0]


LIST_MAX = 500
"""The maximum number of values in an `IN` list. SQLite and PostgreSQL allow about 32,000."""
KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)
UIDS: BindParameter[list[UUID]] = bindparam("uids", expanding=True)
LIMIT: BindParameter[int] = bindparam("limit")


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split the items into chunks that fit in an `IN` list."""
    return (items[start : start + LIST_MAX] for start in range(0, len(items), LIST_MAX))


def execute_in_parts(statement: Executable, name: str, items: Iterable[object], **values: object) -> Transaction[Rows]:
    """Run a statement for the distinct items, once for each chunk of them. The statement's list parameter `name`
    receives the chunk. Returns the rows of all runs."""
    rows: list[Row] = []
    for part in parts(list(dict.fromkeys(items))):
        rows += yield execute(statement, **{name: part}, **values)
    return rows


def new_parameters(columns: Iterable[str]) -> dict[str, BindParameter[Any]]:
    """Parameters for the new values in an UPDATE. Their names begin with `new_`, because SQLAlchemy reserves the names
    of the columns."""
    return {name: bindparam(f"new_{name}") for name in columns}


def new_values(values: Values) -> Values:
    """The values for `new_parameters`."""
    return {f"new_{name}": value for name, value in values.items()}


class Prepared(NamedTuple):
    """A step in the form that a driver needs: the SQL text, the positional arguments of each run, and the columns that
    need conversion."""

    text: str
    arguments: Sequence[tuple[object, ...]]
    uid_columns: tuple[int, ...]
    bool_columns: tuple[int, ...]


def prepare(step: Step, dialect: Dialect) -> Prepared:
    """Compile a step for `dialect`. The list of an `IN` must have the same length in every run of the step."""
    if not step.values or step.dialect not in (None, dialect.name):
        return Prepared("", (), (), ())
    runs = [{name: _padded(value) for name, value in values.items()} for values in step.values]
    lengths = tuple((name, _length(value)) for name, value in runs[0].items())
    compiled = _compile(step.statement, dialect, lengths)
    return Prepared(compiled.text, [compiled.arguments(values) for values in runs], *compiled.columns)


def _padded(value: object) -> object:
    """Pad a list to the next power of two by repeating its last item, which does not change the result of `IN`.

    So a statement has at most ten compiled forms, one for each padded length. Without padding, the cleaner's batches,
    which can have any length, filled the cache with 60 MiB of compiled statements.
    """
    if not isinstance(value, (list, tuple)) or not value:
        return value
    length = 1 << (len(value) - 1).bit_length()
    return [*value, *[value[-1]] * (length - len(value))]


@dataclass(frozen=True)
class _Parameter:
    """The source of an argument: a named value, or an item of a named list. This is not a tuple, because SQLAlchemy
    would expand a tuple."""

    name: str
    position: int | None = None


class _Compiled(NamedTuple):
    """A statement that was compiled for lists of particular lengths."""

    text: str
    parameters: Sequence[object]
    """One item for each argument: a `_Parameter`, or a value that is part of the statement itself."""
    columns: tuple[tuple[int, ...], tuple[int, ...]]
    """The positions of the columns that hold ids, and of those that hold booleans."""

    def arguments(self, values: Values) -> tuple[object, ...]:
        return tuple([_value(one, values) if type(one) is _Parameter else one for one in self.parameters])


def _value(parameter: _Parameter, values: Values) -> object:
    value = values[parameter.name]
    return value if parameter.position is None else cast("Sequence[object]", value)[parameter.position]


def _length(value: object) -> int | None:
    return len(value) if isinstance(value, (list, tuple)) else None


@lru_cache(maxsize=2_048)
def _compile(statement: Executable, dialect: Dialect, lengths: tuple[tuple[str, int | None], ...]) -> _Compiled:
    """Compile a statement. The result is cached per list length, because expanding 50 ids in the SQL text took 130 µs
    per call, a quarter of the cost of reading a page."""
    names = tuple(name for name, _ in lengths) if isinstance(statement, Insert) else None
    compiler = cast(SQLCompiler, cast(Any, statement).compile(dialect=dialect, column_keys=names))
    expanded = compiler.construct_expanded_state({name: _parameters(name, length) for name, length in lengths})
    columns = list(getattr(statement, "exported_columns", ()))
    uids = tuple(index for index, column in enumerate(columns) if column.type is UID)
    bools = tuple(index for index, column in enumerate(columns) if isinstance(column.type, Boolean))
    return _Compiled(expanded.statement, tuple(expanded.positional_parameters or ()), (uids, bools))


def _parameters(name: str, length: int | None) -> _Parameter | list[_Parameter]:
    return _Parameter(name) if length is None else [_Parameter(name, position) for position in range(length)]
