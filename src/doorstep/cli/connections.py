"""Connections of the web server: uvicorn's protocol, with limits on all that a client can send before it shows a key.

A request is refused while it is being parsed: what exceeds a limit is neither kept nor handed to the application.
"""

from __future__ import annotations

import asyncio
import math
from functools import cache
from random import randint
from time import monotonic, time_ns
from typing import Any, NamedTuple
from uuid import UUID

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from doorstep.api.middleware import HEADER, IDENTIFIED, STATUS, client_of, correlate, with_own_headers
from doorstep.api.problems import Problem, Refusal, respond
from doorstep.cli.connection_limits import Connections
from doorstep.cli.load_shedding import PATHS, REFUSED_AFTER_SECONDS, LoadShedder
from doorstep.model.record import uuid7
from doorstep.telemetry.timings import Closing

HEAD_BYTES_MAX = 32 * 1024
"""The request line and all headers together. Browsers send less than 4 KiB to the console; nginx and Node.js accept
32 and 16 KiB."""
LINE_BYTES_MAX = 16 * 1024
"""The URL, or one header."""
HEADERS_MAX = 100
PIPELINED_MAX = 32
"""How many requests of one connection may wait for the response to an earlier one. A single read of 256 KiB can contain
10,000 small requests."""
_LINGER_SECONDS = 1.0
_LINGER_BYTES_MAX = 1024 * 1024
"""After a refusal, input is discarded for this long and up to this size. If the server closed the connection with
unread input, the client's system would discard the response before the client reads it."""

_HEADS = f"the URL and each header may have at most {LINE_BYTES_MAX} bytes, all of them {HEAD_BYTES_MAX}"
_COUNT = f"a request may have at most {HEADERS_MAX} headers"
_SLOW = "the request took too long to arrive"
_FULL = "there are too many connections; try again in a moment"
_HEALTH = frozenset({b"/healthz", b"/readyz", b"/metrics"})
_BODY_BYTES_PER_SECOND_MIN = 10 * 1024
_LOADED = "more events arrive than can be stored in time; nothing was stored, send this again later"
_RETRY_AFTER_SECONDS = (1, 3)
"""Chosen at random, so that not all clients come back at the same moment."""
_STORED = (202, 207)
_COMPLETE_AT = "doorstep.complete_at"
"""The key under which the scope of a request to send events contains the time at which it was complete; 0 before."""
_MALFORMED = "the request is not valid HTTP/1.1"


def _new_id() -> UUID:
    return uuid7(time_ns() // 1_000)


class _Held(NamedTuple):
    """A refusal that is held back."""

    path: bytes
    correlation_id: str
    keep_alive: bool
    since: float


class _LimitExceeded(Exception):
    """Stops the parser."""


@cache
def _shed_template() -> bytes:
    """The refusal of a request under load. It is encoded once, because it must cost as little as possible."""
    response = respond(Refusal(Problem.OVERLOADED, _LOADED))
    headers = with_own_headers(response.raw_headers, "")
    lines = [name + b": " + value + b"\r\n" for name, value in headers if name != HEADER.encode()]
    given = b"%b%bretry-after: %d\r\n" + HEADER.encode() + b": %b\r\n"
    rest = b"".join(lines) + b"\r\n" + bytes(response.body)
    return STATUS_LINE[response.status_code] + given + rest.replace(b"%", b"%%")


class Connection(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(
        self, *args: Any, connections: Connections, shedder: LoadShedder | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._connections = connections
        self._shedder = shedder
        self._application = self.app
        self._is_shed = False
        """Whether the request that is being read will be refused."""
        self._held: _Held | None = None
        self._limits = connections.limits
        self.address = ""
        self.deadline = math.inf
        self.opened_at = monotonic()
        self.health_only = False
        self._body_until = 0.0
        self._is_identified = False
        self._in_head = False
        self._head_bytes = 0
        self._head_count = 0
        self._unparsed_bytes = 0
        """What arrived since the parser last completed the headers, a part of the body, or a request. The parser keeps
        an incomplete header in memory without telling anybody."""
        self._in_body = False
        """Whether the headers are complete and the body is not."""
        self._refusal: Refusal | None = None
        self._discarded_bytes = 0

    # -- opening and closing ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.address = client_of({"client": self.client})
        self._expect_head()
        if self._connections.add(self):
            self.loop.call_soon(self._connections.make_room)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)

    def identify(self) -> None:
        """Called by the application for a request with a valid key."""
        if not self._is_identified and not self.transport.is_closing():
            self._is_identified = True
            self._connections.identify(self)

    @property
    def is_answering(self) -> bool:
        cycle = self.cycle
        return (
            self._held is not None
            or cycle is not None
            and not (cycle.response_complete or self._in_body or self.flow.write_paused)
        )

    def hang_up(self) -> None:
        self.transport.abort()

    def expire(self) -> None:
        if self._refusal is not None or self.flow.write_paused:
            self._connections.closed(Closing.BODY_TIMEOUT)
            self.hang_up()
        elif self._in_head or self._in_body:
            self._refuse(Problem.TIMEOUT, _SLOW, Closing.BODY_TIMEOUT if self._in_body else Closing.HEADER_TIMEOUT)
        else:
            self._connections.closed(Closing.HEADER_TIMEOUT if self.cycle is None else Closing.IDLE)
            self.hang_up()

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self._connections.closed(Closing.IDLE)
            self.hang_up()

    def _expect_head(self) -> None:
        self.deadline = monotonic() + self._limits.header_seconds

    # -- reading -------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            self._discard(data)
            return
        self._unset_keepalive_if_required()
        self._unparsed_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # no other protocol is supported; the request is answered like any other
        except httptools.HttpParserError as error:
            found = error.__context__
            self._refuse(*found.args if isinstance(found, _LimitExceeded) else (Problem.BAD_REQUEST, _MALFORMED))
        if self._unparsed_bytes > HEAD_BYTES_MAX and self._refusal is None:
            self._refuse(Problem.HEADERS_TOO_LARGE, _HEADS)

    def on_message_begin(self) -> None:
        self._send_held()
        if len(self.pipeline) >= PIPELINED_MAX:
            raise _LimitExceeded(Problem.OVERLOADED, f"at most {PIPELINED_MAX} requests of a connection may wait")
        super().on_message_begin()
        self._head_bytes = self._head_count = 0
        self._in_head = True
        if not self.is_answering:
            self._expect_head()
        if not self._is_identified:
            self.scope[IDENTIFIED] = self.identify  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        self._count(len(url), self._head_bytes + len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name) + len(value) + len(b": \r\n")
        self._count(size, size)
        self._head_count += 1
        if self._head_count > HEADERS_MAX:
            raise _LimitExceeded(Problem.HEADERS_TOO_LARGE, _COUNT)
        if not self._in_body:  # a trailer is not one of the headers, which may already have been read
            super().on_header(name, value)

    def _count(self, size: int, line: int) -> None:
        self._head_bytes += size
        if line > LINE_BYTES_MAX or self._head_bytes > HEAD_BYTES_MAX:
            raise _LimitExceeded(Problem.HEADERS_TOO_LARGE, _HEADS)

    def on_headers_complete(self) -> None:
        if self.health_only and self.url.partition(b"?")[0] not in _HEALTH:
            raise _LimitExceeded(Problem.OVERLOADED, _FULL, Closing.REFUSED)
        if self._shedder is not None and self.url in PATHS and self.parser.get_method() == b"POST":
            self._begin_sending(self._shedder)
        else:
            super().on_headers_complete()
        if self.health_only:
            self.cycle.keep_alive = False
        self._unparsed_bytes = 0
        self._in_head, self._in_body = False, True
        self._body_until = self.deadline = monotonic() + self._limits.body_seconds

    def _begin_sending(self, shedder: LoadShedder) -> None:
        is_first = self.cycle is None or self.cycle.response_complete
        if is_first and not self.expect_100_continue and shedder.refuses():
            self._is_shed = True
            return
        if is_first:
            self.app = self._send_event
            self.scope[_COMPLETE_AT] = 0.0  # type: ignore[literal-required]
        super().on_headers_complete()
        self.app = self._application

    async def _send_event(self, scope: Any, receive: Any, send: Any) -> None:
        """The application, with the request counted as in progress from the moment in which it is complete. A client
        that never completes its request must not keep others out."""
        assert self._shedder is not None
        try:
            await self._application(scope, receive, send)
        finally:
            if complete_at := scope.pop(_COMPLETE_AT):
                self._shedder.end(monotonic() - complete_at, stored=scope.get(STATUS) in _STORED)

    def on_body(self, body: bytes) -> None:
        if not self._is_shed:
            super().on_body(body)
        self._unparsed_bytes = 0
        self._body_until += len(body) / _BODY_BYTES_PER_SECOND_MIN
        self.deadline = min(self._body_until, monotonic() + self._limits.body_seconds)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        self._in_body = False
        self.deadline = math.inf
        if self._is_shed:
            self._is_shed = False
            self._hold()
            return
        super().on_message_complete()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        if self._shedder is not None and _COMPLETE_AT in scope:
            scope[_COMPLETE_AT] = monotonic()
            self._shedder.begin()

    # -- responding ----------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_head:
            self._expect_head()
        elif not self.is_answering and not self._in_body:
            self.deadline = monotonic() + self._limits.idle_seconds

    def pause_writing(self) -> None:
        super().pause_writing()
        self.deadline = monotonic() + self._limits.body_seconds

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._in_body and self._refusal is None:
            self.deadline = math.inf if self.is_answering else monotonic() + self._limits.idle_seconds

    def shutdown(self) -> None:
        self._send_held()
        super().shutdown()

    # -- refusing because of too much load -----------------------------------------------------------------

    def _hold(self) -> None:
        given = next((value for name, value in self.headers if name == HEADER.encode()), None)
        correlation_id, _ = correlate(None if given is None else given.decode("latin-1"), _new_id)
        self._held = held = _Held(self.url, correlation_id, bool(self.parser.should_keep_alive()), monotonic())
        self.loop.call_later(REFUSED_AFTER_SECONDS, self._send_held, held)

    def _send_held(self, only: _Held | None = None) -> None:
        held = self._held
        if held is None or only not in (None, held) or self.transport.is_closing():
            return
        self._held = None
        dates = b"".join(name + b": " + value + b"\r\n" for name, value in self.server_state.default_headers)
        close = b"" if held.keep_alive else b"connection: close\r\n"
        content = (dates, close, randint(*_RETRY_AFTER_SECONDS), held.correlation_id.encode())
        self.transport.write(_shed_template() % content)
        if self._shedder is not None:
            self._shedder.refused(held.path, monotonic() - held.since)
        self.deadline = monotonic() + self._limits.idle_seconds
        if not held.keep_alive:
            self.transport.close()

    # -- refusing ------------------------------------------------------------------------------------------

    def _refuse(self, problem: Problem, detail: str, reason: Closing = Closing.INVALID) -> None:
        """Accept no more requests on this connection. The request that is being read is answered with the problem,
        unless an earlier one has not been answered yet."""
        self._send_held()
        headers = {"Connection": "close"} | ({"Retry-After": "1"} if problem is Problem.OVERLOADED else {})
        self._refusal = Refusal(problem, detail, headers=headers)
        self._connections.closed(reason)
        self.deadline = monotonic() + self._limits.body_seconds
        cycle = self.cycle
        if self._in_body and (self._is_shed or self.pipeline or cycle.response_started):
            self.transport.close()  # this request, or one before it, is already being answered
        elif cycle is None or cycle.response_complete:
            self._answer(self._refusal)
        elif not self._in_body:
            cycle.keep_alive = False  # its response is the last one
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._answer(self._refusal)

    def _answer(self, refusal: Refusal) -> None:
        self.transport.write(self._encoded(refusal, str(_new_id())))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _encoded(self, refusal: Refusal, correlation_id: str) -> bytes:
        response = respond(refusal)
        headers = with_own_headers(response.raw_headers, correlation_id)
        lines = [name + b": " + value + b"\r\n" for name, value in (*self.server_state.default_headers, *headers)]
        head = STATUS_LINE[response.status_code] + b"".join(lines) + b"\r\n"
        return head + bytes(response.body)

    def _discard(self, data: bytes) -> None:
        self._discarded_bytes += len(data)
        if self._discarded_bytes > _LINGER_BYTES_MAX:
            self.transport.close()
