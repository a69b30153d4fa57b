"""The machine's wall clock is set while deliveries are under way: signatures follow it, nothing is delivered twice, and
nothing gets stuck. On PostgreSQL, the database's clock counts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.conftest import Install
from tests.faults.harness.checker import Verdict
from tests.faults.harness.databases import Database
from tests.faults.harness.evidence import SET_BACK, Fault, read_arrivals
from tests.faults.harness.installation import CALM, Installation, await_condition
from tests.faults.harness.trial import drain, judge, start_ledger
from tests.support.stretching import stretched

_TOLD = "the clock was set"


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


def run_under_jumps(installation: Installation, offset: Path, jumps: Sequence[str]) -> Verdict:
    """Send while the wall clock jumps from one offset to the next. Each must show in the signatures and be told by the
    server, which looks at its clock about once a second."""
    installation.engine_environment |= settings(offset)
    installation.receive("ok", "flaky", "slow")
    installation.serve()
    installation.enrol("plain", "fan")
    installation.add_worker()
    ledger = start_ledger(installation, "plain=1,fan=1", rate=40)
    faults = []
    for told, (before, to) in enumerate(pairwise([jumps[0], *jumps])):
        jump(offset, to)
        if int(to) < int(before):
            faults.append(Fault(time.time(), SET_BACK))
        await_condition(lambda to=to: abs(last_age(installation) + int(to)) <= 2, f"signatures at {to} s")  # type: ignore[misc]
        await_condition(lambda told=told: installation.server.said.count(_TOLD) >= told, f"{told} jumps told")  # type: ignore[misc]
    ledger.stop()
    seconds = drain(installation)
    installation.stop()
    verdict = judge(installation, faults)
    print(f"\nclock jumps on {installation.database.name}: drained in {seconds:.1f} s; {verdict}")
    return verdict


def last_age(installation: Installation) -> float:
    """How old the signature of the newest request was, by the receiver's clock, in seconds."""
    arrivals = read_arrivals(*installation.folder.glob("*.arrivals"))
    return arrivals[-1].at - arrivals[-1].signed_at if arrivals else math.inf


def test_a_machine_that_starts_ten_minutes_off_and_is_corrected_signs_with_the_right_time_and_delivers_once(
    install: Install, sqlite_database: Database, tmp_path: Path
) -> None:
    offset = tmp_path / "offset"
    jump(offset, "-600")
    installation = install(sqlite_database, settings=CALM)
    verdict = run_under_jumps(installation, offset, ["-600", "+0"])
    assert verdict.violations == [], str(verdict)
    assert verdict.duplicates == 0
    assert installation.server.said.count(_TOLD) == 1


@pytest.mark.full
def test_jumps_of_an_hour_in_both_directions_cause_no_second_delivery_and_leave_nothing_stuck(
    install: Install, sqlite_database: Database, tmp_path: Path
) -> None:
    offset = tmp_path / "offset"
    jump(offset, "+0")
    installation = install(sqlite_database, settings=CALM)
    verdict = run_under_jumps(installation, offset, ["+0", "+3600", "-3600", "+0"])
    assert verdict.violations == [], str(verdict)
    assert verdict.duplicates == 0


@pytest.mark.full
def test_on_postgresql_the_clock_of_a_machine_may_jump_without_any_effect(
    install: Install, postgres_database: Database, tmp_path: Path
) -> None:
    offset = tmp_path / "offset"
    jump(offset, "+0")
    installation = install(postgres_database, settings=CALM)
    installation.engine_environment |= settings(offset)
    installation.receive("ok", "flaky", "slow")
    installation.serve()
    installation.enrol("plain", "fan")
    ledger = start_ledger(installation, "plain=1,fan=1", rate=40)
    for to in ("+3h", "-3h", "+40d", "+0"):  # the process notices each jump within a second
        time.sleep(1.2)
        jump(offset, to)
    ledger.stop()
    drain(installation)
    installation.stop()
    verdict = judge(installation)
    assert verdict.violations == [], str(verdict)
    assert verdict.duplicates == 0
    arrivals = read_arrivals(*tmp_path.glob("*.arrivals"))
    assert max(abs(arrival.at - arrival.signed_at) for arrival in arrivals) < stretched(3)


@pytest.mark.full
def test_a_process_that_was_suspended_past_its_leases_signs_with_the_right_time_and_loses_nothing(
    install: Install, sqlite_database: Database, tmp_path: Path
) -> None:
    installation = install(sqlite_database, settings={"DOORSTEP_LEASE_SECONDS": "4", "DOORSTEP_TIMEOUT_SECONDS": "3"})
    installation.receive("slow")
    server = installation.serve()
    installation.enrol("steady")
    ledger = start_ledger(installation, "steady=1", rate=60)
    await_condition(lambda: len(read_arrivals(*tmp_path.glob("*.arrivals"))) > 50, "deliveries")
    server.pause()
    suspended_at = time.time()
    time.sleep(2 * installation.lease_seconds)
    server.resume()
    resumed_at = time.time()
    await_condition(lambda: read_arrivals(*tmp_path.glob("*.arrivals"))[-1].at > resumed_at + 1, "deliveries again")
    ledger.stop()
    drain(installation)
    installation.stop()
    verdict = judge(installation, [Fault(suspended_at, "pause")])
    print(f"\nsuspended for {2 * installation.lease_seconds:.0f} s: {verdict}")
    assert verdict.violations == [], str(verdict)
    fresh = [one for one in read_arrivals(*tmp_path.glob("*.arrivals")) if one.at > resumed_at + 1]
    assert max(abs(arrival.at - arrival.signed_at) for arrival in fresh) < stretched(3)
