"""Connections of the web server: uvicorn's protocol, with limits on all that a client can send before it shows a key.

A request is refused while it is being parsed: what exceeds a limit is neither kept nor handed to the application.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from doorstep.api.middleware import correlate, with_own_headers
from doorstep.api.problems import Problem, Refusal, respond
from doorstep.model.record import uuid7

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
_MALFORMED = "the request is not valid HTTP/1.1"


def _new_id() -> UUID:
    return uuid7(time.time_ns() // 1_000)


class _LimitExceeded(Exception):
    """Stops the parser."""


class Connection(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_bytes = 0
        self._head_count = 0
        self._unparsed_bytes = 0
        """What arrived since the parser last completed the headers, a part of the body, or a request. The parser keeps
        an incomplete header in memory without telling anybody."""
        self._in_body = False
        """Whether the headers are complete and the body is not."""
        self._refusal: Refusal | None = None
        self._discarded_bytes = 0

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
        super().on_headers_complete()
        self._unparsed_bytes = 0
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._unparsed_bytes = 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._unparsed_bytes = 0
        self._in_body = False

    # -- refusing ------------------------------------------------------------------------------------------

    def _refuse(self, problem: Problem, detail: str) -> None:
        """Accept no more requests on this connection. The request that is being read is answered with the problem,
        unless an earlier one has not been answered yet."""
        self._refusal = Refusal(problem, detail, headers={"Connection": "close"})
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._answer(self._refusal)
        elif not self._in_body:
            cycle.keep_alive = False  # its response is the last one
        elif self.pipeline or cycle.response_started:
            self.transport.close()
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
