"""Connections of the web server: uvicorn's protocol, with limits on all that a client can send before it shows a key.

A request is refused while it is being parsed: what exceeds a limit is neither kept nor handed to the application.
"""

from __future__ import annotations

import asyncio
import math
from time import monotonic, time_ns
from typing import Any
from uuid import UUID

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from doorstep.api.middleware import IDENTIFIED, client_of, correlate, with_own_headers
from doorstep.api.problems import Problem, Refusal, respond
from doorstep.cli.connection_limits import Connections
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
_MALFORMED = "the request is not valid HTTP/1.1"


def _new_id() -> UUID:
    return uuid7(time_ns() // 1_000)


class _LimitExceeded(Exception):
    """Stops the parser."""


class Connection(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(self, *args: Any, connections: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections = connections
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
        return cycle is not None and not (cycle.response_complete or self._in_body or self.flow.write_paused)

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
        super().on_headers_complete()
        self.cycle.keep_alive = self.cycle.keep_alive and not self.health_only
        self._unparsed_bytes = 0
        self._in_head, self._in_body = False, True
        self._body_until = self.deadline = monotonic() + self._limits.body_seconds

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._unparsed_bytes = 0
        self._body_until += len(body) / _BODY_BYTES_PER_SECOND_MIN
        self.deadline = min(self._body_until, monotonic() + self._limits.body_seconds)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._unparsed_bytes = 0
        self._in_body = False
        self.deadline = math.inf

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

    # -- refusing ------------------------------------------------------------------------------------------

    def _refuse(self, problem: Problem, detail: str, reason: Closing = Closing.INVALID) -> None:
        """Accept no more requests on this connection. The request that is being read is answered with the problem,
        unless an earlier one has not been answered yet."""
        headers = {"Connection": "close"} | ({"Retry-After": "1"} if problem is Problem.OVERLOADED else {})
        self._refusal = Refusal(problem, detail, headers=headers)
        self._connections.closed(reason)
        self.deadline = monotonic() + self._limits.body_seconds
        cycle = self.cycle
        if self._in_body and (cycle.response_started or self.pipeline):
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
        response = respond(refusal)
        correlation_id, _ = correlate(None, _new_id)
        headers = with_own_headers(response.raw_headers, correlation_id)
        lines = [name + b": " + value + b"\r\n" for name, value in (*self.server_state.default_headers, *headers)]
        head = STATUS_LINE[response.status_code] + b"".join(lines) + b"\r\n"
        self.transport.write(head + bytes(response.body))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _discard(self, data: bytes) -> None:
        self._discarded_bytes += len(data)
        if self._discarded_bytes > _LINGER_BYTES_MAX:
            self.transport.close()
