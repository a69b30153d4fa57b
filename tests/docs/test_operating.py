"""The backup commands of docs/how-to/operating.md work: a running program is backed up and restored."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from doorstep.encryption import new_secret_key
from tests.docs.pages import HOW_TO, fences, section
from tests.support.builders import unused
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres_server import PostgresServer, find_binaries
from tests.support.program import Program, clean_environment, running, serving, wait_for

OPERATING = HOW_TO / "operating.md"
ADMIN = {"DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8"}


def test_a_backup_of_sqlite_taken_while_it_runs_is_restored_with_its_secrets(tmp_path: Path) -> None:
    back_up, restore = blocks("backup/")
    with serving(tmp_path, environment=ADMIN) as program:
        event_id = an_event_that_waits(program)
        run(back_up, tmp_path)
        lost = an_event_that_waits(program)
    run(restore, tmp_path)
    with serving(tmp_path, environment=ADMIN) as program:
        assert tried_again(program, event_id) == "CONNECTION"
        assert program.get(f"/v1/events/{lost}").status == 404, "it came after the backup"


def test_a_dump_of_postgresql_taken_while_it_runs_is_restored_with_its_secrets(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    (dump,), (restore,) = blocks("pg_dump -"), blocks("pg_restore")
    settings = ADMIN | {"DOORSTEP_SECRET_KEY": new_secret_key()}
    source, target = (place(postgres_server, name) for name in ("docs_source", "docs_target"))
    with serving(tmp_path, environment=settings | source) as program:
        event_id = an_event_that_waits(program)
        run(dump, tmp_path, source | with_programs())
    run(restore, tmp_path, target | with_programs())
    with serving(tmp_path, environment=settings | target) as program:
        assert tried_again(program, event_id) == "CONNECTION"


@pytest.mark.full
def test_the_control_without_its_secret_key_a_backup_is_not_whole(tmp_path: Path) -> None:
    back_up, restore = blocks("backup/")
    with serving(tmp_path, environment=ADMIN) as program:
        an_event_that_waits(program)
        run(back_up, tmp_path)
    run(restore, tmp_path)
    with running("serve", folder=tmp_path, environment=ADMIN | {"DOORSTEP_SECRET_KEY": new_secret_key()}) as program:
        assert program.wait() == 2
        assert "is not the key that encrypted the secrets" in "".join(program.err)


@pytest.mark.full
def test_the_control_a_plain_dump_of_postgresql_is_refused_as_the_page_says(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    source = place(postgres_server, "docs_plain")
    with serving(tmp_path, environment=ADMIN | source | {"DOORSTEP_SECRET_KEY": new_secret_key()}):
        refused = shell('pg_dump "$DOORSTEP_DATABASE_URL"', tmp_path, source | with_programs())
    assert refused.returncode != 0 and "row-level security" in refused.stderr


def an_event_that_waits(program: Program) -> str:
    """Send an event to an endpoint with an encrypted secret, whose receiver is down; wait until it is in the retry
    queue."""
    program.post("/v1/endpoints", {"name": unused("shop"), "url": "http://127.0.0.1:9/"})
    event = {"event_type": "order.paid", "payload": {"order": 42}}
    event_id: str = program.post("/v1/events", event).json["event_id"]
    wait_for(lambda: program.get("/v1/retry-queue").json["deliveries"])
    return event_id


def tried_again(program: Program, event_id: str) -> str:
    """Retry the restored event and return its error code. CONNECTION means that its payload and its secret could be
    read."""
    event = program.get(f"/v1/events/{event_id}").json
    (delivery,) = event["deliveries"]
    assert event["payload"] == {"order": 42}
    path = f"/v1/deliveries/{delivery['delivery_id']}/attempts"
    before = len(program.get(path).json["attempts"])
    assert program.post(f"/v1/events/{event_id}/retry").status == 202
    wait_for(lambda: len(program.get(path).json["attempts"]) > before)
    code: str = program.get(path).json["attempts"][-1]["error_code"]
    return code


def blocks(word: str) -> list[str]:
    found = [code for code in fences(OPERATING, "sh") if word in code and code in section(OPERATING, "Backups")]
    assert found, word
    return found


def place(server: PostgresServer, database: str) -> dict[str, str]:
    server.drop_database(database)
    server.create_database(database)
    return {"DOORSTEP_DATABASE_URL": server.url(database)}


def with_programs() -> dict[str, str]:
    """A PATH with `pg_dump` and `pg_restore` in the same version as the server."""
    return {"PATH": f"{find_binaries()}:{os.environ['PATH']}"}


def run(code: str, folder: Path, environment: Mapping[str, str] = {}) -> None:
    done = shell(f"set -eu\n{code}", folder, environment)
    assert done.returncode == 0, done.stderr


def shell(code: str, folder: Path, environment: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", code],
        cwd=folder,
        env=clean_environment() | dict(environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
