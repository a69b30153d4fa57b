"""The program itself: startup, output, and shutdown."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from doorstep.encryption import new_secret_key
from tests.support.builders import unused
from tests.support.commands import doorstep
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port
from tests.support.postgres_server import PostgresServer
from tests.support.program import ADMIN_KEY, Program, running, serving, wait_for
from tests.support.receiver import Receiver


def send(program: Program, key: str | None = ADMIN_KEY) -> str:
    answer = program.post("/v1/events", {"event_type": "order.paid", "payload": {"order": 1}}, key=key)
    assert answer.status == 202, answer.body
    event_id: str = answer.json["event_id"]
    return event_id


def add_endpoint(program: Program, receiver: Receiver, **more: object) -> str:
    answer = program.post("/v1/endpoints", {"name": unused("shop"), "url": receiver.url, **more})
    assert answer.status == 201, answer.body
    endpoint_id: str = answer.json["endpoint_id"]
    return endpoint_id


def status(program: Program, event_id: str) -> str:
    found: str = program.get(f"/v1/events/{event_id}/status").json["status"]
    return found


def wait_until_delivered(program: Program, event_id: str) -> None:
    wait_for(lambda: status(program, event_id) == "delivered")


# -- starting --------------------------------------------------------------------------------------------------


def test_the_first_start_shows_where_it_is_its_key_and_a_command_that_works(tmp_path: Path) -> None:
    with serving(tmp_path, admin_key=None) as program:
        command = wait_for(lambda: re.search(r"^  curl .*$", "\n".join(program.err), re.MULTILINE))
        assert program.url.startswith("http://127.0.0.1:")
        assert f"Its data is in {tmp_path}/data" in "\n".join(program.err)
        assert program.printed_key is not None
        answer = subprocess.run(
            ["/bin/sh", "-c", command[0]], capture_output=True, check=True, timeout=PATIENCE_SECONDS
        ).stdout
        assert b'"verdict":"accepted"' in answer
        assert not any(program.printed_key in line for line in program.out), "the key is not in the log"


def test_the_key_is_shown_on_the_first_start_only_and_goes_on_working(tmp_path: Path) -> None:
    with serving(tmp_path, admin_key=None) as program:
        key = wait_for(lambda: program.printed_key)
        event_id = send(program, key)
    with serving(tmp_path, admin_key=None) as program:
        assert program.printed_key is None
        assert program.get(f"/v1/events/{event_id}", key=key).status == 200


def test_a_bootstrap_key_that_was_revoked_stays_revoked_and_each_start_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as program:
        mine = program.post("/v1/keys", {"name": "mine", "role": "admin"}).json["key"]
        (bootstrap,) = [key for key in program.get("/v1/keys").json["keys"] if key["name"] == "bootstrap"]
        assert program.request("DELETE", f"/v1/keys/{bootstrap['key_id']}", key=mine).status == 204
    with serving(tmp_path) as program:
        assert program.get("/v1/keys").status == 401
        assert program.get("/v1/keys", key=mine).status == 200
    said = [line for line in program.out + program.err if "was revoked" in line]
    assert len(said) == 1 and "DOORSTEP_ADMIN_KEY" in said[0], said


def test_a_key_that_nobody_has_seen_is_not_made_by_a_migration(tmp_path: Path) -> None:
    assert doorstep("migrate", "--database", "sqlite:///data/doorstep.db", folder=tmp_path).code == 0
    with serving(tmp_path, admin_key=None) as program:
        assert wait_for(lambda: program.printed_key)


def test_a_worker_that_comes_first_shows_the_key_that_it_makes(tmp_path: Path) -> None:
    with running("worker", folder=tmp_path) as worker:
        wait_for(lambda: any("delivers from" in line for line in worker.err))
        key = wait_for(lambda: worker.printed_key)
    with serving(tmp_path, admin_key=None) as program:
        assert program.printed_key is None
        send(program, key)


def test_the_secrets_beside_the_data_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    (key_file,) = [path for path in (tmp_path / "data").iterdir() if "key" in path.name]
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600


def test_the_log_on_standard_output_is_json_lines_and_nothing_else(tmp_path: Path) -> None:
    with serving(tmp_path) as program:
        send(program)
        wait_for(lambda: program.facts("status_transition"))
    assert all(line.startswith('{"@timestamp"') for line in program.out)


def test_text_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path, environment={"DOORSTEP_LOG_FORMAT": "text"}) as program:
        send(program)
        wait_for(lambda: any("status transition" in line for line in program.out))
        assert not any(line.startswith("{") for line in program.out)


# -- refusing to start -----------------------------------------------------------------------------------------


def refused(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """The exit code and the single error line of a program that refuses to start."""
    with running(*arguments, folder=folder, environment=environment) as program:
        code = program.wait()
    assert "Traceback" not in "\n".join(program.err + program.out)
    (sentence,) = program.err
    return code, sentence


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, sentence = refused(tmp_path, "serve", "--port", str(port))
    assert code == 1
    assert sentence == (
        f"doorstep: cannot listen at 127.0.0.1 port {port}: Address already in use; "
        "stop the program that uses it, or choose another with --host and --port"
    )
    assert not (tmp_path / "data").exists(), "a start that fails leaves nothing behind"


@pytest.mark.parametrize("command", ["serve", "worker", "migrate"])
def test_a_bad_setting_is_one_sentence_that_names_it(tmp_path: Path, command: str) -> None:
    code, sentence = refused(tmp_path, command, DOORSTEP_LEASE_SECONDS="10", DOORSTEP_TIMEOUT_SECONDS="30")
    assert code == 2
    assert sentence.startswith(
        "doorstep: lease_seconds must be greater than timeout_seconds by 1 or more, got 10 and 30"
    )
    code, sentence = refused(tmp_path, command, DOORSTEP_RETRY_DELAY="1")
    assert (code, sentence.partition(";")[0]) == (2, "doorstep: DOORSTEP_RETRY_DELAY is not a setting")


def test_a_bad_option_is_one_sentence_that_names_it(tmp_path: Path) -> None:
    assert refused(tmp_path, "serve", "--port", "99999")[0] == 2
    code, sentence = refused(tmp_path, "serve", "--database", "mysql://me:c4n4ry@db/x")
    assert (code, "database_url must be" in sentence, "c4n4ry" in sentence) == (2, True, False)


def test_a_host_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    code, sentence = refused(tmp_path, "serve", "--host", "no such host")
    assert (code, "cannot listen at no such host" in sentence) == (1, True)


def test_a_database_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_bytes(b"these are my notes, not a database. " * 100)
    for command in ("serve", "worker", "migrate"):
        code, sentence = refused(tmp_path, command, "--database", "sqlite:///notes.db", DOORSTEP_PORT="0")
        assert code in (1, 2)
        assert "notes.db" in sentence
    assert (tmp_path / "notes.db").read_bytes().startswith(b"these are my notes")


def test_a_database_that_cannot_be_reached_is_one_sentence(tmp_path: Path) -> None:
    url = f"postgresql://me:c4n4ry@127.0.0.1:{free_port()}/doorstep"
    secret = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    code, sentence = refused(tmp_path, "serve", "--port", "0", "--database", url, DOORSTEP_SECRET_KEY=secret)
    assert code in (1, 2)
    assert "127.0.0.1" in sentence and "cannot reach the database" in sentence
    assert "c4n4ry" not in sentence


def test_a_database_that_postgresql_refuses_is_one_sentence_with_its_reason(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    url = postgres_server.url("postgres")
    host = url.partition("@")[2].partition("/")[0]
    for database, reason, remedy in (
        (f"nobody:c4n4ry@{host}/postgres", 'role "nobody" does not exist', "create the role"),
        (f"{url[13:].partition('@')[0]}@{host}/nothing", 'database "nothing" does not exist', "CREATE DATABASE"),
        (f"me:c4n4ry@{host}/postgres?sslmode=require", "it does not offer TLS", "sslmode"),
        ("me:c4n4ry@no-such-host.invalid/x", "the name of its host cannot be resolved", "check the URL"),
        (f"me:c4n4ry@127.0.0.1:{free_port()}/x", "nothing listens at its host and port", "check the URL"),
    ):
        for command in ("worker", "migrate"):
            given = ("--database", f"postgresql://{database}")
            code, sentence = refused(tmp_path, command, *given, DOORSTEP_SECRET_KEY=new_secret_key())
            assert code in (2, 5, 1), sentence
            assert reason in sentence and remedy in sentence and "c4n4ry" not in sentence


@pytest.mark.parametrize("app", ["nothing", "no_such_module:doorstep", "json:dumps", "json:no_such_name"])
def test_an_app_that_cannot_be_loaded_is_one_sentence(tmp_path: Path, app: str) -> None:
    code, sentence = refused(tmp_path, "worker", "--app", app)
    assert (code, "--app" in sentence) == (2, True)


# -- ending ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_what_is_in_flight(tmp_path: Path, receiver: Receiver, number: int) -> None:
    with serving(tmp_path) as program:
        add_endpoint(program, receiver)
        receiver.hold.clear()
        event_id = send(program)
        wait_for(lambda: receiver.received)
        program.signal(number)
        wait_for(lambda: not _listens(program))
        receiver.hold.set()
        assert program.wait() == 0
    with serving(tmp_path) as program:
        assert status(program, event_id) == "delivered"
    assert len(receiver.received) == 1


def _listens(program: Program) -> bool:
    try:
        program.get("/healthz")
    except OSError:
        return False
    return True


def test_a_stop_does_not_wait_longer_than_its_grace(tmp_path: Path, receiver: Receiver) -> None:
    with serving(tmp_path, environment={"DOORSTEP_GRACE_SECONDS": "0.5"}) as program:
        add_endpoint(program, receiver)
        receiver.hold.clear()
        event_id = send(program)
        wait_for(lambda: receiver.received)
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
    receiver.hold.set()
    with serving(tmp_path) as program:
        assert status(program, event_id) in ("queued", "delivered"), "nothing is lost"


def test_a_second_signal_ends_it_at_once_but_an_echo_of_the_first_does_not(tmp_path: Path, receiver: Receiver) -> None:
    with serving(tmp_path, environment={"DOORSTEP_GRACE_SECONDS": "600"}) as program:
        add_endpoint(program, receiver)
        receiver.hold.clear()
        send(program)
        wait_for(lambda: receiver.received)
        program.signal(signal.SIGTERM)
        program.signal(signal.SIGINT)
        wait_for(lambda: not _listens(program))
        assert program.process.poll() is None
        time.sleep(1)
        program.signal(signal.SIGTERM)
        assert program.wait() == 1


def test_a_closed_standard_output_does_not_stop_the_delivering(tmp_path: Path, receiver: Receiver) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with serving(tmp_path, output=writing) as program:
        os.close(writing)
        add_endpoint(program, receiver)
        for _ in range(3):
            wait_until_delivered(program, send(program))
        program.signal(signal.SIGTERM)
        assert program.wait() == 0


# -- worker processes ------------------------------------------------------------------------------------------


def workers_of(program: Program) -> list[psutil.Process]:
    return psutil.Process(program.process.pid).children()


def test_workers_are_started_replaced_when_they_die_and_ended_with_the_program(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as program:
        first, second = wait_for(lambda: found if len(found := workers_of(program)) == 2 else None)
        first.kill()
        wait_for(lambda: len(workers_of(program)) == 2 and first.pid not in {w.pid for w in workers_of(program)})
        (notice,) = wait_for(lambda: endings(program))
        assert (notice["pid"], notice["exit_code"]) == (first.pid, -signal.SIGKILL)
        every = [*workers_of(program), second]
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
    assert not any(worker.is_running() for worker in every)


def endings(program: Program) -> list[dict[str, Any]]:
    return [line for line in program.facts("notice") if line["message"].startswith("a worker process ended")]


def test_workers_end_by_themselves_when_the_program_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "1") as program:
        (worker,) = wait_for(lambda: workers_of(program))
        program.process.kill()
        wait_for(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


def test_a_password_is_not_on_the_command_line_of_the_workers(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "1") as program:
        (worker,) = wait_for(lambda: workers_of(program))
        assert not [part for part in worker.cmdline() if "sqlite:" in part or "postgresql:" in part]


HANDLER_APP = """
from doorstep import Doorstep

doorstep = Doorstep()

async def note(received):
    with open("noted", "ab") as file:
        file.write(received.payload)

doorstep.register("note", note)
"""


def test_a_worker_delivers_to_the_handlers_of_your_own_program(tmp_path: Path) -> None:
    (tmp_path / "shop_events.py").write_text(HANDLER_APP)
    database = ("--database", "sqlite:///shop.db")
    with serving(tmp_path, *database) as program:
        program.post("/v1/endpoints", {"name": "note", "handler": "note"})
        with running("worker", *database, "--app", "shop_events:doorstep", folder=tmp_path) as worker:
            wait_for(lambda: any("delivers from" in line for line in worker.err))
            event_id = send(program)
            wait_until_delivered(program, event_id)
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
    assert (tmp_path / "noted").read_bytes() == b'{"order": 1}'


# -- the other commands ----------------------------------------------------------------------------------------


def test_migrate_makes_the_tables_and_is_harmless_the_second_time(tmp_path: Path) -> None:
    for _ in range(2):
        done = doorstep("migrate", "--database", "sqlite:///new.db", folder=tmp_path)
        assert done.code == 0, done.err
        assert "up to date" in done.err
    assert (tmp_path / "new.db").exists()


def test_version_and_settings_and_help(tmp_path: Path) -> None:
    assert re.fullmatch(r"doorstep \d+\.\d+\.\d+\n", doorstep("version", folder=tmp_path).out)
    assert "DOORSTEP_LEASE_SECONDS" in doorstep("settings", folder=tmp_path).out
    shown = doorstep("serve", "--help", folder=tmp_path).out
    for option in ("--host", "--port", "--database", "--workers"):
        assert option in shown


def test_importing_the_library_loads_none_of_the_heavy_parts() -> None:
    code = "import sys, doorstep; print({'fastapi', 'pydantic', 'sqlalchemy', 'uvicorn', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    code = "import sys; from doorstep import Doorstep; print({'fastapi', 'uvicorn', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
