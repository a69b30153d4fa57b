"""Ticks: what a write adds to the figures, kept in its own transaction. See schema/rollup.py for the shard."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import text

from doorstep.clock import Instant
from doorstep.model.rollup import FIGURES, Span
from doorstep.stores.sql.cold.script import Script, each
from doorstep.stores.tally import Tally

TICK_KEY = "org_id, endpoint_id, minute, shard"
GENERATIONS = 64
"""How many shards a connection to PostgreSQL has; see postgres/ticking.py."""
SHARD = f"pg_backend_pid() * {GENERATIONS}"


def tick_text(source: str, figures: Sequence[str] = FIGURES) -> str:
    """Add to the ticks what `source` gives: the columns of their key, and these figures."""
    added = ", ".join(f"{name} = doorstep_ticks.{name} + excluded.{name}" for name in figures)
    return f"INSERT INTO doorstep_ticks ({TICK_KEY}, {', '.join(figures)}) {source} ON CONFLICT ({TICK_KEY}) DO UPDATE SET {added}"


_VALUES = f"VALUES (:org, :endpoint, :at_minute, {{shard}}, {', '.join(f':{name}' for name in FIGURES)})"
_TICK = {
    "sqlite": text(tick_text(_VALUES.format(shard="0"))),
    "postgresql": text(tick_text(_VALUES.format(shard=SHARD))),
}


def tick(tally: Tally, at: Instant) -> Script[None]:
    """Count what the transaction of this script does, under the minute of `at`."""
    minute = Span.MINUTE.start(at)
    rows = [
        {"org": org, "endpoint": endpoint, "at_minute": minute, **_NOTHING, **figures}
        for (org, endpoint), figures in tally.rows.items()
    ]
    for dialect, statement in _TICK.items():
        yield each(statement, rows, dialect)


_NOTHING = dict.fromkeys(FIGURES, 0)
