"""The outbox, and what SQLite must refuse to put there."""

from __future__ import annotations

from sqlalchemy import Column, Identity, LargeBinary, Table, Text

from doorstep.stores.sql.schema.columns import INSTANT, KEY, UID, metadata, partial_index

POSTED = "refused_at IS NULL"

outbox = Table(
    "doorstep_outbox",
    metadata,
    Column("id", KEY, Identity(), primary_key=True),
    Column("uid", UID, nullable=False, unique=True),
    Column("org_uid", UID, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("options", Text, nullable=False),
    Column("created_at", INSTANT, nullable=False),
    Column("refused_at", INSTANT),
    Column("refusal", Text),
    partial_index("doorstep_outbox_posted", ("id",), POSTED),
)
"""What programs posted in their own transactions, until it is forwarded. The only table that they write to, so it names
nothing inside: a sender need not read anything. Rows are removed by `uid`: SQLite gives the `id` of a removed row again.
Those that can never be accepted are set aside, `refused_at`, with the reason."""


def outbox_ddl(dialect: str) -> list[str]:
    """Refuses rows of the outbox that nobody could read, in the transaction that writes them; only SQLite needs it.

    It takes any value in any column. A row whose ids are none could not even be set aside, and held up all behind it.
    Triggers rather than CHECK constraints, because their error can say what is wanted; they cost a sender 1.7 µs of 27 a row.
    """
    if dialect != "sqlite":
        return []
    refusal = (
        "a row of doorstep_outbox has a uid and an org_uid of 16 bytes, an event_type that is text, a payload and options"
        " in bytes or text, and created_at in microseconds; send(connection=…) writes it so"
    )
    ending = f"ON doorstep_outbox WHEN NOT ({_READABLE_POSTING}) BEGIN SELECT RAISE(ABORT, '{refusal}'); END"
    columns = "uid, org_uid, event_type, payload, options, created_at"
    return [
        f"CREATE TRIGGER doorstep_outbox_insert BEFORE INSERT {ending}",
        f"CREATE TRIGGER doorstep_outbox_update BEFORE UPDATE OF {columns} {ending}",
    ]


_READABLE_POSTING = (
    "typeof(NEW.uid) = 'blob' AND length(NEW.uid) = 16 AND typeof(NEW.org_uid) = 'blob' AND length(NEW.org_uid) = 16"
    " AND typeof(NEW.event_type) = 'text' AND typeof(NEW.created_at) = 'integer'"
    " AND (typeof(NEW.payload) = 'blob' OR typeof(NEW.payload) = 'text')"
    " AND (typeof(NEW.options) = 'text' OR typeof(NEW.options) = 'blob')"
)
