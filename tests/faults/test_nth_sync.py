"""The n-th sync fails, and then the power: acknowledged notes survive. Repeated for each n, while a run has n syncs."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.harness.disk import ForgetfulDisk
from tests.faults.harness.recording import Answered, Step, Synced, read_steps, strace_command

_CUTS_PER_ANSWER = 3
_LAST_OF_CREATION = 9
"""The number of syncs that create the file and its table. Before that, nothing can be acknowledged."""


class Found(NamedTuple):
    """The result of one run."""

    failed: list[str]
    """The files whose sync failed."""
    safe: int
    cuts: int
    losing: int
    """Power cuts after which an acknowledged note was missing, or the file was damaged."""


def fail_sync(number: int, folder: Path, *arguments: str) -> Found:
    """Run tests/faults/halfway.py with one failing sync, and cut the power after every answer."""
    data, found = folder / "data", folder / "found"
    for new in (folder, data, found):
        new.mkdir()
    command = strace_command(folder / "trace", inject=f"fsync,fdatasync:error=EIO:when={number}")
    writing = [sys.executable, "-m", "tests.faults.halfway", str(data / "notes.db"), *arguments]
    subprocess.run([*command, *writing], check=True, capture_output=True, cwd=Path(__file__).parents[2])
    steps = list(read_steps(folder / "trace", data))
    cuts = list(cut_power(steps, found))
    failed = [step.name for step in steps if isinstance(step, Synced) and not step.succeeded]
    answers = sum(isinstance(step, Answered) for step in steps)
    return Found(failed, answers, len(cuts), sum(not whole for whole in cuts))


def cut_power(steps: Iterable[Step], folder: Path) -> Iterator[bool]:
    """For each power cut, whether all notes that were acknowledged before it are found."""
    chance, disk, safe = random.Random(1), ForgetfulDisk(), set[str]()
    for step in steps:
        if not isinstance(step, Answered):
            disk.apply(step)
            continue
        safe.update(step.event_ids)
        for _ in range(_CUTS_PER_ANSWER):
            yield safe <= notes_in(disk.after_power_cut(chance), folder)


def notes_in(files: dict[str, bytes], folder: Path) -> set[str]:
    """The notes in an intact file; none if the file is damaged."""
    for leftover in folder.iterdir():
        leftover.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    connection = sqlite3.connect(folder / "notes.db")
    try:
        whole = connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {note for (note,) in connection.execute("SELECT id FROM notes")} if whole else set()
    except sqlite3.DatabaseError:
        return set()
    finally:
        connection.close()


def fail_each_sync(folder: Path, *arguments: str) -> list[Found]:
    runs = []
    for number in count(_LAST_OF_CREATION + 1):
        runs.append(fail_sync(number, folder / f"{number}", *arguments))
        if not runs[-1].failed:
            return runs
    raise AssertionError("unreachable")


@pytest.mark.full
def test_whichever_sync_fails_nothing_that_was_safe_is_lost_when_the_power_fails_too(tmp_path: Path) -> None:
    runs = fail_each_sync(tmp_path)
    of_file = sum("notes.db" in run.failed for run in runs)
    cuts = sum(run.cuts for run in runs)
    print(f"\nN = {len(runs) - 1} failed syncs, {of_file} of them of the file, {cuts} cuts")
    assert of_file >= 5
    assert {run.safe for run in runs} == {14}
    assert sum(run.losing for run in runs) == 0


@pytest.mark.full
def test_the_harness_catches_a_file_that_is_believed_to_have_what_was_moved_before_its_sync_failed(
    tmp_path: Path,
) -> None:
    runs = fail_each_sync(tmp_path, "careless")
    assert sum(run.losing for run in runs) > 0
