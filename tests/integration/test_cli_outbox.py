"""`doorstep outbox` lists, requeues and removes rejected events directly in the database, and audits these actions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.commands import doorstep
from tests.support.program import serving

FIRST, SECOND = "00112233-4455-7677-8899-aabbccddee01", "00112233-4455-7677-8899-aabbccddee02"
_INSERT = (
    "INSERT INTO doorstep_outbox (uid, org_uid, event_type, payload, options, created_at, refused_at, refusal)"
    " VALUES (?, x'00112233445566778899aabbccddeeff', 'order.paid', x'7b7d', '{}', 1, 2, 'no such organization')"
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The database of a stopped installation, with two rejected events."""
    with serving(tmp_path):
        pass
    (file,) = tmp_path.glob("**/*.db")
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for event_id in (FIRST, SECOND):
            connection.execute(_INSERT, (bytes.fromhex(event_id.replace("-", "")),))
        yield connection


def test_what_was_rejected_is_listed_with_its_reason(tmp_path: Path, database: sqlite3.Connection) -> None:
    ended = doorstep("outbox", "list", "--json", folder=tmp_path)
    assert ended.code == 0, ended
    (found,) = ended.lines
    assert [one["event_id"] for one in found["refused"]] == [FIRST, SECOND]
    assert {one["refusal"] for one in found["refused"]} == {"no such organization"}


def test_it_is_requeued_or_removed_and_the_audit_says_by_whom(tmp_path: Path, database: sqlite3.Connection) -> None:
    back = doorstep("outbox", "retry", FIRST, "--reason", "repaired", "--json", folder=tmp_path)
    assert (back.code, back.lines) == (0, [{"event_id": FIRST, "done": True}])
    assert doorstep("outbox", "discard", "--all", "--yes", folder=tmp_path).code == 0
    rows = database.execute("SELECT hex(uid), refused_at FROM doorstep_outbox").fetchall()
    assert rows == [(FIRST.replace("-", "").upper(), None)]
    lines = database.execute("SELECT * FROM doorstep_audit").fetchall()
    said = json.dumps([list(map(str, line)) for line in lines])
    for word in ("outbox.retry", "outbox.discard", "cli:", "repaired", FIRST, SECOND):
        assert word in said


@pytest.mark.usefixtures("database")
def test_which_events_must_be_said_and_they_must_be_rejected(tmp_path: Path) -> None:
    assert doorstep("outbox", "retry", folder=tmp_path).code == 2
    assert doorstep("outbox", "retry", FIRST, "--all", folder=tmp_path).code == 2
    assert doorstep("outbox", "discard", FIRST, folder=tmp_path).code == 2, "nobody can be asked here"
    unknown = doorstep("outbox", "retry", "00000000-0000-7000-8000-000000000000", folder=tmp_path)
    assert unknown.code == 3, unknown
