"""Handlers that crash, hang, use up memory or exit: only their own deliveries die, not those of neighbours."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tests.faults.conftest import Install
from tests.faults.harness.databases import Database
from tests.faults.harness.installation import CALM, Installation
from tests.faults.harness.occasion import in_time
from tests.faults.harness.trial import drain
from tests.faults.poison_handlers_app import HANG_SECONDS, MEMORY_MB, RETRIES

ATTEMPTS = RETRIES + 1
_ROUNDS = 20
_PAUSE_SECONDS = 0.2
_NEIGHBOURS = ("neighbour", "bystander")
_LATE_SECONDS = 3.0
"""A limit for a machine that is busy starting processes. Normally a neighbour takes a few hundredths of a second."""

RAISED = {
    "system_exit": ("HANDLER_ERROR", "The handler raised SystemExit."),
    "interrupt": ("HANDLER_ERROR", "The handler raised KeyboardInterrupt."),
    "recursion": ("HANDLER_ERROR", "The handler raised RecursionError."),
    "hang": ("TIMEOUT", f"The handler did not return within {HANG_SECONDS:g} s."),
}
CRASHED = {
    "exit": ("HANDLER_CRASHED", "The handler's process ended itself with exit code 9."),
    "segfault": ("HANDLER_CRASHED", "The handler's process was ended by SIGSEGV (segmentation fault)."),
    "memory": ("HANDLER_CRASHED", f"The handler needed more memory than the {MEMORY_MB} MB that it may use."),
}
HARMLESS = ("rubbish", "harmless")
_ROWS = """
SELECT e.event_type, d.state, d.attempt, d.code, d.reason, d.settled_at - e.created_at
FROM doorstep_deliveries d JOIN doorstep_events e ON e.id = d.event_id ORDER BY e.id
"""


class Ended(NamedTuple):
    event_type: str
    state: str
    attempts: int
    code: str | None
    reason: str | None
    micros: int


def poisoned(installation: Installation, deeds: Mapping[str, object]) -> list[Ended]:
    """Send one event for each deed, while neighbours keep coming; return how all of them ended."""
    installation.serve()
    worker = installation.add_worker("--app", "tests.faults.poison_handlers_app:doorstep")
    _send(installation, *_NEIGHBOURS * 2)
    drain(installation)  # starts the neighbours' processes before the poison arrives
    _send(installation, *(f"poison.{deed}" for deed in deeds), *(f"poison.{deed}" for deed in HARMLESS))
    for _ in range(_ROUNDS):
        _send(installation, *_NEIGHBOURS)
        time.sleep(_PAUSE_SECONDS)
    drain(installation)
    assert worker.exits == [], "the worker died"
    return [Ended(*row) for row in installation.database.rows(_ROWS)]


def _send(installation: Installation, *event_types: str) -> None:
    events = [{"event_type": event_type, "payload": {}} for event_type in event_types]
    assert installation.ask("POST", "/v1/events/batch", {"events": events})[0] == 202


def judge(database: Database, ended: list[Ended], deeds: Mapping[str, tuple[str, str]]) -> None:
    dead = {row.event_type.removeprefix("poison."): row for row in ended if row.state == "dead"}
    assert {deed: (row.code, row.reason) for deed, row in dead.items()} == deeds
    assert {row.attempts for row in dead.values()} == {ATTEMPTS}
    neighbours = [row for row in ended if row.event_type in _NEIGHBOURS]
    slowest = max(row.micros for row in neighbours[2 * len(_NEIGHBOURS) :]) / 1e6
    print(f"\npoison on {database.name}: {len(dead)} dead; {len(neighbours)} neighbours, the slowest {slowest:.2f} s")
    assert len(neighbours) == len(_NEIGHBOURS) * (_ROUNDS + 2)
    assert {(row.state, row.attempts) for row in neighbours} == {("delivered", 1)}
    in_time(slowest, _LATE_SECONDS)


def test_isolated_every_kind_of_poison_is_a_dead_letter_with_its_reason_and_the_neighbours_notice_nothing(
    install: Install, database: Database
) -> None:
    deeds = {**RAISED, **CRASHED}
    ended = poisoned(install(database, settings=CALM), {**deeds, "close_output": None})
    judge(database, ended, deeds)
    spared = [row for row in ended if row.event_type.startswith("poison.") and row.state != "dead"]
    assert {(row.event_type, row.state, row.attempts) for row in spared} == {
        (f"poison.{deed}", "delivered", 1) for deed in ("close_output", *HARMLESS)
    }


@pytest.mark.full
def test_in_the_worker_itself_what_is_raised_or_hangs_costs_its_attempts_and_the_neighbours_notice_nothing(
    install: Install, database: Database
) -> None:
    """A crash is left out here, because it would end the worker: see test_poison.py."""
    ended = poisoned(install(database, settings={**CALM, "POISON": "shared"}), RAISED)
    judge(database, ended, RAISED)
