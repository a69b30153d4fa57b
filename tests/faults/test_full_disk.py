"""The disk fills up: new events are refused, old ones stay, reading goes on, and room is all it takes to resume."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Install
from tests.faults.harness.databases import SqliteDatabase, open_deliveries
from tests.faults.harness.evidence import read_ledger
from tests.faults.harness.installation import Installation
from tests.faults.harness.trial import drain, judge, ledger_path, start_ledger

_SIZE = 6 * 2**20
_FULL_SECONDS_MAX = 30.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "doorstep-test", str(folder)]
    mounted = subprocess.run(mounting, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"FULL DISK NOT TESTED: a small tmpfs cannot be mounted here ({mounted.stderr.strip()})")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def await_refusal(installation: Installation) -> tuple[int, str | None]:
    """Wait until an event is refused; the status and what it says about trying again."""
    deadline = time.monotonic() + _FULL_SECONDS_MAX
    while time.monotonic() < deadline:
        event = {"event_type": "plain", "payload": {"probe": "x" * 2_000}}
        status, headers, _ = installation.ask_in_full("POST", "/v1/events", event)
        if status != 202:
            return status, {name.lower(): value for name, value in headers.items()}.get("retry-after")
        time.sleep(0.02)
    raise AssertionError("the disk is full, and events are still taken")


def acknowledged_event(installation: Installation) -> str:
    ledger = read_ledger(ledger_path(installation))
    return next(event_id for event_ids in ledger.acknowledged.values() for event_id in event_ids)


def resumed(installation: Installation) -> float:
    """How long until events are taken again."""
    started = time.monotonic()
    while time.monotonic() - started < _FULL_SECONDS_MAX:
        if installation.ask("POST", "/v1/events", {"event_type": "plain", "payload": {"probe": 1}})[0] == 202:
            break
        time.sleep(0.05)
    return time.monotonic() - started


def test_a_full_disk_refuses_new_events_loses_none_and_resumes_by_itself(install: Install, small_disk: Path) -> None:
    database = SqliteDatabase(small_disk)
    installation = install(database)
    installation.receive("ok")
    installation.serve()
    installation.enrol("plain")
    ledger = start_ledger(installation, "plain=1", rate=400)
    time.sleep(1)
    ballast(small_disk, leave=256 * 1024)
    status, retry_after = await_refusal(installation)
    time.sleep(2)
    reading, _ = installation.ask("GET", f"/v1/events/{acknowledged_event(installation)}/status")
    subprocess.run(["mount", "-o", "remount,size=256m", str(small_disk)], check=True)
    seconds = resumed(installation)
    ledger.stop()
    drain(installation)
    installation.stop()
    verdict = judge(installation)
    print(f"\nfull disk: refused with {status}, Retry-After {retry_after}; resumed after {seconds:.2f} s; {verdict}")
    assert status in (503, 507) and retry_after
    assert reading == 200
    assert seconds < 10
    assert verdict.lost == 0 and not open_deliveries(database)
    assert not [v for v in verdict.violations if v.rule not in _PROBES_ARE_STRANGERS], str(verdict)


_PROBES_ARE_STRANGERS = ("stored bytes are the bytes sent", "nothing is received that was not sent", "one event for one send")
"""Events sent by `await_refusal` and `resumed` are not in the ledger."""


def ballast(folder: Path, *, leave: int) -> None:
    """Fill the disk up to a rest."""
    room = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "ballast").write_bytes(bytes(max(0, room - leave)))
