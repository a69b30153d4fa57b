"""Every process is killed over and over, at any point, while events keep coming."""

from __future__ import annotations

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.installation import CALM
from tests.faults.harness.nemesis import kills
from tests.faults.harness.trial import run_trial


def test_nothing_acknowledged_is_lost_while_every_process_is_killed_over_and_over(
    install: Install, database: Database
) -> None:
    installation = install(database)
    installation.receive("ok", "flaky", "slow")
    installation.receive("dribble", "endless", "reset")
    installation.serve(workers=1)
    installation.enrol("plain", "fan", "hostile")
    installation.add_worker()
    crashes = {name: hurt for name, hurt in database.faults(0.5).items() if name in ("crash", "backend killed")}
    trial = run_trial(installation, kills(installation) | crashes, seconds=15)
    print(f"\nkill -9 on {database.name}: {trial}")
    assert trial.clean, str(trial)
    assert trial.verdict.acknowledged > 100, str(trial)


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


def test_the_harness_catches_events_acknowledged_before_their_commit(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = install(sqlite_database, program=program("acknowledge-before-commit"))
    installation.receive("ok")
    installation.serve()
    installation.enrol("plain")
    faults = {name: hurt for name, hurt in kills(installation).items() if name == "kill serve"}
    trial = run_trial(installation, faults, types="plain=1", seconds=5)
    print(f"\nacknowledge before commit: {trial}")
    assert trial.verdict.lost > 0
