"""Runs the receivers of docs/how-to/receiving.md unchanged, with webhooks from a running Doorstep."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from doorstep.client import Client
from doorstep.transports.signature import Signer
from tests.docs.pages import HOW_TO
from tests.support.ports import free_port
from tests.support.program import ADMIN_KEY, Program, wait_for
from tests.support.warm_start import Process, start_python

COMMANDS = {
    "fastapi": ["-m", "uvicorn", "fastapi_receiver:app", "--port", "{port}", "--log-level", "warning"],
    "flask": ["-m", "flask", "--app", "flask_receiver", "run", "--port", "{port}"],
    "django": ["django_receiver.py", "runserver", "--noreload", "{port}"],
}


@contextmanager
def running(framework: str, port: int, secret: str, ledger: Path) -> Iterator[Process]:
    command = [part.format(port=port) for part in COMMANDS[framework]]
    environment = os.environ | {"WEBHOOK_SECRET": secret, "LEDGER": str(ledger)}
    pipe, devnull = subprocess.PIPE, subprocess.DEVNULL
    process = start_python(command, cwd=HOW_TO / "receiving", env=environment, stdout=pipe, stderr=devnull)
    try:
        wait_for(lambda: _listens(port))
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("framework", COMMANDS)
def test_a_webhook_is_verified_and_handled_once(framework: str, served: Program, tmp_path: Path) -> None:
    port, event_type = free_port(), f"order.{uuid4()}"
    url = f"http://127.0.0.1:{port}/hook"
    with Client(served.url, ADMIN_KEY) as client:
        endpoint = client.endpoints.create(name=framework, url=url, event_types=[event_type])
        with running(framework, port, endpoint.secret, tmp_path / "handled.db") as process:
            receipt = client.send(event_type, {"order": 42})
            client.wait_for_delivery(receipt.event_id)
            assert _answer(url, endpoint.secret, str(receipt.event_id)) == 204, "again, and handled already"
            assert _answer(url, endpoint.secret, str(uuid4())) == 204, "another one"
            assert _answer(url, "whsec_" + "A" * 32, str(uuid4())) == 401
            assert httpx2.post(url, content=b"{}").status_code == 401
        client.endpoints.delete(endpoint.endpoint_id)
    assert process.stdout is not None
    lines = process.stdout.read().decode().splitlines()
    assert [line for line in lines if line.startswith("paid:")] == ["paid: {'order': 42}", "paid: {'order': 43}"]


def _answer(url: str, secret: str, webhook_id: str) -> int:
    body = b'{"order": 43}'
    lines = Signer([secret]).headers(webhook_id, int(time.time()), body)
    return httpx2.post(url, content=body, headers=[tuple(line.split(": ", 1)) for line in lines]).status_code  # type: ignore[misc]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
