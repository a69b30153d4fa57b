"""Deliveries over HTTP: a try waits for its turn, for its host name if need be, and then runs in curl.

The order of a round is the order of this file: what is ready is served, what waits is begun, what has ended is
reported. Everything happens on the event loop; only names are looked up in threads (sites.py).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pycurl

from doorstep.clock import Clock, Instant
from doorstep.errors import ConfigError, InvalidInput
from doorstep.model.outcome import Code, Failure, Reply
from doorstep.telemetry.scrubbing import said_by
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.curl_failures import dns_failure, timeout_failure
from doorstep.wire.curl_loop import CurlLoop
from doorstep.wire.exchange import Exchange, Limits
from doorstep.wire.sites import Name, Resolve, Site, Sites, system_resolve
from doorstep.wire.transport import Done, Transmission

_BEGIN_MAX = 64
"""Tries begun in one round, after which the event loop gets its turn. With 512 places free at once the longest turn took
14 to 15 ms of CPU, without this bound 24 to 26 (three runs each)."""


class HttpTransport:
    """A `Transport` for URLs. What is started beyond `connections_max` waits its turn, its time not yet running."""

    def __init__(
        self,
        guard: AddressGuard,
        clock: Clock,
        *,
        connections_max: int = 512,
        body_bytes_max: int = 16_384,
        headers_bytes_max: int = 16_384,
        ca_file: str | None = None,
        resolve: Resolve = system_resolve,
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._connections_max = connections_max
        self._limits = Limits(body_bytes_max, headers_bytes_max)
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
        self._sites = Sites(self._loop, self._resolve, self._on_found)
        self._curl = CurlLoop(self._loop, self._connections_max, self._round)
        self._opened = True

    def serves(self, target: str, org_id: UUID) -> bool:
        return True

    def places(self, target: str) -> int | None:
        return None

    def start(self, transmissions: Sequence[Transmission]) -> None:
        """Safe to call from any thread."""
        self._waiting.extend(transmissions)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._round)

    async def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        self._waiting.clear()
        for parked in [one for several in self._parked.values() for one in several]:
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
        except Exception as error:  # noqa: BLE001  whatever it was, each try must end in a reply
            self._curl.trouble = said_by(error)
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

    def _send(self, transmission: Transmission, site: Site, started_at: Instant, dns: int) -> None:
        """Hand a try to curl. `dns` is the time in microseconds that looking its name up has taken."""
        exchange = self._resting.pop() if self._resting else Exchange(self._guard, self._limits, self._ca_file)
        try:
            exchange.begin(transmission, site, started_at, dns)
        except Exception as error:  # noqa: BLE001  curl, pycurl or Python's encoding refuses what it is given
            exchange.curl.close()
            failure = Failure(Code.BLOCKED, "The request cannot be sent as it is.", detail=_without_values(error))
            self._report(transmission, failure, started_at, self._clock.now())
            return
        self._running[exchange.curl] = exchange
        self._curl.add(exchange.curl)

    # -- waiting for a name --------------------------------------------------------------------------------

    def _park(self, transmission: Transmission, site: Site, now: Instant) -> None:
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
                self._report(parked.transmission, dns_failure(name.trouble), parked.started_at, now)
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
            exchange.curl.close()  # a fresh handle costs a few µs and cannot carry a fault over
        else:
            exchange.rest()
            self._resting.append(exchange)

    def _report(self, transmission: Transmission, failure: Failure, started_at: Instant, now: Instant) -> None:
        """A try that ended outside of curl."""
        headers = transmission.logged_headers
        reply = Reply(started_at=started_at, finished_at=now, request_headers=headers, failure=failure)
        self._replies.append((transmission, reply))

    def _start_over(self) -> None:
        """curl itself is broken and would stay so: fail what is running and take a new one."""
        failure = Failure(Code.CONNECTION, "The HTTP client had to be restarted.", detail=self._curl.trouble)
        now = self._clock.now()
        self._curl.close(self._running)
        for exchange in self._running.values():
            self._report(exchange.transmission, failure, exchange.started_at, now)
            exchange.curl.close()
        self._running.clear()
        self._sites.tell_again()
        self._curl = CurlLoop(self._loop, self._connections_max, self._round)


class _Parked:
    """A try that waits for its host name; its time is running."""

    __slots__ = ("site", "started_at", "timer", "transmission")

    def __init__(self, transmission: Transmission, site: Site, now: Instant) -> None:
        self.transmission = transmission
        self.site = site
        self.started_at = now
        self.timer: asyncio.TimerHandle


def _ca_file(chosen: str | None) -> str | None:
    """The certificates to trust: those given, else the system's. The wheel's curl does not know where they are."""
    if chosen is not None and not Path(chosen).is_file():
        raise ConfigError(f"ca_file must be a file of PEM certificates, got {chosen}, which is not there")
    candidates = (chosen, ssl.get_default_verify_paths().cafile, *_SYSTEM_CA_FILES)
    return next((path for path in candidates if path is not None and Path(path).is_file()), None)


_SYSTEM_CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def _without_values(error: Exception) -> str:
    """What went wrong, without the header or URL that it went wrong with: these may hold credentials."""
    return str(error) if isinstance(error, pycurl.error | InvalidInput) else type(error).__name__
