"""Apprise really sends, from a process of its own in which every connection, program and file is judged."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from doorstep.errors import HandlerFailure, Permanent, Transient
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.apprise_process import send_by_apprise
from tests.acceptance.receiver import Answer, Receiver, receiving

OPEN = AddressGuard([ip_network("127.0.0.0/8")])
MESSAGE = {"title": "[Doorstep] shop: down", "body": "It is down.", "type": "failure"}
PATIENCE_SECONDS = 30.0


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as it:
        yield it


async def send(url: str, guard: AddressGuard = OPEN, timeout_seconds: float = PATIENCE_SECONDS) -> None:
    await send_by_apprise(url, MESSAGE, guard, timeout_seconds)


async def refused(url: str, guard: AddressGuard = OPEN) -> HandlerFailure:
    with pytest.raises(HandlerFailure) as caught:
        await send(url, guard)
    return caught.value


async def test_a_message_arrives_at_a_receiver_that_apprise_knows(receiver: Receiver) -> None:
    await send(f"json://127.0.0.1:{receiver.port}/notify")
    (request,) = receiver.requests
    told = json.loads(request.body)
    assert (told["title"], told["message"], told["type"]) == ("[Doorstep] shop: down", "It is down.", "failure")


async def test_an_address_that_the_guard_refuses_sees_nothing(receiver: Receiver) -> None:
    for host in ("127.0.0.1", "localhost"):
        failure = await refused(f"json://{host}:{receiver.port}/", AddressGuard())
        assert isinstance(failure, Permanent)
        assert (failure.code, "loopback" in failure.message) == ("BLOCKED", True)
    assert receiver.requests == []


async def test_what_this_service_listens_at_is_refused_even_inside_an_allowed_range(receiver: Receiver) -> None:
    own = AddressGuard([ip_network("127.0.0.0/8")], own_addresses=[("127.0.0.1", receiver.port)])
    assert (await refused(f"json://127.0.0.1:{receiver.port}/", own)).code == "BLOCKED"
    assert receiver.requests == []


async def test_a_receiver_that_fails_is_tried_again(receiver: Receiver) -> None:
    receiver.answer = lambda _: Answer(500)
    failure = await refused(f"json://127.0.0.1:{receiver.port}/canary")
    assert isinstance(failure, Transient)
    assert "canary" not in str(failure)


async def test_a_url_that_apprise_does_not_know_is_given_up(receiver: Receiver) -> None:
    assert (await refused("nonsense://127.0.0.1/")).code == "REJECTED"


async def test_no_program_is_started_and_no_file_of_others_opened(tmp_path: Path, receiver: Receiver) -> None:
    """Run in the child itself, behind the same hook as Apprise."""
    script = f"""
import sys
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.apprise_child import _Watcher
sys.addaudithook(_Watcher(AddressGuard()))
import os, socket, subprocess
def tried(act):
    try:
        act()
    except PermissionError:
        return "refused"
    return "done"
print([
    tried(lambda: subprocess.Popen(["true"])),
    tried(lambda: os.system("true")),
    tried(lambda: open({str(tmp_path / "secret.key")!r})),
    tried(lambda: open({str(tmp_path / "new")!r}, "w")),
    tried(lambda: socket.create_connection(("127.0.0.1", {receiver.port}), 1)),
    tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))),
    tried(lambda: socket.socket(socket.AF_UNIX).connect("/run/docker.sock")),
    tried(lambda: open(os.__file__)),
])
"""
    (tmp_path / "secret.key").write_text("canary")
    (tmp_path / "script.py").write_text(script)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert out.decode().strip() == str(["refused"] * 7 + ["done"]), err.decode()
    assert receiver.requests == []


async def test_a_process_that_takes_too_long_is_ended(receiver: Receiver) -> None:
    receiver.hold.clear()
    with pytest.raises(Transient) as caught:
        await send(f"json://127.0.0.1:{receiver.port}/", timeout_seconds=3.0)
    assert caught.value.code == "TIMEOUT"
