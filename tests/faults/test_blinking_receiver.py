"""A receiver fails for three seconds and is back. With default settings, so are we."""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.checker import Verdict
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.evidence import read_arrivals, read_lines
from tests.faults.harness.installation import Installation, await_condition
from tests.faults.harness.receiver import DOWN
from tests.faults.harness.trial import drain, judge, ledger_path, start_ledger
from tests.support.stretching import stretched

_DEFAULTS = {"DOORSTEP_LEASE_SECONDS": "60", "DOORSTEP_TIMEOUT_SECONDS": "30", "DOORSTEP_CONCURRENCY": "512"}
_DOWN_SECONDS = 3.0
_LAST_SECONDS_MAX = 4.0
"""A second, a quarter of the outage, and the time that the backlog takes, rounded up."""
_FRESH_SECONDS_MAX = 2.0
_FRESH = 200
_BROKEN_SECONDS_MAX = 20.0
"""How long to wait for a broken build, which needs minutes."""
_RETRIES = "SELECT max(retry_attempts) FROM doorstep_deliveries"


class Course(NamedTuple):
    """When events were acknowledged and first accepted by the receiver, by the wall clock that both processes share."""

    sent: dict[str, float]
    delivered: dict[str, float]
    back_at: float

    @property
    def owed(self) -> dict[str, float]:
        """The events that were sent before the receiver was back."""
        return {one: at for one, at in self.sent.items() if at <= self.back_at}

    @property
    def waits(self) -> list[float]:
        """How long fresh events waited: those sent after the first success, which closes the circuit."""
        closed_at = min((at for at in self.delivered.values() if at > self.back_at), default=float("inf"))
        return [self.delivered[one] - at for one, at in self.sent.items() if at > closed_at and one in self.delivered]

    @property
    def last_seconds(self) -> float:
        """How long after the return of the receiver the last of the owed events arrived; infinite if one is missing."""
        return max(self.delivered.get(one, float("inf")) for one in self.owed) - self.back_at


def read_course(installation: Installation, back_at: float) -> Course:
    lines = read_lines(ledger_path(installation))
    sent = {one: line["at"] for line in lines if line["line"] == "acknowledged" for one in line["event_ids"]}
    delivered: dict[str, float] = {}
    for arrival in read_arrivals(installation.folder / "receiver-1.arrivals"):
        if arrival.answer == 200:
            delivered.setdefault(arrival.event_id, arrival.at)
    return Course(sent, delivered, back_at)


def blink(installation: Installation, seconds_max: float) -> Course:
    """Let the receiver answer 500 for three seconds at 100 events a second, until enough fresh events have arrived."""
    installation.receive("blinking")
    installation.serve()
    installation.enrol("blink")
    ledger = start_ledger(installation, "blink=1", rate=100)
    await_condition(lambda: len(read_course(installation, 0.0).delivered) >= 100, "the first hundred events")
    down = installation.folder / DOWN
    down.touch()
    time.sleep(_DOWN_SECONDS)
    back_at = time.time()
    down.unlink()
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        course = read_course(installation, back_at)
        if course.last_seconds < float("inf") and len(course.waits) >= _FRESH:
            break
        time.sleep(0.1)
    ledger.stop()
    return read_course(installation, back_at)


def test_after_three_seconds_of_errors_everything_arrives_within_four_and_fresh_events_do_not_queue(
    install: Install, database: Database
) -> None:
    installation = install(database, settings=_DEFAULTS)
    course = blink(installation, seconds_max=60.0)
    drain(installation)
    installation.stop()
    verdict: Verdict = judge(installation)
    retries = database.rows(_RETRIES)[0][0]
    print(
        f"\nblink on {database.name}: last of {len(course.owed)} after {course.last_seconds:.2f} s; worst wait of "
        f"{len(course.waits)} fresh events {max(course.waits, default=0):.2f} s; retries used {retries}; {verdict}"
    )
    assert verdict.violations == [], str(verdict)
    assert len(course.waits) >= _FRESH
    assert course.last_seconds <= stretched(_LAST_SECONDS_MAX)
    assert max(course.waits) <= stretched(_FRESH_SECONDS_MAX)
    assert retries <= 1


@pytest.mark.full
def test_the_harness_catches_a_circuit_that_stays_open_for_minutes(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = install(sqlite_database, settings=_DEFAULTS, program=program("pause-for-minutes"))
    course = blink(installation, _BROKEN_SECONDS_MAX)
    missing = course.owed.keys() - course.delivered.keys()
    print(f"\n{len(missing)} of {len(course.owed)} events had not arrived after {_BROKEN_SECONDS_MAX:g} s")
    assert missing
