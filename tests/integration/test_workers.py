"""The list of delivering processes, over HTTP, in the Python client and in a terminal, with real worker processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from doorstep.client import Client, Forbidden
from tests.support.commands import Remote
from tests.support.program import ADMIN_KEY, Program, serving, wait_for
from tests.support.receiver import Receiver
from tests.support.stretching import stretched

_FIELDS = {
    *("name", "state", "host", "pid", "version", "started_at", "seen_at"),
    *("places", "places_in_use", "handlers", "tasks"),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A server that runs two additional worker processes."""
    with serving(tmp_path_factory.mktemp("workers"), "--workers", "2") as it:
        wait_for(lambda: len(workers(it)) == 3, lambda: str(workers(it)))
        yield it


def workers(program: Program) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = program.get("/v1/workers").json["workers"]
    return found


def test_each_process_is_there_under_the_name_that_its_log_has(program: Program) -> None:
    found = workers(program)
    assert [set(one) for one in found] == [_FIELDS] * 3
    assert {one["state"] for one in found} == {"alive"}
    assert [one["name"] for one in found] == sorted(one["name"] for one in found)
    assert len({one["pid"] for one in found}) == 3
    logged = {line["worker"] for line in program.facts("notice") if "worker" in line}
    assert logged and logged <= {one["name"] for one in found}


def test_the_client_and_the_terminal_show_them(program: Program) -> None:
    names = {one["name"] for one in workers(program)}
    with Client(program.url, ADMIN_KEY) as client:
        assert {one.name for one in client.workers.page().items} == names
    remote = Remote(program)
    assert {one["name"] for one in remote.json("workers")["workers"]} == names
    shown = remote("workers")
    assert shown.code == 0 and "alive" in shown.out and "0 / 512" in shown.out


def test_other_organizations_may_not_look(program: Program) -> None:
    key = program.post("/v1/orgs", {"name": "other"}).json["admin_key"]["key"]
    answer = program.get("/v1/workers", key=key)
    assert answer.status == 403
    assert answer.json["detail"] == "only keys of the default organization may do that"
    with Client(program.url, key) as client, pytest.raises(Forbidden):
        client.workers.page()


def test_a_process_that_ends_in_order_leaves_and_one_that_is_killed_stays(tmp_path: Path) -> None:
    environment = {"DOORSTEP_DATABASE_URL": f"sqlite:///{tmp_path / 'doorstep.db'}"}
    with serving(tmp_path, environment=environment) as server:
        (own,) = wait_for(lambda: workers(server))
        with serving(tmp_path, environment=environment) as second:
            wait_for(lambda: len(workers(server)) == 2)
            second.stop()
        assert [one["name"] for one in workers(server)] == [own["name"]]
        with serving(tmp_path, environment=environment) as third:
            wait_for(lambda: len(workers(server)) == 2)
            third.signal(signal.SIGKILL)
            third.wait()
        assert third.process.pid in {one["pid"] for one in workers(server)}


@pytest.mark.full
def test_workers_leave_within_five_seconds_of_a_killed_server_even_with_attempts_under_way(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.hold.clear()
    with serving(tmp_path, "--workers", "2") as program:
        wait_for(lambda: len(workers(program)) == 3, lambda: str(workers(program)))
        children = psutil.Process(program.process.pid).children()
        assert len(children) == 2
        made = program.post("/v1/endpoints", {"name": "slow", "url": receiver.url, "timeout_seconds": 15})
        assert made.status == 201, made
        events = [{"event_type": "a", "payload": n} for n in range(200)]
        assert program.post("/v1/events/batch", {"events": events}).status == 202
        wait_for(lambda: len(receiver.received) >= 3)
        program.signal(signal.SIGKILL)
        began = time.monotonic()
        left = psutil.wait_procs(children, timeout=stretched(15))[1]
        seconds = time.monotonic() - began
        receiver.hold.set()
    assert not left
    assert seconds < stretched(5)
