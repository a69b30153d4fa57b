"""The power fails: what a serving process wrote is played back up to any point, with only what had been synced."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.databases import SqliteDatabase
from tests.faults.harness.disk import ForgetfulDisk
from tests.faults.harness.recording import Answered, Step, Synced, read_steps, strace_command
from tests.faults.harness.trial import start_ledger

_CUTS = 400
_REQUESTS = 250


class Cut(NamedTuple):
    """One power cut: what had been acknowledged, and what was found."""

    acknowledged: set[str]
    found: set[str]
    integrity: str

    @property
    def lost(self) -> set[str]:
        return self.acknowledged - self.found


def record(install: Install, database: SqliteDatabase, *, broken: str | None = None, inject: str | None = None) -> list[Step]:
    """Serve under strace, take events and deliver them, and give back what was done to the disk."""
    trace = database.path.parent / "trace"
    data = SqliteDatabase(_folder(database.path.parent / "data"))
    installation = install(data, program=program(broken) if broken else ())
    installation.receive("ok", "flaky", "slow")
    installation.serve(wrapper=strace_command(trace, inject=inject))
    installation.enrol("plain", "fan")
    ledger = start_ledger(installation, "plain=3,fan=1", rate=0, count=_REQUESTS)
    while ledger.running:
        time.sleep(0.05)
    installation.server.end()
    return list(read_steps(trace, data.path.parent))


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def cuts(steps: Sequence[Step], folder: Path, count: int, seed: int = 1) -> Iterator[Cut]:
    """Cut the power at so many points, half of them right after an answer, where a lie would show."""
    chance = random.Random(seed)
    answers = [index for index, step in enumerate(steps) if isinstance(step, Answered)]
    points = {*chance.sample(answers, min(count // 2, len(answers))), *chance.choices(range(len(steps)), k=count // 2)}
    disk, acknowledged = ForgetfulDisk(), set[str]()
    for index, step in enumerate(steps):
        if isinstance(step, Answered):
            acknowledged.update(step.event_ids)
        else:
            disk.apply(step)
        if index in points:
            yield _open(disk.after_power_cut(chance), folder, set(acknowledged))


def _open(files: dict[str, bytes], folder: Path, acknowledged: set[str]) -> Cut:
    """Start SQLite on what was left, and look for complete events."""
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
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'doorstep_history'").fetchall())


_COMPLETE = """
SELECT e.uid FROM doorstep_events e
WHERE e.delivery_count > 0
  AND e.delivery_count = (SELECT count(*) FROM doorstep_deliveries d WHERE d.event_id = e.id)
"""


def _report(name: str, made: Sequence[Cut]) -> str:
    losing = sum(1 for cut in made if cut.lost)
    acknowledged = max(len(cut.acknowledged) for cut in made)
    return f"\n{name}: N = {len(made)} power cuts, {acknowledged} events acknowledged by the last, {losing} cuts lost any"


def test_no_acknowledged_event_is_lost_when_the_power_fails(
    install: Install, sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    steps = record(install, sqlite_database)
    made = list(cuts(steps, _folder(tmp_path / "found"), _CUTS))
    print(_report("power loss", made))
    assert max(len(cut.acknowledged) for cut in made) > _REQUESTS
    assert {cut.integrity for cut in made} == {"ok"}
    assert not any(cut.lost for cut in made)


def test_no_acknowledged_event_is_lost_when_syncs_fail_and_then_the_power(
    install: Install, sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    steps = record(install, sqlite_database, inject="fsync,fdatasync:error=EIO:when=60+12")
    failed = sum(1 for step in steps if isinstance(step, Synced) and not step.succeeded)
    made = list(cuts(steps, _folder(tmp_path / "found"), _CUTS))
    print(_report(f"{failed} failed syncs, then power loss", made))
    assert failed > 2
    assert {cut.integrity for cut in made} == {"ok"}
    assert not any(cut.lost for cut in made)


def test_the_harness_catches_commits_that_are_not_synced(
    install: Install, sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    steps = record(install, sqlite_database, broken="commit-without-sync")
    made = list(cuts(steps, _folder(tmp_path / "found"), _CUTS))
    print(_report("without sync", made))
    assert {cut.integrity for cut in made} == {"ok"}
    assert sum(1 for cut in made if cut.lost) > len(made) // 4
