"""The disk fills up: new events are refused, stored events stay readable, and freeing space is enough to resume."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.conftest import Install
from tests.faults.harness.databases import SqliteDatabase
from tests.faults.harness.evidence import Fault, read_ledger
from tests.faults.harness.installation import Installation, Reply, await_condition
from tests.faults.harness.occasion import in_time
from tests.faults.harness.trial import drain, judge, ledger_path, send_noted, start_ledger
from tests.support.patience import PATIENCE_SECONDS

_SIZE = 6 * 2**20
_BLOCK = 64 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "doorstep-test", str(folder)]
    mounted = subprocess.run(mounting, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"FULL DISK NOT TESTED: a small tmpfs cannot be mounted here ({mounted.stderr.strip()})")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def await_refusal(installation: Installation) -> Reply:
    """Send events until one is refused."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (reply := send_noted(installation, "plain", metadata={"filler": "x" * 2_000})).status == 202:
        assert time.monotonic() < deadline, "the disk is full, and events are still taken"
        time.sleep(0.02)
    return reply


def await_acceptance(installation: Installation) -> float:
    return await_condition(lambda: send_noted(installation, "plain").status == 202, "events to be taken again")


def acknowledged_event(installation: Installation) -> str:
    ledger = read_ledger(ledger_path(installation))
    return next(event_id for event_ids in ledger.acknowledged.values() for event_id in event_ids)


def test_a_full_disk_refuses_new_events_loses_none_and_resumes_by_itself(install: Install, small_disk: Path) -> None:
    database = SqliteDatabase(small_disk)
    installation = install(database)
    installation.receive("ok")
    installation.serve()
    installation.enrol("plain")
    ledger = start_ledger(installation, "plain=1", rate=400)
    time.sleep(1)
    ballast(small_disk, leave=256 * 1024)
    refusal = await_refusal(installation)
    time.sleep(2)
    ready, _ = installation.ask("GET", "/readyz")
    reading, _ = installation.ask("GET", f"/v1/events/{acknowledged_event(installation)}/status")
    subprocess.run(["mount", "-o", "remount,size=256m", str(small_disk)], check=True)
    seconds = await_acceptance(installation)
    ledger.stop()
    drain(installation)
    installation.stop()
    verdict = judge(installation, [Fault(0.0, "full disk")])
    retry_after = refusal.headers["Retry-After"]
    print(f"\nfull disk: refused {refusal.status}, Retry-After {retry_after}; resumed after {seconds:.2f} s; {verdict}")
    assert refusal.status in (503, 507) and retry_after
    assert (ready, reading) == (503, 200)
    assert verdict.violations == [], str(verdict)
    in_time(seconds, 10)


def ballast(folder: Path, *, leave: int) -> None:
    """Fill the disk, except for about `leave` bytes. The server keeps writing, and may take the rest meanwhile."""
    with suppress(OSError), (folder / "ballast").open("wb", buffering=0) as file:
        while (excess := free_bytes(folder) - leave) > 0:
            file.write(bytes(min(excess, _BLOCK)))


def free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
