"""Writes notes while a reader keeps a checkpoint from completing, and prints the id of each committed note.

The disk may fail meanwhile; the printed notes must survive.

python -m tests.faults.halfway notes.db [careless]
"""

from __future__ import annotations

import sqlite3
import sys
from uuid import uuid4

from doorstep.stores.sql.sqlite import checkpoints
from doorstep.stores.sql.sqlite.connections import connect, connect_reader
from doorstep.stores.sql.sqlite.writer import WritingConnection

_TRIES = 20
_LONG = "x" * 3_500
"""So long that each note fills a page."""


def keep_note(writing: WritingConnection) -> None:
    note = str(uuid4())
    for _ in range(_TRIES):
        try:
            writing.opened().execute("INSERT INTO notes VALUES (?, ?)", (note, _LONG))
        except sqlite3.Error as error:
            writing.failed(error)
        else:
            print(f'{{"event_id":"{note}"}}', flush=True)
            return


def keep_notes(path: str) -> None:
    """Write notes before, during and after a read transaction, with checkpoints in between."""
    checkpoints.LOG_PAGES = 1
    writing = WritingConnection(path)
    for _ in range(2):
        keep_note(writing)
        reader = connect_reader(path)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM notes").fetchone()
        for _ in range(3):
            keep_note(writing)
        writing.checkpoint()
        reader.close()
        for _ in range(3):
            keep_note(writing)
            writing.checkpoint()


def be_careless() -> None:
    """Disable the rewrite of all pages after a disk error, and so trust that earlier checkpoints reached the file."""
    setattr(checkpoints, "rewrite_every_page", lambda connection: None)  # noqa: B010  a deliberate break


if __name__ == "__main__":
    if "careless" in sys.argv:
        be_careless()
    made = connect(sys.argv[1], create=True)
    made.execute("CREATE TABLE notes (id TEXT, body TEXT)")
    keep_notes(sys.argv[1])
