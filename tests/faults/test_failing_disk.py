"""The database file cannot be synced, but its log can: Doorstep must notice that and accept nothing meanwhile."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tests.faults.conftest import Install
from tests.faults.harness.databases import SqliteDatabase
from tests.faults.harness.evidence import Fault
from tests.faults.harness.installation import Installation, Reply, await_condition
from tests.faults.harness.occasion import enough
from tests.faults.harness.trial import drain, judge, send_noted, start_ledger
from tests.support.patience import PATIENCE_SECONDS

_FAILURES = 8
"""The number of consecutive syncs that fail. A writer retries after 50 ms, 100 ms, 200 ms … up to one second."""


def failing_syncs(trace: Path, file: Path) -> list[str]:
    """A command prefix under which syncs of this one file fail: only some of them, and no other file's."""
    strace = shutil.which("strace")
    assert strace, "strace must be installed to make syncs fail"
    syncs = "fsync,fdatasync"
    faults = [f"trace={syncs}", f"inject={syncs}:error=EIO:when=2..{_FAILURES + 1}"]
    return [
        strace,
        "-f",
        "-q",
        "--seccomp-bpf",
        "-o",
        str(trace),
        "-P",
        str(file),
        *(word for fault in faults for word in ("-e", fault)),
    ]


def await_refusal(installation: Installation) -> Reply:
    """Send events until one is refused."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (reply := send_noted(installation, "plain", metadata={"filler": "x" * 2_000})).status == 202:
        assert time.monotonic() < deadline, "the file cannot be synced, and events are still taken"
    return reply


def test_a_file_that_cannot_be_synced_refuses_events_until_it_can_and_loses_none(
    install: Install, sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    installation = install(sqlite_database)
    installation.receive("ok")
    trace = tmp_path / "trace"
    installation.serve(wrapper=failing_syncs(trace, sqlite_database.path))
    installation.enrol("plain")
    ledger = start_ledger(installation, "plain=1", rate=200)
    refusal = await_refusal(installation)
    seconds = await_condition(lambda: send_noted(installation, "plain").status == 202, "events to be taken again")
    ledger.stop()
    drain(installation)
    installation.close()  # SIGTERM does not reach it through strace
    failed = trace.read_text().count("(INJECTED)")
    verdict = judge(installation, [Fault(0.0, "failed sync")] * failed)
    retry_after = refusal.headers["Retry-After"]
    print(
        f"\nN = {failed} failed syncs: refused {refusal.status}, Retry-After {retry_after}; back in {seconds:.2f} s; {verdict}"
    )
    assert refusal.status == 503 and retry_after
    assert verdict.violations == [], str(verdict)
    enough(failed >= _FAILURES, f"{failed} failed syncs")
