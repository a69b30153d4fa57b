"""`doorstep doctor` finds problems, suggests fixes, and changes nothing."""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from doorstep.cli.doctor import clock_finding
from doorstep.clock import SECOND
from doorstep.model.claim import WorkerEntry
from doorstep.stores.store import Put
from doorstep.testing import FakeClock
from tests.reference import ReferenceStore
from tests.support.commands import Remote, doorstep
from tests.support.ports import free_port
from tests.support.program import ADMIN_KEY, serving
from tests.support.receiver import Receiver

ALLOWED = {"DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8", "DOORSTEP_ADMIN_KEY": ADMIN_KEY}


def examined(folder: Path, code: int, **environment: str) -> dict[str, dict[str, Any]]:
    """The findings, keyed by their check; if a check has several findings, only the last is kept."""
    given = {"DOORSTEP_PORT": str(free_port())} | ALLOWED | environment
    ended = doorstep("doctor", "--json", folder=folder, environment=given)
    assert ended.code == code, ended
    (found,) = ended.lines
    assert found["healthy"] == (code == 0)
    return {one["check"]: one for one in found["checks"]}


def problems(found: dict[str, dict[str, Any]]) -> set[str]:
    assert all(one["remedy"] for one in found.values() if one["verdict"] == "problem"), "each says what to do"
    return {check for check, one in found.items() if one["verdict"] == "problem"}


@pytest.fixture
def with_endpoint(tmp_path: Path, receiver: Receiver) -> Iterator[Path]:
    """The folder of a stopped installation that has one endpoint."""
    with serving(tmp_path) as program:
        Remote(program).json("endpoints", "create", "shop", receiver.url)
    yield tmp_path


def test_a_folder_where_nothing_was_started_yet_is_in_order_and_stays_empty(tmp_path: Path) -> None:
    found = examined(tmp_path, 0)
    assert set(found) == {"settings", "port", "disk space", "disk speed", "database", "secret key"}
    assert list(tmp_path.iterdir()) == []


def test_an_installation_in_order_says_so_of_each_part(with_endpoint: Path) -> None:
    found = examined(with_endpoint, 0)
    assert "accepts connections" in found["endpoint"]["found"]
    assert "the key of the database" in found["secret key"]["found"]


def test_people_get_a_line_for_each_check(with_endpoint: Path) -> None:
    environment = ALLOWED | {"DOORSTEP_PORT": str(free_port())}
    ended = doorstep("doctor", folder=with_endpoint, environment=environment)
    assert (ended.code, ended.err) == (0, "Everything is in order.\n")
    assert all("ok" in line for line in ended.out.splitlines())


def test_a_running_doorstep_at_the_port_is_no_problem(tmp_path: Path) -> None:
    with serving(tmp_path) as program:
        found = examined(tmp_path, 0, DOORSTEP_PORT=program.url.rpartition(":")[2])
        assert "a Doorstep listens" in found["port"]["found"]


def test_another_program_at_the_port_is_a_problem(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = examined(tmp_path, 1, DOORSTEP_PORT=str(taken.getsockname()[1]))
    assert problems(found) == {"port"}


def test_a_receiver_that_is_down_is_a_problem(with_endpoint: Path, receiver: Receiver) -> None:
    receiver.shutdown()  # before closing: a thread that still waits for requests would keep the socket open
    receiver.server_close()
    with socket.socket() as silent:  # so that no other program gets the port
        silent.bind(receiver.server_address)
        found = examined(with_endpoint, 1)
    assert problems(found) == {"endpoint"}
    assert "refused" in found["endpoint"]["found"].lower()


def test_an_address_that_the_guard_refuses_is_a_problem_and_is_not_connected_to(
    with_endpoint: Path, receiver: Receiver
) -> None:
    found = examined(with_endpoint, 1, DOORSTEP_ALLOW_ADDRESSES="10.0.0.0/8")
    assert problems(found) == {"endpoint"}
    assert "DOORSTEP_ALLOW_ADDRESSES" in found["endpoint"]["remedy"]
    assert receiver.received == []


def test_a_lost_secret_key_is_a_problem_and_is_not_made_anew(with_endpoint: Path) -> None:
    key = with_endpoint / "data" / "secret.key"
    key.unlink()
    assert problems(examined(with_endpoint, 1)) == {"secret key"}
    assert not key.exists()


def test_a_secret_key_that_does_not_fit_is_a_problem(with_endpoint: Path) -> None:
    assert problems(examined(with_endpoint, 1, DOORSTEP_SECRET_KEY="A" * 43 + "=")) == {"secret key"}


def test_a_secret_key_that_others_can_read_is_a_problem(with_endpoint: Path) -> None:
    os.chmod(with_endpoint / "data" / "secret.key", 0o644)
    found = examined(with_endpoint, 1)
    assert problems(found) == {"secret key"}
    assert found["secret key"]["remedy"].startswith("chmod 600")


def test_a_setting_that_cannot_be_is_the_one_problem(tmp_path: Path) -> None:
    found = examined(tmp_path, 1, DOORSTEP_LEASE_SECONDS="-1")
    assert problems(found) == set(found) == {"settings"}
    assert "lease_seconds" in found["settings"]["found"]


def test_events_that_could_never_be_accepted_are_a_problem_with_their_reason(tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    (file,) = tmp_path.glob("**/*.db")
    assert examined(tmp_path, 0)["outbox"]["verdict"] == "ok"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(
            "INSERT INTO doorstep_outbox (uid, org_uid, event_type, payload, options, created_at, refused_at, refusal)"
            " VALUES (x'00112233445566778899aabbccddeeff', x'00112233445566778899aabbccddeeff', 'order.paid', x'7b7d',"
            " '{}', 1, 2, 'no endpoint 7')"
        )
        connection.commit()
    found = examined(tmp_path, 1)
    assert problems(found) == {"outbox"}
    assert "no endpoint 7" in found["outbox"]["found"]


def test_a_database_of_another_version_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "doorstep.db").touch()
    found = examined(tmp_path, 1)
    assert problems(found) == {"database"}
    assert "doorstep migrate" in found["database"]["remedy"]


def test_a_database_that_does_not_answer_is_a_problem(tmp_path: Path) -> None:
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    found = examined(tmp_path, 1, DOORSTEP_DATABASE_URL=url, DOORSTEP_SECRET_KEY="A" * 43 + "=")
    assert problems(found) == {"database"}


def test_the_clock_is_compared_with_that_of_a_shared_database(tmp_path: Path, postgres_url: str) -> None:
    found = examined(tmp_path, 0, DOORSTEP_DATABASE_URL=postgres_url, DOORSTEP_SECRET_KEY="A" * 43 + "=")
    assert "this machine's" in found["clock"]["found"]
    assert postgres_url not in str(found), "a password may be in it"


# -- a shell without the settings of the server ------------------------------------------------------------


def skipped(found: dict[str, dict[str, Any]]) -> set[str]:
    chosen = {check: one for check, one in found.items() if one["verdict"] == "skipped"}
    assert all("with its environment" in one["remedy"] for one in chosen.values()), "each says how to check it"
    return set(chosen)


def test_beside_a_server_that_runs_elsewhere_nothing_of_this_folder_is_called_a_problem(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "elsewhere").mkdir()
    with serving(tmp_path / "server") as program:
        shell = {"DOORSTEP_URL": program.url, "DOORSTEP_API_KEY": ADMIN_KEY}
        ended = doorstep("doctor", "--json", folder=tmp_path / "elsewhere", environment=shell)
    found = {one["check"]: one for one in ended.json["checks"]}
    assert set(found) == {"settings", "server"} and skipped(found) == {"server"}
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_address_of_a_receiver_is_not_judged_without_the_settings_of_the_server(with_endpoint: Path) -> None:
    ended = doorstep("doctor", folder=with_endpoint, environment={"DOORSTEP_URL": f"http://127.0.0.1:{free_port()}"})
    assert ended.code == (1 if "port" in ended.err else 0) and "endpoint       skipped" in ended.out
    assert "1 check was skipped" in ended.err


def test_a_secret_key_that_only_the_server_has_is_not_called_missing(tmp_path: Path, postgres_url: str) -> None:
    found = examined(tmp_path, 0, DOORSTEP_DATABASE_URL=postgres_url)
    assert skipped(found) == {"secret key"} and "DOORSTEP_SECRET_KEY" in found["secret key"]["found"]


async def test_a_worker_whose_clock_is_ahead_is_a_problem() -> None:
    clock = FakeClock()
    store = ReferenceStore(clock)
    entry = WorkerEntry(name="w1", host="h", pid=1, version="1", started_at=clock.now(), seen_at=clock.now(), places=1)
    clock.leap_to(round(time.time() * SECOND))
    entry = replace(entry, seen_at=clock.now() + 600 * SECOND)
    await store.write([Put(document=entry)])
    found = await clock_finding(store)
    assert (found.verdict, "w1" in found.found, "in the future" in found.found) == ("problem", True, True)
    await store.write([Put(document=replace(entry, seen_at=clock.now()))])
    assert (await clock_finding(store)).verdict == "ok"
