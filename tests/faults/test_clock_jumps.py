"""The machine's wall clock jumps forwards and back by hours: nothing is delivered early, nothing gets stuck."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.faults.conftest import Install
from tests.faults.harness.databases import Database
from tests.faults.harness.evidence import read_arrivals
from tests.faults.harness.installation import CALM, Installation
from tests.faults.harness.occasion import in_time
from tests.faults.harness.trial import drain, judge, send_noted, start_ledger

_LATER_SECONDS = 6.0


def fake_time_library() -> str:
    found = find_spec("libfaketime")
    if found is None or found.origin is None:
        pytest.skip("CLOCK JUMPS NOT TESTED: the libfaketime package is not installed")
    return str(next(Path(found.origin).parent.rglob("libfaketime.so.1")))


def settings(offset: Path) -> dict[str, str]:
    """Environment for a process whose wall clock follows the file; its monotonic clock is the real one."""
    return {
        "LD_PRELOAD": fake_time_library(),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def jump(offset: Path, to: str) -> None:
    offset.write_text(to)


def send_for_later(installation: Installation) -> tuple[str, float]:
    """Send an event that is due only in some seconds; return its id and that time."""
    at = datetime.now(UTC) + timedelta(seconds=_LATER_SECONDS)
    reply = send_noted(installation, "plain", deliver_at=at.isoformat())
    assert reply.status == 202, reply
    return str(reply.answer["event_id"]), at.timestamp()


def test_a_jump_of_the_wall_clock_delivers_nothing_early_and_leaves_nothing_stuck(
    install: Install, database: Database, tmp_path: Path
) -> None:
    offset = tmp_path / "offset"
    jump(offset, "+0")
    installation = install(database, settings=CALM)
    installation.engine_environment |= settings(offset)
    installation.receive("ok", "flaky", "slow")
    installation.serve()
    installation.enrol("plain", "fan")
    installation.add_worker()
    ledger = start_ledger(installation, "plain=1,fan=1", rate=60)
    event_id, later = send_for_later(installation)
    for to in ("+3h", "-3h", "+40d", "+0"):  # the process notices each jump within a second
        time.sleep(1.2)
        jump(offset, to)
    ledger.stop()
    seconds = drain(installation)
    installation.stop()
    verdict = judge(installation)
    arrived = [arrival.at for arrival in read_arrivals(*tmp_path.glob("*.arrivals")) if arrival.event_id == event_id]
    print(f"\nclock jumps on {database.name}: drained in {seconds:.1f} s; {verdict}")
    assert verdict.violations == [], str(verdict)
    assert verdict.duplicates == 0
    assert len(arrived) == 1 and later - 0.25 < arrived[0]
    in_time(arrived[0] - later, 3)
