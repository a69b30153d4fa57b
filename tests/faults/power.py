"""Power cuts: records a server process, and rebuilds its disk as it would be after a power cut at any point."""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tests.faults.harness.databases import SqliteDatabase
from tests.faults.harness.disk import ForgetfulDisk
from tests.faults.harness.installation import Installation, await_condition
from tests.faults.harness.recording import Answered, Step, read_steps, strace_command
from tests.faults.harness.trial import start_ledger

DOORSTEP = (sys.executable, "-m", "doorstep")


class Cut(NamedTuple):
    """One power cut: what had been acknowledged before it, and what was found afterwards."""

    acknowledged: set[str]
    found: set[str]
    integrity: str

    @property
    def lost(self) -> set[str]:
        return self.acknowledged - self.found


def record(
    folder: Path, *, requests: int, seed: int = 1, program: Sequence[str] = DOORSTEP, inject: str | None = None
) -> list[Step]:
    """Serve under strace, accept and deliver events, and return what happened to the disk meanwhile."""
    data = SqliteDatabase(_new(folder / "data"))
    installation = Installation(folder, data, program=program)
    try:
        installation.receive("ok", "flaky", "slow")
        installation.serve(wrapper=strace_command(folder / "trace", inject=inject))
        installation.enrol("plain", "fan")
        ledger = start_ledger(installation, "plain=3,fan=1", rate=0, count=requests, seed=seed)
        await_condition(lambda: not ledger.running, "all events to be sent")
    finally:
        installation.close()
    return list(read_steps(folder / "trace", data.path.parent))


def cut_power(steps: Sequence[Step], folder: Path, count: int, seed: int = 1) -> Iterator[Cut]:
    """Cut the power at about `count` points, half of them right after an answer, where a false one would show."""
    chance, found = random.Random(seed), _new(folder / "found")
    answers = [index for index, step in enumerate(steps) if isinstance(step, Answered)]
    points = {*chance.sample(answers, min(count // 2, len(answers))), *chance.choices(range(len(steps)), k=count // 2)}
    disk, acknowledged = ForgetfulDisk(), set[str]()
    for index, step in enumerate(steps):
        if isinstance(step, Answered):
            acknowledged.update(step.event_ids)
        else:
            disk.apply(step)
        if index in points:
            yield _look(disk.after_power_cut(chance), found, set(acknowledged))


def _look(files: dict[str, bytes], folder: Path, acknowledged: set[str]) -> Cut:
    """Open the remaining files with SQLite, and look for complete events."""
    for leftover in folder.iterdir():
        leftover.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    connection = sqlite3.connect(folder / "doorstep.db")
    try:
        integrity = str(connection.execute("PRAGMA integrity_check").fetchone()[0])
        found = {str(UUID(bytes=uid)) for (uid,) in connection.execute(_COMPLETE)} if _has_tables(connection) else set()
    finally:
        connection.close()
    return Cut(acknowledged, found, integrity)


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'doorstep_deliveries'").fetchall())


_COMPLETE = """
SELECT e.uid FROM doorstep_events e
WHERE e.delivery_count > 0
  AND e.delivery_count = (SELECT count(*) FROM doorstep_deliveries d WHERE d.event_id = e.id)
"""


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder
