"""A service manager keeps the listening socket during a restart, and learns when the program is ready and when it stops."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from doorstep.cli.service_manager import notify, passed_socket
from tests.support.http_calls import call
from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import ADMIN_KEY, clean_environment

_START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
os.execv(sys.executable, [sys.executable, "-m", "doorstep", "serve"])
"""
_BODY = {"event_type": "restart.test", "payload": {}}


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as it:
        yield it


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which a service manager receives notifications."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as it:
        it.bind(str(tmp_path / "notify"))
        it.settimeout(PATIENCE_SECONDS)
        yield it


@contextmanager
def service(folder: Path, listening: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """Start the server as systemd would: the socket is descriptor 3, and the variables name its process."""
    descriptor = listening.fileno()
    environment = clean_environment() | {"DOORSTEP_ADMIN_KEY": ADMIN_KEY, "NOTIFY_SOCKET": str(folder / "notify")}
    with open(folder / "out.log", "ab") as out:
        program = subprocess.Popen(
            [sys.executable, "-c", _START, str(descriptor)],
            cwd=folder,
            env=environment,
            pass_fds=[descriptor],
            stdout=out,
            stderr=out,
        )
    try:
        yield program
    finally:
        program.terminate()
        program.wait(PATIENCE_SECONDS)


def said(manager: socket.socket) -> bytes:
    return manager.recv(1_024)


def test_clients_that_connect_during_a_restart_wait_and_are_not_refused(
    tmp_path: Path, listening: socket.socket, manager: socket.socket
) -> None:
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    sent: list[int] = []

    def send() -> None:
        sent.append(call(url, "POST", "/v1/events", _BODY, {"X-API-Key": ADMIN_KEY}).status)

    with service(tmp_path, listening) as first:
        assert said(manager) == b"READY=1"
        send()
        first.terminate()
        assert said(manager) == b"STOPPING=1"
        assert first.wait(PATIENCE_SECONDS) == 0
    clients = [threading.Thread(target=send) for _ in range(20)]
    for client in clients:
        client.start()  # nobody accepts connections now
    with service(tmp_path, listening):
        for client in clients:
            client.join(PATIENCE_SECONDS)
    assert sent == [202] * 21


def test_the_control_without_a_passed_socket_they_are_refused(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    listening.close()
    with pytest.raises(ConnectionRefusedError):
        call(f"http://127.0.0.1:{port}", "GET", "/healthz", None, {})


def test_a_socket_meant_for_another_process_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", str(os.getpid() + 1))
    assert passed_socket() is None


def test_a_process_that_no_service_manager_started_tells_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify("READY=1")


def test_abstract_addresses_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"doorstep-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify("READY=1")
        manager.settimeout(PATIENCE_SECONDS)
        assert said(manager) == b"READY=1"
