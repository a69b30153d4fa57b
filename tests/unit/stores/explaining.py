"""PostgreSQL's explanation of a statement: its plan, and the number of pages it reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from doorstep.stores.sql.postgres.connections import Connection


async def plan_of(connection: Connection, statement: str, *arguments: object) -> dict[str, Any]:
    return await _explain(connection, "FORMAT JSON", statement, arguments)


async def buffers(connection: Connection, statement: str, *arguments: object) -> int:
    """The number of pages that a statement reads. The statement is executed and rolled back."""
    await connection.execute("BEGIN")
    try:
        plan = await _explain(connection, "ANALYZE, BUFFERS, FORMAT JSON", statement, arguments)
    finally:
        await connection.execute("ROLLBACK")
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan, parents first."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def _explain(
    connection: Connection, options: str, statement: str, arguments: tuple[object, ...]
) -> dict[str, Any]:
    answer = await connection.fetchval(f"EXPLAIN ({options}) {statement}", *arguments)
    return json.loads(answer)[0]["Plan"]  # type: ignore[no-any-return]
