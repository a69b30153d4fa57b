"""Apprise really sends, from a separate process in which every connection, program start and file access is checked."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path

import pytest

from doorstep.errors import HandlerFailure, Permanent, Transient
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.apprise import ENVIRONMENT, FOLDER, LOCAL_SCHEMES, PYTHON, Watcher, send_by_apprise
from tests.support.loop_receiver import Answer, Receiver, receiving
from tests.support.patience import PATIENCE_SECONDS

OPEN = AddressGuard([ip_network("127.0.0.0/8")])
MESSAGE = {"title": "[Doorstep] shop: down", "body": "It is down.", "type": "failure"}


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


async def test_plain_http_to_public_addresses_is_refused_unless_the_operator_allows_it() -> None:
    failure = await refused("json://203.0.114.1/", AddressGuard())  # no connection is opened
    assert (failure.code, "plain http" in failure.message) == ("BLOCKED", True)


@pytest.mark.parametrize(
    ("allow_http", "plain", "blocked"), [(False, True, True), (False, False, False), (True, True, False)]
)
def test_plain_http_is_told_apart_from_other_connections(allow_http: bool, plain: bool, blocked: bool) -> None:
    watcher = Watcher(AddressGuard(allow_http=allow_http))
    watcher.plain = plain
    with suppress(PermissionError):
        watcher(*PUBLIC)
    assert bool(watcher.blocked) is blocked


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


LOOK_UP, FILE = ("socket.getaddrinfo", ("shop.example", 443)), ("open", ("/root/.netrc", "r", 0))
PRIVATE, PUBLIC = (("socket.connect", (None, (address, 443))) for address in ("10.0.0.1", "1.1.1.1"))
"""Events that Python passes to an audit hook before it performs the action."""


@pytest.mark.parametrize(
    ("events", "blocked", "refused_act"),
    [
        ([LOOK_UP, PRIVATE], True, False),
        ([LOOK_UP, PRIVATE, PRIVATE], True, False),
        ([LOOK_UP, PRIVATE, PUBLIC], False, False),  # the name has several addresses, and one was reached
        ([LOOK_UP, PUBLIC, PRIVATE], False, False),
        ([LOOK_UP, PUBLIC, LOOK_UP, PRIVATE], True, False),  # a redirect
        ([LOOK_UP, PRIVATE, LOOK_UP, PUBLIC], False, False),  # the next of several receivers
        ([FILE, LOOK_UP, PUBLIC], False, False),
        ([FILE, LOOK_UP], False, False),  # the name has no address any more
        ([FILE], False, True),
        ([PRIVATE], True, False),
    ],
)
def test_only_what_can_never_be_sent_is_given_up(
    events: list[tuple[str, tuple[object, ...]]], blocked: bool, refused_act: bool
) -> None:
    watcher = Watcher(AddressGuard())
    for event, arguments in events:
        with suppress(PermissionError):
            watcher(event, arguments)
    assert (bool(watcher.blocked), bool(watcher.refused_act)) == (blocked, refused_act)


async def test_passwords_of_whoever_runs_it_are_neither_read_nor_in_the_way(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login canary password canary\n")
    monkeypatch.setitem(ENVIRONMENT, "HOME", str(tmp_path))
    receiver.answer = lambda _: Answer(503)
    assert isinstance(await refused(f"json://127.0.0.1:{receiver.port}/"), Transient)
    assert "authorization" not in receiver.requests[0].headers
    monkeypatch.delitem(ENVIRONMENT, "NETRC")  # even if a library looks for the file: the guard refuses
    assert isinstance(await refused(f"json://127.0.0.1:{receiver.port}/"), Transient)
    assert "authorization" not in receiver.requests[-1].headers


@pytest.mark.parametrize("separator", [" ", ",", ";"])
async def test_a_message_goes_to_one_receiver_whatever_else_its_url_names(receiver: Receiver, separator: str) -> None:
    async with receiving() as second:
        with suppress(HandlerFailure):
            first = f"json://127.0.0.1:{receiver.port}/one"
            await send(f"{first}{separator}json://127.0.0.1:{second.port}/two")
    assert len(receiver.requests) <= 1
    assert second.requests == []


@pytest.mark.parametrize("scheme", sorted(LOCAL_SCHEMES))
async def test_what_leads_to_this_machine_alone_is_refused_by_its_name(scheme: str) -> None:
    failure = await refused(f" {scheme.upper()}://127.0.0.1/")
    assert (failure.code, "this machine" in failure.message) == ("REJECTED", True)


async def test_a_url_that_names_a_file_does_not_read_it(tmp_path: Path, receiver: Receiver) -> None:
    """Tested in the actual sending process: Apprise may not read a key from the disk, and the failure is permanent."""
    key = tmp_path / "key.json"
    key.write_text('{"canary": "canary"}')
    failure = await refused(f"fcm://project/{'d' * 20}/?keyfile={key}&mode=oauth2")
    assert (type(failure), failure.code) == (Permanent, "REJECTED")
    assert failure.message == "no other files may be opened."


HOSTILE_ACTS = {
    "a program": "subprocess.Popen(['true'])",
    "a shell": "os.system('true')",
    "a signal": "os.kill(os.getppid(), 0)",
    "a secret": "open('{folder}/secret.key')",
    "a secret, by the system's call": "os.open('{folder}/secret.key', os.O_RDONLY)",
    "a new file": "open('{folder}/new', 'w')",
    "a change of its own code": "open(os.__file__, 'a')",
    "a file beside its own code": "open(os.path.dirname(os.__file__) + '/hostile.py', 'x')",
    "a removal": "os.remove('{folder}/secret.key')",
    "another name": "os.rename('{folder}/secret.key', '{folder}/other')",
    "a folder": "os.mkdir('{folder}/new')",
    "a link": "os.symlink('/etc/passwd', '{folder}/link')",
    "a database": "sqlite3.connect('{folder}/new.db')",
    "the system's log": "syslog.syslog('canary')",
    "a connection": "socket.create_connection(('127.0.0.1', {port}), 1)",
    "a datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "a socket of this machine": "socket.socket(socket.AF_UNIX).connect('/run/docker.sock')",
}
HARMLESS = {"its own code": "open(os.__file__)", "nothing": "open('/dev/null', 'w')"}


async def test_nothing_is_started_or_written_and_no_file_of_others_opened(tmp_path: Path, receiver: Receiver) -> None:
    """The script runs like the child process: same environment, same folder, and the same audit hook as Apprise."""
    (tmp_path / "secret.key").write_text("canary")
    acts = {name: act.format(folder=tmp_path, port=receiver.port) for name, act in (HOSTILE_ACTS | HARMLESS).items()}
    script = f"""
import json, os, socket, sqlite3, subprocess, sys, syslog
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.apprise import Watcher
sys.addaudithook(Watcher(AddressGuard()))
done = []
for name, act in {acts!r}.items():
    try:
        eval(act)
        done.append(name)
    except PermissionError:
        pass
print(json.dumps(done))
"""
    process = await asyncio.create_subprocess_exec(
        *PYTHON,
        "-c",
        script,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT,
        cwd=FOLDER,
    )
    out, err = await process.communicate()
    assert json.loads(out or b"null") == list(HARMLESS), err.decode()
    assert receiver.requests == []
    assert [one.name for one in tmp_path.iterdir()] == ["secret.key"]


def _children() -> set[int]:
    """The ids of the Apprise processes that this process has started."""
    found = Path("/proc").glob("[0-9]*/cmdline")
    return {
        int(one.parent.name) for one in found if b"doorstep.transports.apprise" in _read(one) and _is_ours(one.parent)
    }


def _is_ours(process: Path) -> bool:
    return f"\nPPid:\t{os.getpid()}\n".encode() in _read(process / "status")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # the process has just ended
        return b""


async def test_a_process_that_takes_too_long_is_ended(receiver: Receiver) -> None:
    receiver.hold.clear()
    sending = asyncio.create_task(send(f"json://127.0.0.1:{receiver.port}/", timeout_seconds=3.0))
    children: set[int] = set()
    while not receiver.requests and not sending.done():  # on a busy machine, it may be ended before it has connected
        children |= _children()
        await asyncio.sleep(0.01)
    with pytest.raises(Transient) as caught:
        await sending
    assert caught.value.code == "TIMEOUT"
    assert len(children) == 1, "it was there"
    assert _children() == set(), "and is gone"
