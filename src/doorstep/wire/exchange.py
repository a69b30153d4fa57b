"""One HTTP exchange: an easy handle of curl, what has come in so far, and the reply it ends in.

Handles are used again and again, so whatever never changes is set once. The address guard is asked whenever curl
opens a connection, with the very address that it is about to connect to.
"""

from __future__ import annotations

import socket
from typing import Any, NamedTuple

import pycurl

from doorstep.clock import SECOND, Instant
from doorstep.errors import InvalidInput
from doorstep.model.outcome import Code, Failure, Reply, Timings
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.curl_failures import failure_of
from doorstep.wire.sites import Site
from doorstep.wire.transport import Transmission

_NO_EXPECT = ("Expect:",)
"""Else curl asks before it sends a large body, and waits a second for receivers that do not know the question."""
_KEPT_BYTES_MAX = 65_536
"""A resting handle holds on to its last payload if it is no larger than this."""
_CONNECTION_SECONDS_MAX = 600
"""A connection is not used for longer, so that a receiver that moves to another address is followed."""


class Limits(NamedTuple):
    body_bytes_max: int
    headers_bytes_max: int
    """For all header lines of an answer together, those of 1xx answers before it included."""


class Exchange:
    """Makes one try at a time. The transport adds `curl` to its multi handle after `begin`."""

    def __init__(self, guard: AddressGuard, limits: Limits, ca_file: str | None) -> None:
        self._guard = guard
        self._limits = limits
        self.curl = pycurl.Curl()
        self._set_constants(ca_file)

    def begin(self, transmission: Transmission, site: Site, started_at: Instant, dns: int) -> None:
        """Make ready for a try, `dns` microseconds of which have gone by; whatever curl does not accept is raised."""
        self.transmission = transmission
        self.started_at = started_at
        self._dns = dns
        self._header_lines: list[bytes] = []
        self._headers_room = self._limits.headers_bytes_max
        self._body_parts: list[bytes] = []
        self._body_room = self._limits.body_bytes_max
        self._body_cut = self._headers_cut = self._opened = False
        self._refusal: Failure | None = None
        self._plain = site.plain
        self._set_request(transmission, site)

    def reply(self, now: Instant, error: int = 0, text: str = "") -> Reply:
        """What the try ended in; `error` and `text` are curl's."""
        get = self.curl.getinfo
        return Reply(
            started_at=self.started_at,
            finished_at=now,
            timings=self._timings(get),
            request_headers=self.transmission.logged_headers,
            status=get(pycurl.RESPONSE_CODE) or None,
            headers=_last_block(b"".join(self._header_lines)),
            body=b"".join(self._body_parts),
            body_cut=self._body_cut,
            failure=self._failure(error, text) if error else None,
        )

    def rest(self) -> None:
        """Let go of what a handle in reserve need not hold."""
        if len(self.transmission.claim.payload) > _KEPT_BYTES_MAX:
            self.curl.setopt(pycurl.POSTFIELDS, b"")
        del self.transmission, self._header_lines, self._body_parts

    # -- the request ---------------------------------------------------------------------------------------

    def _set_constants(self, ca_file: str | None) -> None:
        for option, value in _CONSTANT_OPTIONS:
            self.curl.setopt(option, value)
        if ca_file is not None:
            self.curl.setopt(pycurl.CAINFO, ca_file)
        self.curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        self.curl.setopt(pycurl.HEADERFUNCTION, self._take_header)
        self.curl.setopt(pycurl.WRITEFUNCTION, self._take_body)

    def _set_request(self, transmission: Transmission, site: Site) -> None:
        setopt = self.curl.setopt
        setopt(pycurl.URL, site.url)
        self._set_headers(transmission.headers + _NO_EXPECT)
        setopt(pycurl.POSTFIELDS, transmission.claim.payload)
        left = transmission.timeout_seconds - self._dns / SECOND
        setopt(pycurl.TIMEOUT_MS, max(1, int(left * 1000)))  # 0 would be no limit at all
        if not site.name.told:
            setopt(pycurl.RESOLVE, [site.name.pinned])  # goes into the memory that all handles share
            site.name.told = True

    def _set_headers(self, lines: tuple[str, ...]) -> None:
        if not all(map(str.isprintable, lines)):
            raise InvalidInput("headers", "must not hold control characters")  # they could smuggle in another header
        try:
            self.curl.setopt(pycurl.HTTPHEADER, lines)
        except UnicodeEncodeError:
            self.curl.setopt(pycurl.HTTPHEADER, [line.encode() for line in lines])

    # -- called by curl ------------------------------------------------------------------------------------

    def _open_socket(self, _purpose: int, address: Any) -> socket.socket | int:
        ip, port = address.addr[:2]
        if reason := self._guard.judge(ip, port, plain=self._plain):
            self._refusal = Failure(
                Code.BLOCKED, f"The receiver's address was refused: {reason}.", detail=f"{ip}:{port}"
            )
            return _refused()
        try:
            opened = socket.socket(address.family, address.socktype, address.protocol)
        except OSError as error:
            self._refusal = Failure(Code.CONNECTION, "No connection could be opened on our side.", detail=str(error))
            return _refused()
        self._opened = True
        return opened

    def _take_header(self, line: bytes) -> int | None:
        self._headers_room -= len(line)
        if self._headers_room < 0:
            self._headers_cut = True
            return _STOP
        self._header_lines.append(line)
        return None

    def _take_body(self, chunk: bytes) -> int | None:
        if len(chunk) > self._body_room:
            self._body_parts.append(chunk[: self._body_room])
            self._body_cut = True
            return _STOP
        self._body_room -= len(chunk)
        self._body_parts.append(chunk)
        return None

    # -- the reply -----------------------------------------------------------------------------------------

    def _failure(self, error: int, text: str) -> Failure | None:
        if self._body_cut:
            return None  # we stopped reading by ourselves; the answer counts
        if self._headers_cut:
            limit = self._limits.headers_bytes_max
            return Failure(Code.BAD_RESPONSE, f"The receiver sent more than {limit} bytes of headers.")
        if self._refusal is not None and not self._opened:
            return self._refusal
        return failure_of(error, text, self.transmission.timeout_seconds)

    def _timings(self, get: Any) -> Timings:
        dns = self._dns
        first_byte = get(pycurl.STARTTRANSFER_TIME_T)
        first_byte += dns if first_byte else 0
        if not self._opened:  # a connection that stood already: curl's other times mean nothing
            return Timings(dns, first_byte=first_byte)
        connect, tls = get(pycurl.CONNECT_TIME_T), get(pycurl.APPCONNECT_TIME_T)
        return Timings(dns, connect and dns + connect, tls and dns + tls, first_byte)


_STOP = 0
"""Returned from a callback: fewer bytes taken than given, which makes curl end the transfer."""


def _refused() -> int:
    bad: int = pycurl.SOCKET_BAD
    return bad


def _last_block(headers: bytes) -> bytes:
    """The status line and headers of the final answer, without those of 1xx answers before it."""
    at = headers.rfind(b"\r\n\r\nHTTP/")
    return headers if at < 0 else headers[at + 4 :]


_CONSTANT_OPTIONS: tuple[tuple[int, object], ...] = (
    (pycurl.POST, 1),
    (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
    (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
    (pycurl.FOLLOWLOCATION, 0),
    (pycurl.PROXY, ""),
    (pycurl.NOPROXY, "*"),
    (pycurl.NETRC, pycurl.NETRC_IGNORED),
    (pycurl.HTTP_CONTENT_DECODING, 0),
    (pycurl.HTTP09_ALLOWED, 0),
    (pycurl.SSL_VERIFYPEER, 1),
    (pycurl.SSL_VERIFYHOST, 2),
    (pycurl.MAXLIFETIME_CONN, _CONNECTION_SECONDS_MAX),
    (pycurl.NOSIGNAL, 1),
)
