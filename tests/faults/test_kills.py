"""Every process is killed over and over, at any point, while events keep coming."""

from __future__ import annotations

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.evidence import read_ledger
from tests.faults.harness.installation import CALM, Installation, await_condition
from tests.faults.harness.nemesis import kills
from tests.faults.harness.trial import drain, judge, ledger_path, run_trial, start_ledger


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
    trial = run_trial(installation, kills(installation) | crashes, types=types, seconds=15)
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
    ledger = start_ledger(installation, "plain=1", rate=200)
    for _ in range(2):
        kill_after_an_answer(installation)
    installation.await_ready()
    ledger.stop()
    drain(installation)
    verdict = judge(installation)
    print(f"\nacknowledge before commit: {verdict}")
    assert verdict.lost > 0


def test_the_harness_catches_events_that_overtake_others_with_the_same_ordering_key(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = install(sqlite_database, program=program("forget-the-order"))
    installation.receive("flaky")
    installation.serve()
    installation.enrol("ordered")
    trial = run_trial(installation, {}, types="ordered=1", seconds=2)
    print(f"\nforget the order: {trial}")
    assert {violation.rule for violation in trial.verdict.violations} == {
        "each is tried after those before it have ended"
    }


def kill_after_an_answer(installation: Installation) -> None:
    """Kill the server as soon as it has acknowledged something more."""
    before = len(read_ledger(ledger_path(installation)).acknowledged)
    await_condition(lambda: len(read_ledger(ledger_path(installation)).acknowledged) > before, "an answer")
    installation.server.kill()
