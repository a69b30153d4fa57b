"""A variant of `doorstep` that appends the query plan of every slow statement to the file named in BENCH_PLANS.

It covers the statements in `queries/`. Console pages run no other statements.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from doorstep.cli.main import run
from doorstep.stores.sql.postgres import connections as postgres
from doorstep.stores.sql.postgres.connections import Connection
from doorstep.stores.sql.queries.transaction import Rows, Step, prepare
from doorstep.stores.sql.sqlite import connections as sqlite

_PLANS = Path(os.environ.get("BENCH_PLANS", os.devnull))
_SLOW_MS = float(os.environ.get("BENCH_PLANS_MS", "10"))

_fetched, _run_step = sqlite._fetched, postgres.run_step


def _explained(connection: sqlite3.Connection, text: str, arguments: tuple[object, ...]) -> Rows:
    started = time.perf_counter()
    rows = _fetched(connection, text, arguments)
    taken = 1_000 * (time.perf_counter() - started)
    if taken >= _SLOW_MS and text.lstrip().startswith(("SELECT", "WITH")):
        plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", arguments).fetchall()
        _tell(taken, text, len(rows), [line[-1] for line in plan])
    return rows


async def _explained_step(connection: Connection, step: Step) -> Rows:
    started = time.perf_counter()
    rows = await _run_step(connection, step)
    taken = 1_000 * (time.perf_counter() - started)
    text, arguments, _, _ = prepare(step, postgres._DIALECT)
    if taken >= _SLOW_MS and len(arguments) == 1 and text.lstrip().startswith(("SELECT", "WITH")):
        plan = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS) {text}", *arguments[0])
        _tell(taken, text, len(rows), [line[0] for line in plan])
    return rows


def _tell(taken: float, text: str, rows: int, plan: list[str]) -> None:
    with _PLANS.open("a") as file:
        print(f"-- {taken:.1f} ms, {rows} rows: {' '.join(text.split())}", *plan, sep="\n    ", file=file)


sqlite._fetched = _explained
postgres.run_step = _explained_step

if __name__ == "__main__":
    run()
