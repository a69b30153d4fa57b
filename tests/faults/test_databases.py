"""The database stops, freezes, ends all sessions or is locked; afterwards Doorstep recovers by itself."""

from __future__ import annotations

import os
import time

import pytest

from tests.faults.conftest import Install
from tests.faults.harness.databases import Database, PostgresDatabase, SqliteDatabase, hold_write_lock
from tests.faults.harness.evidence import Fault
from tests.faults.harness.installation import Installation, await_condition
from tests.faults.harness.occasion import enough, in_time
from tests.faults.harness.proxy import AnswerLosingProxy
from tests.faults.harness.trial import drain, judge, run_trial, send_noted, start_ledger
from tests.support.patience import PATIENCE_SECONDS

_RECOVERY_SECONDS_MAX = 10.0
_TRIAL_SECONDS = 60 if os.environ.get("TORTURE") else 8
"""Each fault is injected at least once, however short the trial."""
_LOAD_SECONDS = 3.0
_LOST_COMMITS_MIN = 3


def delivered_again(installation: Installation) -> float:
    """Send events until one is accepted, and wait until it is delivered; return how long both took."""
    started = time.monotonic()
    while (reply := send_noted(installation, "plain")).status != 202:
        assert time.monotonic() - started < PATIENCE_SECONDS, reply
        time.sleep(0.1)
    path = f"/v1/events/{reply.answer['event_id']}/status"
    await_condition(lambda: installation.ask("GET", path)[1].get("status") == "delivered", "a delivery")
    return time.monotonic() - started


def start(installation: Installation) -> Installation:
    installation.receive("ok", "flaky", "slow")
    installation.serve()
    installation.enrol("plain", "fan")
    installation.add_worker()
    return installation


def test_nothing_is_lost_while_the_database_fails_in_every_way(install: Install, database: Database) -> None:
    installation = start(install(database))
    trial = run_trial(installation, database.faults(1.5), types="plain=3,fan=1", seconds=_TRIAL_SECONDS)
    print(f"\ndatabase faults on {database.name}: {trial}")
    assert trial.clean, str(trial)
    assert [process.exits for process in installation.engines] == [[], []], "a process did not outlive the database"
    in_time(trial.recovery_seconds, _RECOVERY_SECONDS_MAX)


def test_everything_resumes_within_ten_seconds_after_the_database_returns(
    install: Install, postgres_database: PostgresDatabase
) -> None:
    installation = start(install(postgres_database))
    server, seconds = postgres_database.server, {}
    for name, mode in (("stopped", "fast"), ("crashed", "kill")):
        server.stop(mode)
        time.sleep(2)
        server.start()
        seconds[name] = delivered_again(installation)
    server.freeze()
    time.sleep(5)
    server.thaw()
    seconds["frozen"] = delivered_again(installation)
    print(f"\nresumed on PostgreSQL after it was: {seconds}")
    in_time(max(seconds.values()), _RECOVERY_SECONDS_MAX)


@pytest.mark.full
def test_a_foreign_lock_longer_than_the_busy_timeout_delays_and_loses_nothing(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = start(install(sqlite_database))
    ledger = start_ledger(installation, "plain=1", rate=100)
    time.sleep(2)
    fault = Fault(time.time(), "foreign lock")
    hold_write_lock(sqlite_database.path, 8)
    seconds = delivered_again(installation)
    time.sleep(1)
    ledger.stop()
    drain(installation)
    installation.stop()
    verdict = judge(installation, [fault])
    print(f"\nforeign lock: resumed after {seconds:.2f} s; {verdict}")
    assert verdict.violations == [], str(verdict)
    in_time(seconds, _RECOVERY_SECONDS_MAX)


def test_a_commit_whose_answer_is_lost_doubles_no_event(install: Install, postgres_database: PostgresDatabase) -> None:
    target = postgres_database.server.port
    with AnswerLosingProxy(target) as proxy:
        url = postgres_database.url.replace(f":{target}/", f":{proxy.port}/")
        installation = start(install(postgres_database, settings={"DOORSTEP_DATABASE_URL": url}))
        ledger = start_ledger(installation, "plain=3,fan=1", rate=150)
        proxy.share = 0.03
        time.sleep(_LOAD_SECONDS)
        await_condition(lambda: proxy.lost_commits >= _LOST_COMMITS_MIN, "answers to a COMMIT to be lost")
        proxy.share = 0.0
        ledger.stop()
        drain(installation)
        installation.stop()
    verdict = judge(installation, [Fault(0.0, "answer lost")] * proxy.lost_answers)
    print(f"\nlost answers: N = {proxy.lost_answers}, of which {proxy.lost_commits} to a COMMIT; {verdict}")
    assert verdict.violations == [], str(verdict)
    enough(proxy.lost_commits >= _LOST_COMMITS_MIN, f"{proxy.lost_commits} answers to a COMMIT were lost")
