"""Every process is killed repeatedly, at any point, while events keep coming."""

from __future__ import annotations

import os
import time

import pytest

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.checker import Verdict
from tests.faults.harness.controls import until_caught
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.evidence import read_ledger
from tests.faults.harness.installation import CALM, Installation, await_condition
from tests.faults.harness.nemesis import kills
from tests.faults.harness.trial import drain, judge, ledger_path, run_trial, start_ledger

_TRIAL_SECONDS = 60 if os.environ.get("TORTURE") else 10
"""Every process is killed at least once, however short the trial."""
_ACKNOWLEDGED_MIN = 100


def test_nothing_acknowledged_is_lost_while_every_process_is_killed_over_and_over(
    install: Install, database: Database
) -> None:
    installation = install(database)
    installation.receive("ok", "flaky", "slow")
    installation.receive("dribble", "endless", "reset")
    installation.serve(workers=1)
    installation.enrol("plain", "fan", "hostile", "ordered")
    installation.add_worker()
    crashes = {name: hurt for name, hurt in database.faults(0.5).items() if name.startswith("kill")}
    types = "plain=12,fan=4,hostile=1,ordered=2"
    trial = run_trial(
        installation,
        kills(installation) | crashes,
        types=types,
        seconds=_TRIAL_SECONDS,
        until=lambda: acknowledged(installation) > _ACKNOWLEDGED_MIN,
    )
    print(f"\nkill -9 on {database.name}: {trial}")
    assert trial.clean, str(trial)
    assert trial.verdict.acknowledged > _ACKNOWLEDGED_MIN, str(trial)


def test_no_duplicates_without_faults(install: Install, database: Database) -> None:
    installation = install(database, settings=CALM)
    installation.receive("ok", "flaky", "slow")
    installation.serve()
    installation.enrol("plain", "fan")
    installation.add_worker()
    trial = run_trial(installation, {}, types="plain=12,fan=4", seconds=4, rate=300)
    print(f"\nno faults on {database.name}: {trial}")
    assert trial.clean, str(trial)
    assert trial.verdict.duplicates == 0 and trial.verdict.late == 0


@pytest.mark.full
def test_the_harness_catches_events_acknowledged_before_their_commit(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = install(sqlite_database, program=program("acknowledge-before-commit"))
    installation.receive("ok")
    installation.serve()
    installation.enrol("plain")
    until_caught(lambda: kill_after_an_answer(installation), lambda verdict: verdict.lost)


@pytest.mark.full
def test_the_harness_catches_events_that_overtake_others_with_the_same_ordering_key(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = install(sqlite_database, settings=CALM, program=program("forget-the-order"))
    installation.receive("flaky")
    installation.serve()
    installation.enrol("ordered")
    verdict = until_caught(lambda: send_for_a_second(installation), lambda verdict: verdict.violations)
    assert {violation.rule for violation in verdict.violations} == {"each is tried after those before it have ended"}


def kill_after_an_answer(installation: Installation) -> Verdict:
    """Send events, and kill the server as soon as it has acknowledged another one."""
    before = acknowledged(installation)
    ledger = start_ledger(installation, "plain=1", rate=200)
    await_condition(lambda: acknowledged(installation) > before, "an answer")
    installation.server.kill()
    ledger.stop()
    installation.await_ready()
    drain(installation)
    return judge(installation)


def acknowledged(installation: Installation) -> int:
    path = ledger_path(installation)
    return len(read_ledger(path).acknowledged) if path.exists() else 0


def send_for_a_second(installation: Installation) -> Verdict:
    ledger = start_ledger(installation, "ordered=1")
    time.sleep(1)
    ledger.stop()
    drain(installation)
    return judge(installation)
