"""A webhook receiver on a real socket, in a thread of its own: for tests with and without an event loop.

with Receiver() as receiver:
    receiver.behaves(scripted([500, 500, 200]))
    endpoint, secret = await doorstep.create_endpoint(name="shop", url=receiver.url())
    receiver.verifies(secret)
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from doorstep.clock import SECOND, AnchoredClock, Clock, Instant
from doorstep.receiver import Unverified, Webhook


class Request(NamedTuple):
    """One try, as the receiver saw it."""

    url: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    at: Instant
    flaw: str = ""
    """What is wrong with its signature, in a sentence; empty where it is right, or where nobody looked."""

    @property
    def path(self) -> str:
        """The path of its URL."""
        return urlsplit(self.url).path

    @property
    def event_id(self) -> str:
        """The same for all tries of an event."""
        return self.headers["webhook-id"]

    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)


class Manner(Enum):
    """What becomes of the connection."""

    ANSWERS = "answers"
    DRIBBLES = "dribbles"
    """Sends its answer byte by byte, one a second."""
    RESETS = "resets"
    SAYS_NOTHING = "says nothing"


class Answer(NamedTuple):
    """What a receiver does with a request."""

    status: int = 200
    headers: tuple[str, ...] = ()
    """`Name: value` lines."""
    body: bytes = b""
    after_seconds: float = 0.0
    manner: Manner = Manner.ANSWERS


Personality = Callable[[Request], Answer]
"""How a receiver behaves: any function of a request that gives an answer."""


# -- personalities -------------------------------------------------------------------------------------------------


def ok(_: Request) -> Answer:
    """Takes everything."""
    return Answer()


def status(code: int, *headers: str, body: bytes = b"") -> Personality:
    """Always answers the same: `status(503, "Retry-After: 30")`."""
    return lambda _: Answer(code, headers, body)


def scripted(answers: Sequence[int | Answer]) -> Personality:
    """Answers these one after the other, and the last one from then on."""
    left = [answer if isinstance(answer, Answer) else Answer(answer) for answer in answers]
    if not left:
        raise ValueError("scripted needs at least one answer")
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def flaky(share: float, code: int = 503, seed: int = 0) -> Personality:
    """Fails this share of the requests; the same ones in every run, unless given another seed."""
    dice = random.Random(seed)
    return lambda _: Answer(code if dice.random() < share else 200)


def slow(span_seconds: float, then: Personality = ok) -> Personality:
    """Thinks first. On a socket these are real seconds."""
    return lambda request: then(request)._replace(after_seconds=span_seconds)


def dead(_: Request) -> Answer:
    """Takes the request and never answers: a timeout."""
    return Answer(manner=Manner.SAYS_NOTHING)


def dribble(_: Request) -> Answer:
    """Answers one byte a second: a timeout too, for a client that watches the whole of an attempt."""
    return Answer(body=b"." * 60, manner=Manner.DRIBBLES)


def reset(_: Request) -> Answer:
    """Hangs up instead of answering."""
    return Answer(manner=Manner.RESETS)


# -- who plays them ------------------------------------------------------------------------------------------------


class Player:
    """Plays a personality, other ones where told, and keeps every request."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.requests: list[Request] = []
        """In the order of their arrival."""
        self._usual: Personality = ok
        self._elsewhere: dict[str, Personality] = {}
        self._webhook: Webhook | None = None

    def behaves(self, personality: Personality, at: str | None = None) -> None:
        """From now on, everywhere; or only `at` a URL or path."""
        if at is None:
            self._usual = personality
        else:
            self._elsewhere[at] = personality

    def verifies(self, *secrets: str) -> None:
        """From now on, answers 401 to what was not signed with one of these secrets, and keeps why as its `flaw`."""
        self._webhook = Webhook(*secrets)

    def play(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """What it answers to a request; one that is not genuine is a 401."""
        request = Request(url, headers, body, self.clock.now(), self._flaw(headers, body))
        self.requests.append(request)
        usual = self._elsewhere.get(request.path, self._usual)
        return Answer(401) if request.flaw else self._elsewhere.get(url, usual)(request)

    def _flaw(self, headers: Mapping[str, str], body: bytes) -> str:
        if self._webhook is None:
            return ""
        try:
            self._webhook.verify(headers, body, now=self.clock.now() / SECOND)
        except Unverified as error:
            return str(error)
        return ""


_RESET_ON_CLOSE = b"\x01\0\0\0\0\0\0\0"
_DRIBBLE_SECONDS = 1.0


class Receiver(Player):
    """Takes everything, until told to behave otherwise. Give it the clock of the sandbox to verify signatures by."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock or AnchoredClock())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="receiver", daemon=True)
        self.port = 0

    def url(self, path: str = "/") -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}{path}"

    def open(self) -> None:
        """Listen at a free port of this machine."""
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def close(self) -> None:
        """Hang up on everybody and stop listening."""
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- in the thread -------------------------------------------------------------------------------------

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _hang_up(self) -> None:
        self._server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)  # a connection that was closed is hung up in the next turn of the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._take(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the sender went away, or the test has ended
        finally:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; False when the connection is of no more use."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        answer = self.play(self.url(first.split(" ")[1]), headers, body)
        await asyncio.sleep(answer.after_seconds)
        return await _give(answer, writer)


async def _give(answer: Answer, writer: asyncio.StreamWriter) -> bool:
    match answer.manner:
        case Manner.ANSWERS:
            writer.write(_written(answer))
            await writer.drain()
        case Manner.DRIBBLES:
            for byte in _written(answer):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(_DRIBBLE_SECONDS)
        case Manner.SAYS_NOTHING:
            await asyncio.Event().wait()
        case Manner.RESETS:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()
            return False
    return True


def _written(answer: Answer) -> bytes:
    lines = (f"HTTP/1.1 {answer.status} Said", f"content-length: {len(answer.body)}", *answer.headers)
    return "\r\n".join((*lines, "", "")).encode() + answer.body
