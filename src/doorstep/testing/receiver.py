"""Simulated receivers: their personalities, a receiver on a real socket, and a transport without a network.

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
from msgspec.structs import replace

from doorstep.clock import SECOND, AnchoredClock, Clock, Instant
from doorstep.model.attempt import Code, Failure, Reply
from doorstep.receiver import Unverified, Webhook
from doorstep.transports.transport import Done, Transmission, Transport


class Request(NamedTuple):
    """One attempt, as the receiver saw it."""

    url: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    at: Instant
    flaw: str = ""
    """A sentence that says why the request's signature is invalid; empty if it is valid or was not verified."""

    @property
    def path(self) -> str:
        """The path of the request's URL."""
        return urlsplit(self.url).path

    @property
    def event_id(self) -> str:
        """The event's id, which is the same for all attempts."""
        return self.headers["webhook-id"]

    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)


class Manner(Enum):
    """How the receiver treats the connection."""

    ANSWERS = "answers"
    DRIBBLES = "dribbles"
    """Sends its response at one byte a second."""
    RESETS = "resets"
    SAYS_NOTHING = "says nothing"


class Answer(NamedTuple):
    """How a receiver responds to a request."""

    status: int = 200
    headers: tuple[str, ...] = ()
    """`Name: value` lines."""
    body: bytes = b""
    after_seconds: float = 0.0
    manner: Manner = Manner.ANSWERS


Personality = Callable[[Request], Answer]
"""How a receiver behaves: any function that takes a request and returns an answer."""


# -- personalities -------------------------------------------------------------------------------------------------


def ok(_: Request) -> Answer:
    """Accepts everything."""
    return Answer()


def status(code: int, *headers: str, body: bytes = b"") -> Personality:
    """Always returns the same status: `status(503, "Retry-After: 30")`."""
    return lambda _: Answer(code, headers, body)


def scripted(answers: Sequence[int | Answer]) -> Personality:
    """Returns these answers in turn, then repeats the last one."""
    left = [answer if isinstance(answer, Answer) else Answer(answer) for answer in answers]
    if not left:
        raise ValueError("scripted needs at least one answer")
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def flaky(share: float, code: int = 503, seed: int = 0) -> Personality:
    """Fails this share of the requests. With the same seed, the same requests fail in every run."""
    dice = random.Random(seed)
    return lambda _: Answer(code if dice.random() < share else 200)


def slow(span_seconds: float, then: Personality = ok) -> Personality:
    """Waits before it responds. On a socket, these are real seconds."""
    return lambda request: then(request)._replace(after_seconds=span_seconds)


def dead(_: Request) -> Answer:
    """Reads the request and never responds, so that the attempt times out."""
    return Answer(manner=Manner.SAYS_NOTHING)


def dribble(_: Request) -> Answer:
    """Responds at one byte a second, so that the attempt times out if its timeout covers the whole response."""
    return Answer(body=b"." * 60, manner=Manner.DRIBBLES)


def reset(_: Request) -> Answer:
    """Closes the connection instead of responding."""
    return Answer(manner=Manner.RESETS)


# -- receivers -----------------------------------------------------------------------------------------------------


class Player:
    """Responds according to its personalities, and records every request."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.requests: list[Request] = []
        """All requests received so far, in the order of arrival."""
        self._default: Personality = ok
        self._by_place: dict[str, Personality] = {}
        self._webhook: Webhook | None = None

    def behaves(self, personality: Personality, at: str | None = None) -> None:
        """Use this personality from now on, for all requests or only for those to the URL or path `at`."""
        if at is None:
            self._default = personality
        else:
            self._by_place[at] = personality

    def verifies(self, *secrets: str) -> None:
        """From now on, respond with 401 to requests not signed with one of these secrets; `flaw` records the reason."""
        self._webhook = Webhook(*secrets)

    def play(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer to a request; 401 if its signature is invalid."""
        request = Request(url, headers, body, self.clock.now(), self._flaw(headers, body))
        self.requests.append(request)
        personality = self._by_place.get(url) or self._by_place.get(request.path, self._default)
        return Answer(401) if request.flaw else personality(request)

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
    """A receiver on a real socket. It runs in its own thread, so it works with and without an event loop.

    To verify signatures, it needs the sandbox's clock.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock or AnchoredClock())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="receiver", daemon=True)
        self.port = 0

    def url(self, path: str = "/") -> str:
        """The URL of this receiver."""
        return f"http://127.0.0.1:{self.port}{path}"

    def open(self) -> None:
        """Listen on a free port of this machine."""
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def close(self) -> None:
        """Close all connections and stop listening."""
        asyncio.run_coroutine_threadsafe(self._close_connections(), self._loop).result()
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

    async def _close_connections(self) -> None:
        self._server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)  # the event loop closes the sockets in its next iteration

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._take(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the sender disconnected, or the test has ended
        finally:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read and answer one request. Returns False if the connection can no longer be used."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        answer = self.play(self.url(first.split(" ")[1]), headers, body)
        await asyncio.sleep(answer.after_seconds)
        return await _respond(answer, writer)


async def _respond(answer: Answer, writer: asyncio.StreamWriter) -> bool:
    match answer.manner:
        case Manner.ANSWERS:
            writer.write(_encoded(answer))
            await writer.drain()
        case Manner.DRIBBLES:
            for byte in _encoded(answer):
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


def _encoded(answer: Answer) -> bytes:
    return _head(answer, f"content-length: {len(answer.body)}", *answer.headers) + b"\r\n" + answer.body


def _head(answer: Answer, *header_lines: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {answer.status} Said", *header_lines, "")).encode()


# -- without a network ---------------------------------------------------------------------------------------------


_FAILURES = {
    Manner.SAYS_NOTHING: Failure(Code.TIMEOUT, "The receiver did not answer in time."),
    Manner.DRIBBLES: Failure(Code.TIMEOUT, "The receiver did not finish its answer in time."),
    Manner.RESETS: Failure(Code.CONNECTION, "The receiver closed the connection without an answer."),
}


class NoNetwork(Player, Transport):
    """A `Transport` that simulates every URL. Delays take no real time. If a delay is longer than the timeout, the
    attempt times out."""

    def __init__(self, clock: Clock) -> None:
        Player.__init__(self, clock)
        self._error: Exception | None = None
        self._done: Done | None = None

    def open(self, done: Done) -> None:
        """Set the function that gets the replies."""
        self._done = done

    async def close(self) -> None:
        """Report nothing from now on."""
        self._done = None

    def start(self, transmissions: Sequence[Transmission]) -> None:
        """Like a real transport, reply in a later iteration of the event loop, not immediately."""
        replies = [(transmission, self._reply(transmission)) for transmission in transmissions]
        asyncio.get_running_loop().call_soon(self._report, replies)

    def _report(self, replies: Sequence[tuple[Transmission, Reply]]) -> None:
        if self._done is not None:
            self._done(replies)

    def raise_error(self) -> None:
        """If personalities have raised exceptions since the last call, raise the first of them."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _reply(self, transmission: Transmission) -> Reply:
        pairs = (line.partition(":") for line in transmission.headers)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        answer = self._answer(transmission, headers)
        now = self.clock.now()
        reply = Reply(started_at=now, finished_at=now, request_headers=transmission.logged_headers)
        manner = Manner.SAYS_NOTHING if answer.after_seconds >= transmission.timeout_seconds else answer.manner
        if failure := _FAILURES.get(manner):
            return replace(reply, failure=failure)
        return replace(reply, status=answer.status, headers=_head(answer, *answer.headers), body=answer.body)

    def _answer(self, transmission: Transmission, headers: dict[str, str]) -> Answer:
        """If a personality raises an exception, close the connection; `drain` raises that exception when it ends."""
        try:
            return self.play(transmission.target, headers, transmission.claim.payload)
        except Exception as error:  # noqa: BLE001  the engine must continue, or the next drain would wait for this attempt
            self._error = self._error or error
            return Answer(manner=Manner.RESETS)
