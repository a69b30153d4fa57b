"""Runs the scripts of the cold verbs on a connection, for one organization or for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.postgres_ddl import ALL_ORGS, SCOPE
from doorstep.stores.sql.queries.transaction import Rows, Step, Transaction, prepare

T = TypeVar("T")

_DIALECT = PGDialect_asyncpg()  # type: ignore[no-untyped-call]


def begin(org_key: int | None, *, reading: bool) -> str:
    """Open a transaction that sees one organization's rows, or everyone's.

    A reading one sees one picture however many statements it has. What is written is planned each time anew: it is
    rare, and a plan kept from when the tables were small would outlive that.
    """
    scope = ALL_ORGS if org_key is None else int(org_key)
    if reading:
        return f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL {SCOPE} = '{scope}'"
    return f"BEGIN; SET LOCAL {SCOPE} = '{scope}'; SET LOCAL plan_cache_mode = force_custom_plan"


async def run(connection: Connection, make_script: Callable[[], Transaction[T]]) -> T:
    """Run a script to its end, in the surrounding transaction."""
    script = make_script()
    try:
        step = next(script)
        while True:
            step = script.send(await run_step(connection, step))
    except StopIteration as end:
        return cast(T, end.value)
    finally:
        script.close()


async def run_step(connection: Connection, step: Step) -> Rows:
    """Run one step of a script, or a step by itself."""
    text, arguments, _, _ = prepare(step, _DIALECT)  # asyncpg gives UUIDs and booleans as the model has them
    if not arguments:
        return []
    if len(arguments) > 1:
        await connection.executemany(text, arguments)
        return []
    return cast(Rows, await connection.fetch(text, *arguments[0]))
