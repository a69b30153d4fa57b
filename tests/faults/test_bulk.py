"""Bulk retries of dead letters, through kills, restarts and several processes: each letter is retried exactly once.

TORTURE=1 retries 100,000 of them.
"""

from __future__ import annotations

import json
import os
import time

import pytest

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.evidence import Fault
from tests.faults.harness.installation import CALM, Installation, await_condition
from tests.faults.harness.occasion import enough
from tests.faults.harness.trial import drain, judge
from tests.faults.letters import BulkEvidence, Operation, bulk_evidence, bury, violations

_LETTERS = 100_000 if os.environ.get("TORTURE") else 1_500
_FEW = 600
_VERY_FEW = 10
_RATE = 200
_UNHURRIED: dict[str, object] = {} if os.environ.get("TORTURE") else {"rate_per_second": 300}
"""Slow enough that the operation is still running whenever its process is killed."""
_WATCHED_SECONDS = 1.0
_FREEZES_MAX = 15
_IN_FLIGHT_MAX = 100
"""More deliveries than one operation has in flight at one endpoint: at most 25 waiting and 64 in progress."""
_RETRIED = "(SELECT count(*) FROM doorstep_history WHERE note LIKE 'retried by %')"
_WRITTEN_NOT_DONE = f"SELECT {_RETRIED} = 0 AND max(version) > 0 FROM doorstep_bulks"
_WORKERS = "SELECT count(DISTINCT worker) FROM doorstep_attempts WHERE number = 2"


def test_every_letter_is_retried_exactly_once_though_the_process_is_killed_midway_twice(
    install: Install, database: Database
) -> None:
    installation = with_letters(install(database), _LETTERS)
    operation = Operation(installation, **_UNHURRIED)
    faults = [kill_once_taken(installation, operation, _LETTERS * share // 10) for share in (2, 6)]
    check_end(installation, operation, "finished", faults)


@pytest.mark.full
def test_orders_to_pause_and_to_cancel_outlive_the_process_they_were_given_to(
    install: Install, database: Database
) -> None:
    installation = with_letters(install(database), _FEW)
    operation = Operation(installation, rate_per_second=_RATE)
    operation.await_taken(_FEW // 4)
    paused = operation.steer("pause")
    kills = [kill_server(installation)]
    time.sleep(_WATCHED_SECONDS)
    assert (operation.seen()["state"], operation.seen()["taken"]) == ("paused", paused["taken"])
    operation.steer("resume")
    operation.await_taken(_FEW // 2)
    cancelled = operation.steer("cancel")
    kills.append(kill_server(installation))
    evidence = check_end(installation, operation, "cancelled", kills)
    states = [state for _, state in evidence.letters.values()]
    assert paused["taken"] < cancelled["taken"] == evidence.bulk["taken"] < _FEW
    assert states.count("dead") == _FEW - cancelled["taken"]


@pytest.mark.full
def test_others_go_on_while_a_process_is_frozen_and_no_letter_is_retried_twice_when_it_wakes(
    install: Install, database: Database
) -> None:
    installation = with_letters(install(database, settings=CALM), _FEW, workers=2)
    operation = Operation(installation, rate_per_second=_RATE)
    operation.await_taken(_FEW // 4)
    enough(
        any(goes_on_without_server(installation) for _ in range(_FREEZES_MAX)), "nobody went on, however often it froze"
    )
    evidence = check_end(installation, operation, "finished", [])
    assert evidence.bulk["progress"] == f"{_FEW}/{_FEW} succeeded, 0 failed"
    enough(database.rows(_WORKERS)[0][0] >= 2, "one worker did everything")


@pytest.mark.full
def test_the_harness_catches_progress_that_is_written_apart_from_the_act(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = with_letters(install(sqlite_database, program=program("progress-apart-from-act")), _VERY_FEW)
    operation = Operation(installation)
    await_condition(lambda: sqlite_database.rows(_WRITTEN_NOT_DONE)[0][0], "progress without an act")
    kill_server(installation)
    operation.await_end()
    drain(installation)
    found = violations(bulk_evidence(installation, operation))
    print(f"\nprogress apart from act: {len(found)} violations, such as {found[:2]}")
    assert any("was retried 0 times" in one for one in found)


def with_letters(installation: Installation, count: int, workers: int = 0) -> Installation:
    installation.receive("mending")
    installation.serve()
    installation.enrol("letter")
    bury(installation, count)
    for _ in range(workers):
        installation.add_worker()
    return installation


def kill_once_taken(installation: Installation, operation: Operation, count: int) -> Fault:
    operation.await_taken(count)
    kill = kill_server(installation)
    bulk = operation.seen()
    enough(bulk["taken"] < bulk["total"], "it was over before the kill")
    return kill


def kill_server(installation: Installation) -> Fault:
    """Kill the only process, and wait until its successor is ready."""
    installation.server.kill()
    fault = Fault(time.time(), "kill serve")
    installation.await_ready()
    return fault


def goes_on_without_server(installation: Installation) -> bool:
    """Whether the operation goes on while the server is frozen, perhaps with the lock of the whole database."""
    before = taken_by_now(installation)
    installation.server.pause()
    time.sleep(_WATCHED_SECONDS)
    gone_on = taken_by_now(installation) > before + _RATE // 4
    installation.server.resume()
    return gone_on


def taken_by_now(installation: Installation) -> int:
    (document,) = installation.database.rows("SELECT document FROM doorstep_bulks")[0]
    return int(json.loads(document)["taken"])


def check_end(installation: Installation, operation: Operation, state: str, faults: list[Fault]) -> BulkEvidence:
    """Wait for the end of the operation, then check the promises about bulk operations and all other promises."""
    operation.await_end()
    drain(installation)
    evidence = bulk_evidence(installation, operation)
    installation.stop()
    verdict = judge(installation, faults, _IN_FLIGHT_MAX)
    print(f"\nbulk retry on {installation.database.name}: {evidence.bulk['progress']}; {verdict}")
    assert violations(evidence) == []
    assert verdict.violations == [], str(verdict)
    assert verdict.duplicates == 0 or faults
    assert evidence.bulk["state"] == state
    return evidence
