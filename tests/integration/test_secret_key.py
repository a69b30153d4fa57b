"""R8.6: only a process with the secret key of the store starts, and a wrong key never costs a delivery an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from doorstep.encryption import new_secret_key
from tests.support.postgres_server import PostgresServer
from tests.support.program import ADMIN_KEY, Program, clean_environment, serving, wait_for
from tests.support.stores import EACH_STORE
from tests.support.warm_start import run_python

KEY, OTHER = new_secret_key(), new_secret_key()
ADMIN = {"DOORSTEP_ADMIN_KEY": ADMIN_KEY}


@pytest.fixture(params=EACH_STORE)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    if request.param == "sqlite":
        yield {"DOORSTEP_DATABASE_URL": f"sqlite:///{tmp_path}/data/doorstep.db"}
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.create_database("secret_key")
    yield {"DOORSTEP_DATABASE_URL": server.url("secret_key")}
    server.drop_database("secret_key")


def run(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """The exit code of a Python program, and what it wrote to standard error."""
    ended = run_python(arguments, cwd=folder, env=clean_environment() | environment)
    return ended.returncode, ended.stderr.decode()


def refused(folder: Path, *arguments: str, **environment: str) -> str:
    """The error of a command that is refused because of its settings."""
    code, said = run(folder, "-m", "doorstep", *arguments, **environment)
    assert code == 2, said
    return said


def waiting_delivery(program: Program) -> dict[str, Any]:
    """A delivery whose receiver is away: it fails, and would be tried again soon by any worker."""
    program.post(
        "/v1/endpoints", {"name": "shop", "url": "http://127.0.0.1:9/", "policy": {"delays": [0.2] * 20, "jitter": 0}}
    )
    event_id = program.post("/v1/events", {"event_type": "order.paid", "payload": {}}).json["event_id"]
    wait_for(lambda: program.get("/v1/retry-queue").json["deliveries"])
    delivery: dict[str, Any] = program.get(f"/v1/events/{event_id}").json["deliveries"][0]
    return delivery


def log_of(program: Program, delivery: dict[str, Any]) -> list[dict[str, Any]]:
    attempts: list[dict[str, Any]] = program.get(f"/v1/deliveries/{delivery['delivery_id']}/attempts").json["attempts"]
    return attempts


def test_a_second_process_with_another_key_refuses_to_start_and_costs_no_delivery_an_attempt(
    database: dict[str, str], tmp_path: Path
) -> None:
    with serving(tmp_path, environment=ADMIN | database | {"DOORSTEP_SECRET_KEY": KEY}) as program:
        delivery = waiting_delivery(program)
        for command in (["worker"], ["serve", "--port", "0"], ["outbox", "list"]):
            said = refused(tmp_path, *command, **database, DOORSTEP_SECRET_KEY=OTHER)
            assert "DOORSTEP_SECRET_KEY is not the key that encrypted the secrets in the database" in said
        code, said = run(tmp_path, "-c", EMBEDDED, **database, DOORSTEP_SECRET_KEY=OTHER)
        assert code and "DOORSTEP_SECRET_KEY is not the key" in said
        assert run(tmp_path, "-c", EMBEDDED, **database, DOORSTEP_SECRET_KEY=KEY)[0] == 0, "the control"
        codes = {one["error_code"] for one in log_of(program, delivery)}
        assert codes == {"CONNECTION"}


EMBEDDED = """
from doorstep import Doorstep
Doorstep().send_sync("order.paid", {})
"""


def test_of_the_first_starts_with_different_keys_one_decides_and_the_others_refuse(
    database: dict[str, str], tmp_path: Path
) -> None:
    with ThreadPoolExecutor() as pool:
        starts = [
            pool.submit(run, tmp_path, "-c", EMBEDDED, **database, DOORSTEP_SECRET_KEY=new_secret_key())
            for _ in range(3)
        ]
    ends = [start.result() for start in starts]
    assert sorted(bool(code) for code, _ in ends) == [False, True, True], ends
    assert all("DOORSTEP_SECRET_KEY" in said for code, said in ends if code)


def test_a_worker_from_before_a_change_of_the_key_leaves_deliveries_to_the_others(
    database: dict[str, str], tmp_path: Path
) -> None:
    """Its own check passed when it started, so only the secrets of newer endpoints tell it."""
    with serving(tmp_path, environment=ADMIN | database | {"DOORSTEP_SECRET_KEY": KEY}) as old:
        code, said = run(tmp_path, "-m", "doorstep", "adopt-key", "--yes", **database, DOORSTEP_SECRET_KEY=OTHER)
        assert code == 0, said
        with serving(tmp_path, environment=ADMIN | database | {"DOORSTEP_SECRET_KEY": OTHER}) as new:
            delivery = waiting_delivery(new)
            wait_for(lambda: len(log_of(old, delivery)) >= 5)
            attempts = log_of(old, delivery)
        assert {one["error_code"] for one in attempts} == {"CONNECTION"}
        assert len({one["worker"] for one in attempts}) == 1


def test_a_missing_key_file_is_not_replaced_by_a_new_one(tmp_path: Path) -> None:
    with serving(tmp_path, environment=ADMIN):
        pass
    (tmp_path / "data/secret.key").rename(tmp_path / "kept")
    said = refused(tmp_path, "worker")
    assert "secret.key is missing" in said and "restore it" in said
    assert not (tmp_path / "data/secret.key").exists()


def test_after_the_key_is_lost_endpoints_work_again_with_new_secrets(tmp_path: Path) -> None:
    url = {"name": "shop", "url": "http://127.0.0.1:9/", "headers": {"X-Tenant": "17"}}
    with serving(tmp_path, environment=ADMIN) as program:
        endpoint = program.post("/v1/endpoints", url).json["endpoint_id"]
    (tmp_path / "data/secret.key").unlink()
    code, said = run(tmp_path, "-m", "doorstep", "adopt-key", "--yes")
    assert code == 0, said
    with serving(tmp_path, environment=ADMIN) as program:
        program.post("/v1/events", {"event_type": "order.paid", "payload": {}})
        program.request("PATCH", f"/v1/endpoints/{endpoint}", {"headers": {"X-Tenant": "18"}})
        program.post(f"/v1/endpoints/{endpoint}/rotate-secret", {"overlap_seconds": 0})
        wait_for(lambda: program.get("/v1/retry-queue").json["deliveries"])
