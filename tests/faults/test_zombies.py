"""A worker is stopped past its lease and resumed: it still believes in its claims, and nobody else does."""

from __future__ import annotations

import time

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.checker import Verdict
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.evidence import Fault
from tests.faults.harness.installation import LEASE_SECONDS, Installation
from tests.faults.harness.trial import drain, judge, start_ledger
from tests.stretching import stretched

_ROUNDS = 3
_SEVERAL = 8
_TAKEN_OVER = "SELECT count(*) FROM doorstep_deliveries WHERE state = 'in_progress' AND token > 1"
_IN_HAND = "SELECT count(*) FROM doorstep_deliveries WHERE state = 'in_progress' AND worker LIKE '%-{pid}-%'"
_REPORTED_LOST = "SELECT finished_at - started_at FROM doorstep_attempts WHERE code = 'WORKER_LOST' AND late = 0"


def run_rounds(installation: Installation, rounds: int) -> Verdict:
    """Freeze a worker with claims in its hand; wake it while its successor is trying the same deliveries."""
    installation.receive("slow")
    installation.serve()
    installation.enrol("steady")
    zombie = installation.add_worker()
    ledger = start_ledger(installation, "steady=1", rate=150)
    faults = []
    for _ in range(rounds):
        time.sleep(1)
        await_count(installation, _IN_HAND.format(pid=zombie.pid))
        zombie.pause()
        faults.append(Fault(time.time(), "pause"))
        time.sleep(LEASE_SECONDS - 0.5)
        await_count(installation, _TAKEN_OVER)
        zombie.resume()
    ledger.stop()
    drain(installation, seconds_max=30)
    installation.stop()
    return judge(installation, faults)


def await_count(installation: Installation, question: str) -> None:
    """Until there are several: a single one may have ended before the other worker has its say."""
    deadline = time.monotonic() + 5
    while installation.database.rows(question)[0][0] < _SEVERAL and time.monotonic() < deadline:
        time.sleep(0.005)


def test_a_worker_stopped_past_its_lease_changes_nothing_and_its_work_is_picked_up_in_time(
    install: Install, database: Database
) -> None:
    verdict = run_rounds(install(database), _ROUNDS)
    spans = [span / 1_000_000 for (span,) in database.rows(_REPORTED_LOST)]
    print(f"\nzombies on {database.name}: N = {_ROUNDS} rounds; {verdict}")
    print(f"  {len(spans)} deliveries picked up {min(spans):.2f} to {max(spans):.2f} s after their claim")
    assert verdict.violations == [], str(verdict)
    assert verdict.late > 0, "no result came late: the test did not test anything"
    assert LEASE_SECONDS <= min(spans) and max(spans) <= LEASE_SECONDS + stretched(1)


def test_the_harness_catches_a_settle_without_a_token(install: Install, sqlite_database: SqliteDatabase) -> None:
    verdict = run_rounds(install(sqlite_database, program=program("settle-without-token")), rounds=2)
    print(f"\nsettle without token: {verdict}")
    assert any(violation.rule == "each attempt counts once" for violation in verdict.violations)
