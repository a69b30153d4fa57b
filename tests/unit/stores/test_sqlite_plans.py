"""No hot statement reads a table that grows with history: each finds its rows by a key or by a small partial index."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from types import ModuleType

import pytest
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.functions import FunctionElement

from doorstep.model.rollup import FIGURES
from doorstep.stores.sql.queries import (
    accounts,
    actions,
    bulk,
    deliveries,
    documents,
    endpoints,
    events,
    figures,
    moves,
    retention,
)
from doorstep.stores.sql.queries.transaction import Step, prepare
from doorstep.stores.sql.sqlite import accept, batches, claim, settle
from doorstep.stores.sql.sqlite.connections import migrate
from tests.support.matrix import each_case

SMALL_INDEXES = (
    *("doorstep_deliveries_pending", "doorstep_deliveries_in_progress"),
    *("doorstep_bulks_live", "doorstep_circuits_troubled"),
)
"""These indexes may be scanned from the start: lanes stop at the first row, workers limit the deliveries in progress,
live bulk operations are few, and so are circuits that are not closed."""
SMALL_TABLES = ("doorstep_variables", "doorstep_orgs", "doorstep_endpoints", "doorstep_counters")
WIDTHS = {"ADD_EVENTS": 16, "ADD_PAYLOADS": 3, "ADD_DELIVERIES": 10, "ADD_IDEMPOTENCY_KEYS": 7, "ADD_ATTEMPTS": 22}
WIDTHS |= {
    "ADD_SEARCH_VALUES": 4,
    "ADD_CLAIMED_DELIVERIES": 14,
    "ADD_HISTORY": 8,
    "ADD_INCIDENTS": 2,
    "ADD_COUNTS": 4 + len(FIGURES),
}
LEFT_OUT = ("_MOVE", "_LOCK_GROUPS", "_LOCK_ITS_GROUPS", "_LOCK_THEIR_GROUPS", "_CUSTOM_PLAN")
"""Only PostgreSQL executes these statements."""


def statements_of(module: ModuleType) -> list[tuple[str, str]]:
    """The statements that a module of hot store methods executes: its public constants in capitals."""
    texts = [(name, value) for name, value in vars(module).items() if name.isupper() and isinstance(value, str)]
    return [(name, _filled(name, value)) for name, value in texts if not name.startswith("_")]


def _filled(name: str, statement: str) -> str:
    if "{rows}" not in statement:
        return statement
    row = f"({', '.join('?' * WIDTHS[name])})"
    return statement.format(rows=f"{row}, {row}")


HOT = [pair for module in (accept, claim, settle, batches) for pair in statements_of(module)]


def cold_statements() -> Iterator[tuple[str, str]]:
    """The complete statements of the transactions: the private constants. Public constants are fragments."""
    for module in (
        accounts,
        bulk,
        documents,
        retention,
        events,
        moves,
        actions,
        deliveries,
        endpoints,
        figures,
    ):
        for name, value in vars(module).items():
            statement = value.statement if isinstance(value, moves.Effect) else value
            whole = isinstance(statement, Executable) and not isinstance(statement, FunctionElement)
            if whole and name.startswith("_") and not name.startswith(LEFT_OUT):
                yield name, _compiled(statement)
    for anywhere in (False, True):
        yield f"sums, {anywhere=}", _compiled(figures._sums_of_endpoints(FIGURES, anywhere))
        yield f"steps, {anywhere=}", _compiled(figures._steps_of_endpoints(FIGURES, anywhere))
    yield "steps of all", _compiled(figures._steps_of_whole_org(FIGURES, True))
    yield "steps of an organization", _compiled(figures._steps_of_whole_org(FIGURES, False))


def _compiled(statement: Executable) -> str:
    names = re.findall(r":(\w+)", str(statement))
    lists = re.findall(r"POSTCOMPILE_(\w+)", str(statement))
    values: dict[str, object] = {name: 1 for name in names} | {name: [1, 2] for name in lists}
    return prepare(Step(statement, (values,)), sqlite.dialect(paramstyle="qmark")).text


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("plans") / "doorstep.db"
    migrate(str(path))
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def scans(connection: sqlite3.Connection, statement: str) -> list[str]:
    """The plan lines that scan a whole Doorstep table or index, except small ones."""
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    arguments = [None] * (max(numbered) if numbered else statement.count("?"))
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", arguments)]
    return [line for line in plan if _is_large_scan(line, statement)]


def _is_large_scan(line: str, statement: str) -> bool:
    match = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", line)
    if match is None or match[2] in SMALL_INDEXES:
        return False
    table = re.search(rf"(doorstep_\w+) (?:AS )?{match[1]}\b", statement)
    name = match[1] if match[1].startswith("doorstep_") else table[1] if table else ""
    return bool(name) and name not in SMALL_TABLES


@each_case(("name", "statement"), HOT, ids=[name for name, _ in HOT])
def test_no_hot_statement_scans_a_table(connection: sqlite3.Connection, name: str, statement: str) -> None:
    assert scans(connection, statement) == []


COLD = list(cold_statements())


@each_case(("name", "statement"), COLD, ids=[name for name, _ in COLD])
def test_no_cold_statement_scans_a_table(connection: sqlite3.Connection, name: str, statement: str) -> None:
    assert scans(connection, statement) == []


@each_case(
    "statement",
    [
        "SELECT id FROM doorstep_deliveries WHERE worker = ?",
        "SELECT d.id FROM doorstep_deliveries d JOIN doorstep_events e ON e.id = d.event_id WHERE d.attempt > ?",
        "SELECT id FROM doorstep_deliveries ORDER BY id",
    ],
)
def test_a_statement_that_does_scan_a_table_is_caught(connection: sqlite3.Connection, statement: str) -> None:
    assert scans(connection, statement) != []


def test_every_hot_verb_is_looked_at() -> None:
    assert {"DUE", "DUE_FORCED", "TAKE", "SETTLE", "UPDATE_EVENTS", "ADD_EVENTS", "LANES", "EXPIRED"} <= {
        name for name, _ in HOT
    }


@each_case("statement", [accept.BLOCK, dict(COLD)["_FIRSTS"]], ids=["BLOCK", "_FIRSTS"])
def test_those_before_a_delivery_in_its_line_are_found_by_their_own_index(
    connection: sqlite3.Connection, statement: str
) -> None:
    arguments = [None] * statement.count("?")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", arguments)]
    assert any("doorstep_deliveries_ordering (endpoint_id=? AND ordering_key=?" in line for line in plan), plan
