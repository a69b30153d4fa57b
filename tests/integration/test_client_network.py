"""Both clients on a real, unreliable network connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from doorstep.client import AsyncClient, Client, Retrying, Unavailable, UnexpectedAnswer, Unreachable
from tests.support.ports import free_port

QUICK = Retrying(tries_max=3, first_pause_seconds=0.01, longest_pause_seconds=0.05)
OK = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{"status":"ok"}'
BUSY = b"HTTP/1.1 503 Busy\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n"
HALF = OK[:-5]
GARBLED = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"
RUBBISH = b"SSH-2.0-OpenSSH_9.2\r\n"
SILENCE, RESET = b"", b"reset"


class Peer:
    """Answers the first request on each connection with the next of its prepared answers, then hangs up."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []
        self.requests: list[bytes] = []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()
        for connection in self._held:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        self.requests.append(connection.recv(65_536))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer == SILENCE:
            self._held.append(connection)
            return
        if answer == RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        else:
            connection.sendall(answer)
        connection.close()


@contextmanager
def peer(*answers: bytes) -> Iterator[Peer]:
    it = Peer(*answers)
    try:
        yield it
    finally:
        it.close()


Call = Callable[[Any], Any]
Asked = Callable[[str, Call], Awaitable[Any]]


@pytest.fixture(params=["blocking", "asyncio"])
def asked(request: pytest.FixtureRequest) -> Asked:
    """Runs a call with either the blocking or the asyncio client."""

    async def ask(url: str, call: Call) -> Any:
        if request.param == "blocking":
            with Client(url, "key", timeout=0.2, retrying=QUICK) as client:
                return call(client)
        async with _async_client(url) as other:
            return await call(other)

    return ask


@asynccontextmanager
async def _async_client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, "key", timeout=0.2, retrying=QUICK) as client:
        yield client


def health(client: Any) -> Any:
    return client.health()


@pytest.mark.parametrize("failure", [BUSY, HALF, SILENCE, RESET], ids=["busy", "half", "silence", "reset"])
async def test_a_question_survives_a_peer_that_fails_twice(asked: Asked, failure: bytes) -> None:
    with peer(failure, failure, OK) as it:
        assert (await asked(it.url, health)).status == "ok"
        assert len(it.requests) == 3


@pytest.mark.parametrize(
    "failure", [HALF, SILENCE, RESET, GARBLED, RUBBISH], ids=["half", "silence", "reset", "garbled", "rubbish"]
)
async def test_a_peer_that_never_answers_is_unreachable_after_so_many_tries(asked: Asked, failure: bytes) -> None:
    with peer(failure) as it, pytest.raises(Unreachable, match="^GET /healthz: "):
        await asked(it.url, health)
    assert len(it.requests) == 3


async def test_nobody_there_is_unreachable(asked: Asked) -> None:
    with pytest.raises(Unreachable):
        await asked(f"http://127.0.0.1:{free_port()}", health)


@pytest.mark.parametrize("failure", [BUSY, HALF, RESET], ids=["busy", "half", "reset"])
async def test_an_act_is_sent_once_whatever_happens(asked: Asked, failure: bytes) -> None:
    with peer(failure, OK) as it, pytest.raises((Unreachable, Unavailable)):
        await asked(it.url, lambda client: client.endpoints.pause("an-id"))
    assert len(it.requests) == 1


async def test_the_key_is_sent_and_redirects_are_not_followed(asked: Asked) -> None:
    away = b"HTTP/1.1 302 Away\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    with peer(away) as it, pytest.raises(UnexpectedAnswer):
        await asked(it.url, health)
    (request,) = it.requests
    assert b"\r\nx-api-key: key\r\n" in request
    assert b"\r\nuser-agent: doorstep-python/" in request


async def test_a_prefix_in_the_url_is_kept(asked: Asked) -> None:
    with peer(OK) as it:
        await asked(f"{it.url}/behind/a/proxy/", health)
    assert it.requests[0].startswith(b"GET /behind/a/proxy/healthz HTTP/1.1\r\n")
