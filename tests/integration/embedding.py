"""Runs programs that embed Doorstep as users write them: each is a file in its own folder, run by a real Python
process."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import clean_environment
from tests.support.warm_start import Process, run_python, start_python

DATABASE = "app.db"


def write(folder: Path, name: str, code: str) -> None:
    (folder / f"{name}.py").write_text(code)


def run(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run `python …` until it exits, assert that it succeeded without errors, and return its output."""
    done = run_python(arguments, cwd=folder, env=clean_environment() | dict(environment or {}))
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr, done.stderr.decode()
    return done.stdout.decode()


@contextmanager
def started(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Started]:
    """Start `python …` in the background; on leaving the context, end it, by force if necessary."""
    with (folder / "out").open("ab") as out, (folder / "err").open("ab") as err:
        process = start_python(
            arguments,
            cwd=folder,
            env=clean_environment() | dict(environment or {}),
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    try:
        yield Started(process, folder)
    finally:
        process.kill()
        process.wait()


class Started:
    """A running program."""

    def __init__(self, process: Process, folder: Path) -> None:
        self.process = process
        self._folder = folder

    @property
    def said(self) -> str:
        """Everything that the program wrote to stdout and stderr."""
        return (self._folder / "out").read_text() + (self._folder / "err").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the program this signal, wait until it exits, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


def rows(folder: Path, statement: str, database: str = DATABASE) -> list[tuple[Any, ...]]:
    """Query the program's SQLite database; returns no rows if the database or the table does not exist yet."""
    if not (folder / database).exists():
        return []
    with closing(sqlite3.connect(folder / database)) as connection:
        try:
            return connection.execute(statement).fetchall()
        except sqlite3.OperationalError:
            return []  # the tables do not exist yet


def event_types(folder: Path) -> list[str]:
    return [row[0] for row in rows(folder, "SELECT event_type FROM doorstep_events ORDER BY id")]


def states(folder: Path, database: str = DATABASE) -> list[str]:
    return [row[0] for row in rows(folder, "SELECT state FROM doorstep_deliveries ORDER BY id", database)]
