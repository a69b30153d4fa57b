"""Marks: a number under a name."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Table, Text

from doorstep.stores.sql.schema.columns import metadata

marks = Table(
    "doorstep_marks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""Numbers that only grow: `routing` (the version of the endpoints), and on SQLite the last `events` and
`deliveries` keys given out, so that a key is never used twice, not even after cleaning. And, on SQLite, until when
somebody holds each of the tasks of stores/protocol/tasks.py. `pipeline:…` is when a worker last said that it has that
pipeline."""

MARKS = ("routing", "events", "deliveries", "outbox", "roller", "watch", "meter")
"""The rows of `marks` in a new database, all at 0."""
