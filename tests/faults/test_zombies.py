"""A worker is stopped past its lease and resumed: it still relies on its claims, but nobody else accepts them."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import pytest

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.checker import Verdict
from tests.faults.harness.controls import until_caught
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.evidence import Fault
from tests.faults.harness.installation import LEASE_SECONDS, Installation, await_condition
from tests.faults.harness.occasion import enough, in_time
from tests.faults.harness.trial import drain, judge, start_ledger
from tests.support.patience import PATIENCE_SECONDS
from tests.support.stretching import stretched

_ROUNDS = 10 if os.environ.get("TORTURE") else 2
_SEVERAL = 8
"""Several deliveries, because a single one may have ended before the other worker reports."""
_LONG_TRIES = {"DOORSTEP_LEASE_SECONDS": "4", "DOORSTEP_TIMEOUT_SECONDS": "3"}
"""On a busy machine, this gives a zombie enough time to report before its successor has finished."""
_ANSWERED_SECONDS = 0.4
"""A claim of this age has been answered, but a slow worker has not reported the result yet."""
_REST_SECONDS_MAX = 2.0
"""A broken build takes long to become idle. The rule that it violates is about deliveries that have ended."""
_TAKEN_OVER = "SELECT count(*) FROM doorstep_deliveries WHERE state = 'in_progress' AND token > 1"
_IN_HAND = """
SELECT count(*) FROM doorstep_deliveries
WHERE state = 'in_progress' AND worker LIKE '%:{pid}:%' AND claimed_at <= {claimed_before}
"""
_SAID = "SELECT count(*) FROM doorstep_attempts WHERE worker LIKE '%:{pid}:%' AND coalesce(code, '') <> 'WORKER_LOST'"
_REPORTED_LOST = "SELECT finished_at - started_at FROM doorstep_attempts WHERE code = 'WORKER_LOST' AND late = 0"


class Graveyard:
    """An installation with a worker that is repeatedly stopped past its lease."""

    def __init__(self, installation: Installation, held_seconds: float = 0.0) -> None:
        """`held_seconds` is how long the worker has held claims when it is stopped."""
        self._installation = installation
        self._receiver = installation.receive("slow")
        installation.serve()
        installation.enrol("steady")
        self._zombie = installation.add_worker()
        self._held_seconds = held_seconds
        self._faults: list[Fault] = []

    def run(self, rounds: int = 1, rest_seconds_max: float = PATIENCE_SECONDS) -> Verdict:
        """Wake the worker too late, `rounds` times, while events keep coming; then wait until all is idle; check."""
        ledger = start_ledger(self._installation, "steady=1", rate=150)
        for _ in range(rounds):
            self._wake_too_late()
        ledger.stop()
        drain(self._installation, rest_seconds_max)
        return judge(self._installation, self._faults)

    def _wake_too_late(self) -> None:
        """Freeze the worker while it holds claims; wake it while its successor attempts the same deliveries.

        The receiver is frozen meanwhile, so that the successor's attempts last as long as possible, and the zombie's
        results arrive in the middle of them.
        """
        while not self._freezes():
            self._zombie.resume()
        self._faults.append(Fault(time.time(), "pause"))
        said = self._count(_SAID)
        time.sleep(self._installation.lease_seconds - 0.5)
        with suppress(AssertionError):  # they were taken over one by one, so none was missed
            self._await(_SEVERAL, _TAKEN_OVER, stretched(self._installation.lease_seconds))
        self._receiver.pause()
        self._zombie.resume()
        self._await(said + 1, _SAID)
        self._receiver.resume()

    def _freezes(self) -> bool:
        """Freeze the worker while it holds claims, but not the database lock, which would prevent a takeover."""
        self._await(_SEVERAL, _IN_HAND)
        self._zombie.pause()
        return self._count(_IN_HAND) >= _SEVERAL and self._installation.database.writable()

    def _await(self, count: int, question: str, seconds_max: float = PATIENCE_SECONDS) -> None:
        await_condition(lambda: self._count(question) >= count, f"{count} of {question}", seconds_max)

    def _count(self, question: str) -> int:
        claimed_before = round((time.time() - self._held_seconds) * 1_000_000)
        asked = question.format(pid=self._zombie.pid, claimed_before=claimed_before)
        return int(self._installation.database.rows(asked)[0][0])


def test_a_worker_stopped_past_its_lease_changes_nothing_and_its_work_is_picked_up_in_time(
    install: Install, database: Database
) -> None:
    verdict = Graveyard(install(database)).run(_ROUNDS)
    spans = [span / 1_000_000 for (span,) in database.rows(_REPORTED_LOST)]
    print(f"\nzombies on {database.name}: N = {_ROUNDS} rounds; {verdict}")
    print(f"  {len(spans)} deliveries picked up {min(spans):.2f} to {max(spans):.2f} s after their claim")
    assert verdict.violations == [], str(verdict)
    assert min(spans) >= LEASE_SECONDS
    enough(verdict.late, "no result came late")
    in_time(max(spans) - LEASE_SECONDS, 1)


@pytest.mark.full
def test_the_harness_catches_a_settle_without_a_token(install: Install, sqlite_database: SqliteDatabase) -> None:
    installation = install(sqlite_database, settings=_LONG_TRIES, program=program("settle-without-token"))
    graveyard = Graveyard(installation, held_seconds=_ANSWERED_SECONDS)
    until_caught(
        lambda: graveyard.run(rest_seconds_max=_REST_SECONDS_MAX),
        lambda verdict: "each attempt counts once" in {rule for rule, _ in verdict.violations},
    )
