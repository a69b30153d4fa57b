"""Prints the comparison as a Markdown table, for docs/explanation/comparison.md."""

from __future__ import annotations

from collections.abc import Mapping

from bench.rivals.race import Lap
from bench.rivals.roster import ROSTER
from bench.rivals.survival import Survival

_HEAD = (
    "",
    "jobs/s",
    "CPU of the worker, µs a job",
    "CPU of the server",
    "attempt log",
    "after kill -9",
    "a lost worker's jobs run again",
)


def print_table(laps: Mapping[str, Lap], fates: Mapping[str, Survival]) -> None:
    """Print the table, sorted by the total CPU per job, cheapest first."""
    print()
    _print_row(*_HEAD)
    _print_row(*("---" for _ in _HEAD))
    for contender in sorted((one for one in ROSTER if one.name in laps), key=lambda one: laps[one.name].cpu_us):
        lap = laps[contender.name]
        figures = (f"{lap.per_second:,.0f}", f"{lap.worker_us:,.0f}", f"{lap.server_us:,.0f}")
        _print_row(contender.name, *figures, contender.attempt_log, str(fates[contender.name]), contender.gives_back)


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)
