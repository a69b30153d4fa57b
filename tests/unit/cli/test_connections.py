"""The limits on one connection, with a transport that only records: what is refused, and what is kept in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from doorstep.api.middleware import IDENTIFIED
from doorstep.cli.connection_limits import ConnectionLimits, Connections
from doorstep.cli.connections import HEAD_BYTES_MAX, HEADERS_MAX, LINE_BYTES_MAX, PIPELINED_MAX, Connection
from doorstep.cli.load_shedding import LoadShedder
from doorstep.telemetry.timings import Closing, Timings


class Transport(asyncio.Transport):
    """Records what the server sends, and whether it has closed the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False
        self.ended = False

    def write(self, data: Any) -> None:
        self.sent += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    @property
    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.sent.split(b"HTTP/1.1 ")[1:]]


class Application:
    """Answers every request with 200 once the gate is open, and remembers its headers."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.requests: list[list[tuple[bytes, bytes]]] = []
        self.bodies: list[dict[str, Any]] = []
        self.scopes: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests.append(scope["headers"])
        self.scopes.append(scope)
        await self.gate.wait()
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        self.bodies.append(message)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})


class Client:
    """A client of one connection, and the application that answers it."""

    def __init__(self, limits: ConnectionLimits | None = None, shedder: LoadShedder | None = None) -> None:
        self.application = Application()
        self.connections = Connections(limits or ConnectionLimits())
        self.connection = Connection(
            connections=self.connections,
            shedder=shedder,
            config=uvicorn.Config(self.application, ws="none", log_config=None),
            server_state=ServerState(),
            app_state={},
        )
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)

    async def statuses(self) -> list[int]:
        for _ in range(200):
            await asyncio.sleep(0)
        return self.transport.statuses


@pytest.fixture
async def client() -> Client:
    return Client()


def request(*headers: bytes, path: bytes = b"/", body: bytes = b"") -> bytes:
    return b"\r\n".join(
        [b"POST %b HTTP/1.1" % path, b"Host: x", *headers, b"Content-Length: %d" % len(body), b"", body]
    )


async def test_headers_within_the_limits_reach_the_application(client: Client) -> None:
    client.send(request(*[b"X-%d: a" % number for number in range(HEADERS_MAX - 2)]))
    assert await client.statuses() == [200]
    client.send(request(b"X-Long: " + b"a" * (LINE_BYTES_MAX - 20), path=b"/" + b"a" * 10_000))
    assert await client.statuses() == [200, 200]
    assert not client.transport.closed


TOO_MUCH = {
    "many headers": request(*[b"X-%d: a" % number for number in range(HEADERS_MAX)]),
    "a long header": request(b"X-Long: " + b"a" * LINE_BYTES_MAX),
    "a long name": request(b"X" * LINE_BYTES_MAX + b": a"),
    "a long URL": request(path=b"/" + b"a" * LINE_BYTES_MAX),
    "long headers together": request(*[b"X-%d: " % number + b"a" * 9_000 for number in range(4)]),
}


@pytest.mark.parametrize("sent", TOO_MUCH.values(), ids=TOO_MUCH.keys())
@pytest.mark.parametrize("size", [1_000_000, 1_000], ids=["at once", "in pieces"])
async def test_headers_beyond_a_limit_are_refused_before_the_application_sees_them(
    client: Client, sent: bytes, size: int
) -> None:
    for start in range(0, len(sent), size):
        client.send(sent[start : start + size])
    assert await client.statuses() == [431]
    assert client.application.requests == []
    assert b"urn:doorstep:problem:headers_too_large" in client.transport.sent
    assert b"connection: close" in client.transport.sent.lower()
    assert client.transport.ended


@pytest.mark.parametrize(
    "endless",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Endless: ",
        b"GET /",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Trailer: ",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;extension=",
    ],
    ids=["a header", "the URL", "headers", "a trailer", "a chunk extension"],
)
async def test_what_never_ends_is_refused_after_the_limit_and_its_rest_discarded(
    client: Client, endless: bytes
) -> None:
    client.application.gate.clear()
    piece = b"X-A: a\r\n" * 100 if endless.endswith(b"x\r\n") else b"a" * 1_000
    client.send(endless)
    sent = 0
    while not client.transport.sent:
        client.send(piece)
        sent += len(piece)
        assert sent <= HEAD_BYTES_MAX + len(piece)
    assert await client.statuses() == [431]
    while not client.transport.closed:  # the client does not stop
        client.send(b"a" * 65_536)
        sent += 65_536
    assert sent < 2 * 1024 * 1024


async def test_a_large_body_in_small_chunks_is_no_header(client: Client) -> None:
    client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(100):
        client.send(b"3e8\r\n%b\r\n" % (b"a" * 1_000))
    client.send(b"0\r\n\r\n")
    assert await client.statuses() == [200]


async def test_a_trailer_does_not_become_a_header(client: Client) -> None:
    client.send(
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Api-Key: secret\r\n\r\n"
    )
    assert await client.statuses() == [200]
    assert [name for name, _ in client.application.requests[0]] == [b"host", b"transfer-encoding"]


async def test_requests_that_wait_for_an_earlier_response_are_limited_and_the_first_ones_answered(
    client: Client,
) -> None:
    client.application.gate.clear()
    client.send(request() * 10_000)
    assert len(client.connection.pipeline) <= PIPELINED_MAX
    client.application.gate.set()
    assert await client.statuses() == [200] * (PIPELINED_MAX + 1)
    assert client.transport.closed


async def test_the_limits_hold_for_every_request_of_a_connection(client: Client) -> None:
    client.send(request())
    assert await client.statuses() == [200]
    client.send(request(b"X-Long: " + b"a" * LINE_BYTES_MAX))
    assert await client.statuses() == [200, 431]


async def test_a_request_behind_a_running_one_is_not_answered_in_its_place(client: Client) -> None:
    client.application.gate.clear()
    client.send(request())
    await asyncio.sleep(0)
    client.send(request(b"X-Long: " + b"a" * LINE_BYTES_MAX))
    assert client.transport.sent == b""
    client.application.gate.set()
    assert await client.statuses() == [200]
    assert client.transport.closed


async def test_a_body_that_is_not_valid_is_refused_and_its_request_ends(client: Client) -> None:
    client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    await asyncio.sleep(0)
    client.send(b"not a size\r\n")
    assert await client.statuses() == [400]
    assert [one["type"] for one in client.application.bodies] == ["http.disconnect"]


async def test_what_is_not_http_gets_a_problem(client: Client) -> None:
    client.send(b"\x16\x03\x01 hello\r\n\r\n")
    assert await client.statuses() == [400]
    assert b"application/problem+json" in client.transport.sent


# -- clients that do not go on ---------------------------------------------------------------------------------

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
NOW = ConnectionLimits(header_seconds=0, body_seconds=0, idle_seconds=0)
"""No client is as fast as this."""


@pytest.mark.parametrize(
    ("sent", "statuses", "reason"),
    [
        (b"", [], Closing.HEADER_TIMEOUT),
        (b"POST ", [408], Closing.HEADER_TIMEOUT),
        (HEAD + b"X-A: ", [408], Closing.HEADER_TIMEOUT),
        (HEAD + b"Content-Length: 5\r\n\r\nab", [408], Closing.BODY_TIMEOUT),
        (request(), [200], Closing.IDLE),
        (request() + b"POST", [200, 408], Closing.HEADER_TIMEOUT),
    ],
    ids=["nothing", "a part of a line", "a part of the headers", "a part of the body", "nothing more", "half of more"],
)
async def test_a_connection_whose_client_does_not_go_on_is_closed(
    sent: bytes, statuses: list[int], reason: Closing
) -> None:
    client = Client(NOW)
    if sent:
        client.send(sent)
    for _ in range(20):
        await asyncio.sleep(0)
    client.connections.sweep()
    assert await client.statuses() == statuses
    assert client.transport.closed or client.transport.ended
    assert client.connections.counts.closed[reason] == 1


async def test_a_connection_whose_request_is_being_answered_has_all_the_time_it_needs() -> None:
    client = Client(NOW)
    client.application.gate.clear()
    client.send(request(body=b"abc"))
    await asyncio.sleep(0)
    client.connections.sweep()
    client.application.gate.set()
    assert await client.statuses() == [200]


async def test_a_client_that_does_not_read_its_response_is_disconnected() -> None:
    client = Client(NOW)
    client.application.gate.clear()
    client.send(request())
    client.connection.pause_writing()  # called by the transport when its buffer is full
    client.connections.sweep()
    assert client.transport.closed
    client.connection.connection_lost(None)


async def test_a_body_may_take_its_time_while_it_keeps_coming_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    for module in ("connections", "connection_limits"):
        monkeypatch.setattr(f"doorstep.cli.{module}.monotonic", lambda: now)
    client = Client(ConnectionLimits(body_seconds=30))
    client.send(HEAD + b"Content-Length: 20000000\r\n\r\n")
    for _ in range(50):  # 20 KiB a second
        now += 10
        client.send(b"a" * 204_800)
        client.connections.sweep()
        assert client.transport.statuses == []
    dripped = 0
    while not client.transport.statuses and dripped < 50:
        now += 20
        client.send(b"a")
        client.connections.sweep()
        dripped += 1
    assert client.transport.statuses == [408]


async def test_only_the_health_may_be_asked_for_when_there_are_too_many_connections(client: Client) -> None:
    client.connection.health_only = True
    client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await client.statuses() == [200]
    assert client.transport.closed
    other = Client()
    other.connection.health_only = True
    other.send(request())
    assert await other.statuses() == [429]
    assert b"retry-after: 1" in other.transport.sent.lower()


async def test_a_connection_counts_as_identified_once_the_application_says_so(client: Client) -> None:
    client.send(request())
    assert await client.statuses() == [200]
    client.application.scopes[0][IDENTIFIED]()
    assert (client.connections.counts.identified, client.connections.counts.keyless) == (1, 0)
    client.connection.connection_lost(None)
    assert (client.connections.counts.identified, client.connections.counts.keyless) == (0, 0)


# -- too much load ---------------------------------------------------------------------------------------------

SEND = request(path=b"/v1/events", body=b"abc")


@pytest.fixture
def shedder(monkeypatch: pytest.MonkeyPatch) -> LoadShedder:
    """One that has room for two requests, and whose refusals are not held back."""
    monkeypatch.setattr("doorstep.cli.connections.REFUSED_AFTER_SECONDS", 0.0)
    made = LoadShedder(0.3, Timings(), lambda: 0.0, lambda *_, **__: None)
    made.limit = 2.0
    return made


async def test_only_requests_that_send_events_are_refused_under_load_and_their_connection_stays_usable(
    shedder: LoadShedder,
) -> None:
    busy = [Client(shedder=shedder) for _ in range(2)]
    for one in busy:
        one.application.gate.clear()
        one.send(SEND)
    client = Client(shedder=shedder)
    client.send(request(b"X-Correlation-Id: mine", path=b"/v1/events", body=b"a" * 100_000))
    assert await client.statuses() == [429]
    assert client.application.requests == []
    head = client.transport.sent.lower()
    assert b"retry-after: " in head and b"x-correlation-id: mine" in head
    assert client.connection.flow.read_paused is False and client.connection._in_body is False
    for one in (request(path=b"/healthz"), SEND.replace(b"POST", b"GET"), request(path=b"/v1/endpoints")):
        client.send(one)
        await client.statuses()
    assert await client.statuses() == [429, 200, 200, 200]
    for one in busy:
        one.application.gate.set()
        assert await one.statuses() == [200]
    assert shedder.in_progress == 0
    client.send(SEND)
    assert await client.statuses() == [429, 200, 200, 200, 200]
    assert not client.transport.closed
    assert {kind.status for kind in shedder._timings.requests} == {429}


async def test_responses_keep_the_order_of_their_requests_if_one_is_refused(shedder: LoadShedder) -> None:
    shedder.limit = 0.0
    client = Client(shedder=shedder)
    client.send(SEND + request() + SEND + request())
    statuses = await client.statuses()
    assert statuses == [429, 200, 200, 200], "requests behind an unanswered one are not refused"


async def test_a_request_that_never_becomes_complete_takes_nobodys_place(shedder: LoadShedder) -> None:
    for _ in range(10):
        Client(shedder=shedder).send(SEND[:-1])
    await asyncio.sleep(0)
    assert shedder.in_progress == 0
    client = Client(shedder=shedder)
    client.send(SEND)
    assert await client.statuses() == [200]


async def test_a_client_that_leaves_gives_its_place_back(shedder: LoadShedder) -> None:
    client = Client(shedder=shedder)
    client.application.gate.clear()
    client.send(SEND)
    await asyncio.sleep(0)
    assert shedder.in_progress == 1
    client.connection.connection_lost(None)
    client.application.gate.set()
    await client.statuses()
    assert shedder.in_progress == 0


async def test_a_refused_client_that_asked_for_it_is_disconnected(shedder: LoadShedder) -> None:
    shedder.limit = 0.0
    client = Client(shedder=shedder)
    client.send(request(b"Connection: close", path=b"/v1/events"))
    assert await client.statuses() == [429]
    assert client.transport.closed


async def test_a_refused_body_that_does_not_end_is_given_up(shedder: LoadShedder) -> None:
    shedder.limit = 0.0
    client = Client(NOW, shedder)
    client.send(SEND[:-1])
    client.connections.sweep()
    assert client.transport.closed
