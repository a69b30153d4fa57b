"""Deliveries over HTTP. An attempt waits for a free connection, then until its host name is resolved, and then runs in
curl.

The transport works in rounds. Each round serves the sockets that are ready, starts waiting attempts and reports
attempts that have ended; this file is in the same order. All of this runs on the event loop. Only host names are
resolved in threads (dns_cache.py).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pycurl

from doorstep.clock import SECOND, Clock, Instant
from doorstep.errors import ConfigError, InvalidInput
from doorstep.model.attempt import Code, Failure, Reply, Timings
from doorstep.telemetry.redaction import safe_message
from doorstep.transports.address_guard import AddressGuard, Resolve, system_resolve
from doorstep.transports.curl_loop import CurlLoop
from doorstep.transports.dns_cache import DnsCache, Name, ResolvedUrl
from doorstep.transports.shortages import shortage_now, shortage_of
from doorstep.transports.transport import BODY_BYTES_MAX, Done, Transmission, Transport

_BEGIN_MAX = 64
"""The maximum number of attempts started in one round, before the event loop continues. When 512 slots became free at
the same time, the longest round took 14 to 15 ms of CPU time. Without this limit it took 24 to 26 ms (three runs
each)."""


class HttpTransport(Transport):
    """A `Transport` for URLs. At most `connections_max` attempts run at the same time. The others wait, and the timeout
    of each starts only when its wait is over."""

    def __init__(
        self,
        guard: AddressGuard,
        clock: Clock,
        *,
        connections_max: int = 512,
        body_bytes_max: int = BODY_BYTES_MAX,
        ca_file: str | None = None,
        resolve: Resolve = system_resolve,
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._connections_max = connections_max
        self._body_bytes_max = body_bytes_max
        self._ca_file = _ca_file(ca_file)
        self._resolve = resolve
        self._waiting: deque[Transmission] = deque()
        self._parked: dict[Name, list[_Parked]] = {}
        self._parked_count = 0
        self._found: list[Name] = []
        self._running: dict[Any, Exchange] = {}
        self._resting: list[Exchange] = []
        self._replies: list[tuple[Transmission, Reply]] = []
        self._scheduled = False
        self._opened = False

    # -- Transport -----------------------------------------------------------------------------------------

    def open(self, done: Done) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = done
        self._sites = DnsCache(self._loop, self._resolve, self._on_found)
        self._curl = CurlLoop(self._loop, self._connections_max, self._round)
        self._opened = True

    def start(self, transmissions: Sequence[Transmission]) -> None:
        """Start attempts. May be called from any thread."""
        self._waiting.extend(transmissions)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._round)

    async def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        self._waiting.clear()
        for parked in chain.from_iterable(self._parked.values()):
            parked.timer.cancel()
        self._parked.clear()
        self._sites.close()
        self._curl.close(self._running)
        for exchange in [*self._running.values(), *self._resting]:
            exchange.curl.close()
        self._running.clear()
        self._resting.clear()

    # -- one round -----------------------------------------------------------------------------------------

    def _round(self, ready: Sequence[tuple[int, int]] = ()) -> None:
        self._scheduled = False
        if not self._opened:
            return
        try:
            self._drive(ready)
        except Exception as error:  # noqa: BLE001  each attempt must end with a reply, even after an unexpected error
            self._curl.trouble = safe_message(error)
        if self._curl.trouble:
            self._start_over()
        self._curl.set_timer()
        if self._waiting and self._room > 0:
            self.start(())
        if self._replies:
            replies, self._replies = self._replies, []
            self._done(replies)

    def _drive(self, ready: Sequence[tuple[int, int]]) -> None:
        self._curl.serve(ready)
        now = self._clock.now()
        while self._found:
            self._resume(self._found.pop(), now)
        for _ in range(min(len(self._waiting), self._room, _BEGIN_MAX)):
            self._begin(self._waiting.popleft(), now)
        self._curl.serve_due()
        now = self._clock.now()
        for curl, error, text in self._curl.ended():
            self._end(self._running[curl], now, error, text)

    @property
    def _room(self) -> int:
        return self._connections_max - len(self._running) - self._parked_count

    # -- beginning -----------------------------------------------------------------------------------------

    def _begin(self, transmission: Transmission, now: Instant) -> None:
        try:
            site = self._sites.site(transmission.target)
        except InvalidInput as error:
            failure = Failure(Code.BLOCKED, f"The endpoint's URL {error.message}.")
            self._report(transmission, failure, now, now)
            return
        if self._sites.is_usable(site.name, self._loop.time()):
            self._send(transmission, site, now, 0)
        else:
            self._park(transmission, site, now)

    def _send(self, transmission: Transmission, site: ResolvedUrl, started_at: Instant, dns: int) -> None:
        """Pass an attempt to curl. `dns` is the time that it took to resolve the host name, in microseconds."""
        exchange = self._resting.pop() if self._resting else Exchange(self._guard, self._body_bytes_max, self._ca_file)
        try:
            exchange.begin(transmission, site, started_at, dns)
        except Exception as error:  # noqa: BLE001  curl, pycurl or Python's encoding may reject the request
            exchange.curl.close()
            failure = Failure(Code.BLOCKED, "The request cannot be sent as it is.", detail=_without_values(error))
            self._report(transmission, failure, started_at, self._clock.now())
            return
        self._running[exchange.curl] = exchange
        self._curl.add(exchange.curl)

    # -- waiting for a name --------------------------------------------------------------------------------

    def _park(self, transmission: Transmission, site: ResolvedUrl, now: Instant) -> None:
        parked = _Parked(transmission, site, now)
        parked.timer = self._loop.call_later(transmission.timeout_seconds, self._time_out, parked)
        self._parked.setdefault(site.name, []).append(parked)
        self._parked_count += 1

    def _on_found(self, name: Name) -> None:
        self._found.append(name)
        self._round()

    def _resume(self, name: Name, now: Instant) -> None:
        for parked in self._parked.pop(name, ()):
            parked.timer.cancel()
            self._parked_count -= 1
            if name.trouble:
                failure = dns_failure(name.trouble)
                self._report(parked.transmission, failure, parked.started_at, now, name.shortage)
            else:
                self._send(parked.transmission, parked.site, parked.started_at, now - parked.started_at)

    def _time_out(self, parked: _Parked) -> None:
        self._parked[parked.site.name].remove(parked)
        self._parked_count -= 1
        failure = timeout_failure(parked.transmission.timeout_seconds, "the name was not resolved in time")
        self._report(parked.transmission, failure, parked.started_at, self._clock.now())
        self._round()

    # -- ending --------------------------------------------------------------------------------------------

    def _end(self, exchange: Exchange, now: Instant, error: int, text: str) -> None:
        self._replies.append((exchange.transmission, exchange.reply(now, error, text)))
        del self._running[exchange.curl]
        if error:
            exchange.curl.close()  # a new handle costs a few µs and cannot be affected by this error
        else:
            exchange.rest()
            self._resting.append(exchange)

    def _report(
        self, transmission: Transmission, failure: Failure, started_at: Instant, now: Instant, shortage: str = ""
    ) -> None:
        """Report an attempt that failed before or outside its curl transfer."""
        headers = transmission.logged_headers
        reply = Reply(
            started_at=started_at, finished_at=now, request_headers=headers, failure=failure, shortage=shortage
        )
        self._replies.append((transmission, reply))

    def _start_over(self) -> None:
        """Fail the running attempts and replace the multi handle, because a broken multi handle does not recover."""
        failure = Failure(Code.CONNECTION, "The HTTP client had to be restarted.", detail=self._curl.trouble)
        now = self._clock.now()
        self._curl.close(self._running)
        for exchange in self._running.values():
            self._report(exchange.transmission, failure, exchange.started_at, now)
            exchange.curl.close()
        self._running.clear()
        self._sites.forget_curl()
        self._curl = CurlLoop(self._loop, self._connections_max, self._round)


@dataclass(slots=True, eq=False)
class _Parked:
    """An attempt whose host name is being resolved. Its timeout has already started."""

    transmission: Transmission
    site: ResolvedUrl
    started_at: Instant
    timer: asyncio.TimerHandle = field(init=False)


def _ca_file(chosen: str | None) -> str | None:
    """The file of trusted certificates: the given file, otherwise the system's file. The curl in the pycurl wheel does
    not know where that is."""
    if chosen is not None and not Path(chosen).is_file():
        raise ConfigError(f"ca_file must be a file of PEM certificates, got {chosen}, which does not exist")
    candidates = (chosen, ssl.get_default_verify_paths().cafile, *_SYSTEM_CA_FILES)
    return next((path for path in candidates if path is not None and Path(path).is_file()), None)


_SYSTEM_CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def _without_values(error: Exception) -> str:
    """The text of the error, or only its type if the text could quote a header or URL (these may contain
    credentials)."""
    return str(error) if isinstance(error, pycurl.error | InvalidInput) else type(error).__name__


_NO_EXPECT = ("Expect:",)
"""Disables `Expect: 100-continue`. With it, curl would ask the receiver for permission before sending a large body, and
would wait a second for receivers that do not respond to this."""
_KEPT_BYTES_MAX = 65_536
"""The largest payload that an idle handle keeps in memory."""
_HEADERS_BYTES_MAX = 16_384
"""The limit for all header lines of a response together, including those of preceding 1xx responses."""
_CONNECTION_SECONDS_MAX = 600
"""Connections are replaced after this time, so that requests follow a receiver that moves to another address."""


class Exchange:
    """A curl handle, which makes one attempt at a time. After `begin`, the transport adds `curl` to its multi
    handle."""

    def __init__(self, guard: AddressGuard, body_bytes_max: int, ca_file: str | None) -> None:
        self._guard = guard
        self._body_bytes_max = body_bytes_max
        self.curl = pycurl.Curl()
        for option, value in _CONSTANT_OPTIONS:
            self.curl.setopt(option, value)
        if ca_file is not None:
            self.curl.setopt(pycurl.CAINFO, ca_file)
        self.curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        self.curl.setopt(pycurl.HEADERFUNCTION, self._take_header)
        self.curl.setopt(pycurl.WRITEFUNCTION, self._take_body)

    def begin(self, transmission: Transmission, site: ResolvedUrl, started_at: Instant, dns: int) -> None:
        """Prepare an attempt that has already taken `dns` microseconds. Raises an error if curl rejects the request."""
        self.transmission = transmission
        self.started_at = started_at
        self._dns = dns
        self._header_lines: list[bytes] = []
        self._headers_room = _HEADERS_BYTES_MAX
        self._body_parts: list[bytes] = []
        self._body_room = self._body_bytes_max
        self._body_cut = self._headers_cut = self._opened = False
        self._refusal: Failure | None = None
        self._shortage = ""
        self._plain = site.plain
        self._set_request(transmission, site)

    def reply(self, now: Instant, error: int = 0, text: str = "") -> Reply:
        """The result of the attempt. `error` and `text` are curl's error code and message."""
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
            shortage=self._shortage_behind(error),
        )

    def rest(self) -> None:
        """Release memory that an idle handle does not need."""
        if len(self.transmission.claim.payload) > _KEPT_BYTES_MAX:
            self.curl.setopt(pycurl.POSTFIELDS, b"")
        del self.transmission, self._header_lines, self._body_parts

    # -- the request ---------------------------------------------------------------------------------------

    def _set_request(self, transmission: Transmission, site: ResolvedUrl) -> None:
        setopt = self.curl.setopt
        setopt(pycurl.URL, site.url)
        self._set_headers(transmission.headers + _NO_EXPECT)
        setopt(pycurl.POSTFIELDS, transmission.claim.payload)
        left = transmission.timeout_seconds - self._dns / SECOND
        setopt(pycurl.TIMEOUT_MS, max(1, int(left * 1000)))  # 0 would mean no limit
        if not site.name.curl_knows:
            setopt(pycurl.RESOLVE, [site.name.pinned])  # stored in curl's cache, which all handles share
            site.name.curl_knows = True

    def _set_headers(self, lines: tuple[str, ...]) -> None:
        if not all(map(str.isprintable, lines)):
            raise InvalidInput("headers", "must not contain control characters")  # they could inject another header
        try:
            self.curl.setopt(pycurl.HTTPHEADER, lines)
        except UnicodeEncodeError:
            self.curl.setopt(pycurl.HTTPHEADER, [line.encode() for line in lines])

    # -- called by curl ------------------------------------------------------------------------------------

    def _open_socket(self, _purpose: int, address: Any) -> socket.socket | int:
        ip, port = address.addr[:2]
        if reason := self._guard.judge(ip, port, plain=self._plain):
            message = f"The receiver's address was refused: {reason}."
            self._refusal = Failure(Code.BLOCKED, message, detail=f"{ip}:{port}")
            return _REFUSED
        try:
            opened = socket.socket(address.family, address.socktype, address.protocol)
            os.close(os.dup(opened.fileno()))  # pycurl needs a second descriptor, and does not say if there is none
        except OSError as error:
            self._refusal = Failure(Code.CONNECTION, "No connection could be opened on our side.", detail=str(error))
            self._shortage = shortage_of(error)
            return _REFUSED
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
            return None  # we stopped reading the body ourselves, so the response is valid
        if self._headers_cut:
            return Failure(Code.BAD_RESPONSE, f"The receiver sent more than {_HEADERS_BYTES_MAX} bytes of headers.")
        if self._refusal is not None and not self._opened:
            return self._refusal
        return failure_of(error, text, self.transmission.timeout_seconds)

    def _shortage_behind(self, error: int) -> str:
        """What this process lacked, if the attempt failed before anything was sent."""
        if error not in _BEFORE_SENDING:
            return ""
        return self._shortage or shortage_now(self.curl.getinfo(pycurl.OS_ERRNO))

    def _timings(self, get: Any) -> Timings:
        dns = self._dns
        first_byte = get(pycurl.STARTTRANSFER_TIME_T)
        first_byte += dns if first_byte else 0
        if not self._opened:  # on a reused connection, curl's other times are meaningless
            return Timings(dns, first_byte=first_byte)
        connect, tls = get(pycurl.CONNECT_TIME_T), get(pycurl.APPCONNECT_TIME_T)
        return Timings(dns, connect and dns + connect, tls and dns + tls, first_byte)


_BEFORE_SENDING = frozenset(
    {pycurl.E_COULDNT_CONNECT, pycurl.E_INTERFACE_FAILED, pycurl.E_SSL_CACERT_BADFILE, pycurl.E_OUT_OF_MEMORY}
)
_STOP = 0
"""A callback returns this to end the transfer. For curl, it means that the callback took none of the bytes."""
_REFUSED: int = pycurl.SOCKET_BAD


def _last_block(headers: bytes) -> bytes:
    """The status line and headers of the final response, without those of preceding 1xx responses."""
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


_NOT_CONNECTED = (Code.CONNECTION, "No connection could be made to the receiver.")
_BROKEN = (Code.CONNECTION, "The connection broke before the answer was complete.")
_CERTIFICATE = (Code.TLS, "The receiver's certificate is not valid.")
_HANDSHAKE = (Code.TLS, "The TLS handshake with the receiver failed.")
_NONSENSE = (Code.BAD_RESPONSE, "The receiver's answer is not valid HTTP.")
_BAD_URL = (Code.BLOCKED, "The endpoint's URL cannot be used.")

_TOO_LARGE = 100  # CURLE_TOO_LARGE, which pycurl has no name for

_MEANINGS: dict[int, tuple[str, str]] = {
    pycurl.E_COULDNT_CONNECT: _NOT_CONNECTED,
    pycurl.E_INTERFACE_FAILED: _NOT_CONNECTED,
    pycurl.E_GOT_NOTHING: (Code.CONNECTION, "The receiver closed the connection without an answer."),
    pycurl.E_PEER_FAILED_VERIFICATION: _CERTIFICATE,
    pycurl.E_SSL_ISSUER_ERROR: _CERTIFICATE,
    pycurl.E_SSL_INVALIDCERTSTATUS: _CERTIFICATE,
    pycurl.E_SSL_PINNEDPUBKEYNOTMATCH: _CERTIFICATE,
    pycurl.E_SSL_CACERT_BADFILE: (Code.CONNECTION, "This machine has no usable file of trusted certificates."),
    pycurl.E_SSL_CONNECT_ERROR: _HANDSHAKE,
    pycurl.E_SSL_CIPHER: _HANDSHAKE,
    pycurl.E_FTP_WEIRD_SERVER_REPLY: _NONSENSE,
    pycurl.E_BAD_CONTENT_ENCODING: _NONSENSE,
    pycurl.E_UNSUPPORTED_PROTOCOL: _NONSENSE,
    _TOO_LARGE: _NONSENSE,
    pycurl.E_URL_MALFORMAT: _BAD_URL,
}


def failure_of(error: int, text: str, timeout_seconds: float) -> Failure:
    """The failure for an error of curl. An unknown error counts as a broken connection, which is retried."""
    detail = f"curl {error}: {text}"
    if error == pycurl.E_OPERATION_TIMEDOUT:
        return timeout_failure(timeout_seconds, detail)
    if error == pycurl.E_COULDNT_RESOLVE_HOST:
        return dns_failure(detail)
    meaning = _MEANINGS.get(error, _BROKEN)
    if error == pycurl.E_SSL_CONNECT_ERROR and _looks_cut_off(text):
        meaning = _BROKEN
    if error == pycurl.E_UNSUPPORTED_PROTOCOL and "HTTP/0.9" not in text:
        meaning = _BAD_URL
    return Failure(*meaning, detail=detail)


def timeout_failure(timeout_seconds: float, detail: str) -> Failure:
    return Failure(Code.TIMEOUT, f"The receiver gave no complete answer within {timeout_seconds:g} s.", detail=detail)


def dns_failure(detail: str) -> Failure:
    return Failure(Code.DNS, "The receiver's host name could not be resolved.", detail=detail)


def _looks_cut_off(text: str) -> bool:
    """Whether a TLS handshake was interrupted. An interruption does not mean that the certificate is bad: the receiver
    may be restarting."""
    lowered = text.lower()
    return any(sign in lowered for sign in ("syscall", "reset", "unexpected eof", "broken pipe"))
