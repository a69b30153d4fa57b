"""How many connections the web server keeps open, and how long it waits for their clients.

Every connection needs a file descriptor. If clients without a key could hold all of them, nobody else could send events,
and this process could not deliver any.
"""

from __future__ import annotations

import resource
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import islice, takewhile
from time import monotonic
from typing import NamedTuple, Protocol

from doorstep.cli.listening import BACKLOG
from doorstep.config import Settings
from doorstep.telemetry.timings import Closing, ConnectionCounts

_OWN_DESCRIPTORS = 128
"""For the database, the log, handlers in processes of their own, and health checks."""
_LOGGED_EVERY_SECONDS = 10.0
_HEALTH_CONNECTIONS = 8
_EXAMINED_MAX = 32
"""How many of the oldest connections are examined for one that can be closed without losing a response."""
_LOGGED = (Closing.KEYLESS_OF_ADDRESS, Closing.KEYLESS, Closing.REFUSED)


class ConnectionLimits(NamedTuple):
    total: int = 1_000_000
    keyless_per_address: int = 0
    """For connections that have not shown a valid key; 0 sets no limit."""
    header_seconds: float = 20.0
    body_seconds: float = 30.0
    idle_seconds: float = 60.0
    backlog: int = BACKLOG
    """How many connections the system accepts before this process does. All of them may arrive at once, before any
    other is closed, so they must fit into the reserve twice."""

    @classmethod
    def of(cls, settings: Settings, descriptors: int | None = None) -> ConnectionLimits:
        """The limits of a server that may open this many file descriptors. If it may open few, half of them are
        reserved."""
        if descriptors is None:
            descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        reserve = min(_OWN_DESCRIPTORS + settings.concurrency + 2 * BACKLOG, descriptors // 2)
        return cls(
            settings.connections_max or descriptors - reserve,
            settings.keyless_connections_max,
            settings.header_timeout_seconds,
            settings.body_timeout_seconds,
            settings.idle_timeout_seconds,
            max(1, min(BACKLOG, reserve // 4)),
        )


class Client(Protocol):
    """A connection, as far as the limits concern it."""

    address: str
    deadline: float
    """When to stop waiting for the client, by `monotonic`."""
    opened_at: float
    health_only: bool

    @property
    def is_answering(self) -> bool:
        """Whether it waits for this process, not for the client."""

    def expire(self) -> None:
        """Close it because its deadline has passed."""

    def hang_up(self) -> None:
        """Close it at once."""


Note = Callable[..., None]


class Connections:
    """The open connections of a server. The longest-lived come first."""

    def __init__(
        self,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008  immutable
        counts: ConnectionCounts | None = None,
        note: Note = lambda *_, **__: None,
    ) -> None:
        self.limits = limits
        self.counts = counts or ConnectionCounts()
        self._note = note
        self._open: dict[Client, None] = {}
        self._keyless: dict[Client, None] = {}
        self._unlogged: Counter[Closing] = Counter()
        self._logged_at = 0.0

    def add(self, client: Client) -> bool:
        """Count a new connection; returns whether there are now too many. `make_room` must then be called after the
        next read of all sockets, when the keys of other new connections may have arrived."""
        client.health_only = self._identified >= self.limits.total
        self._open[client] = self._keyless[client] = None
        self._count()
        return len(self._open) > self._allowed

    def make_room(self) -> None:
        """If there are too many connections, close the oldest ones without a key: their clients had more time than any
        other to show one."""
        while len(self._open) > self._allowed:
            oldest = list(islice(self._keyless, _EXAMINED_MAX))
            victim = next((one for one in oldest if not one.is_answering), oldest[0])
            self._close(victim, Closing.KEYLESS)

    @property
    def _identified(self) -> int:
        return len(self._open) - len(self._keyless)

    @property
    def _allowed(self) -> int:
        """If all connections have shown a key, a few more are allowed, which may only ask for the health."""
        return max(self.limits.total, self._identified + _HEALTH_CONNECTIONS)

    def identify(self, client: Client) -> None:
        """Its client has shown a valid key."""
        self._keyless.pop(client, None)
        self._count()

    def remove(self, client: Client) -> None:
        self._open.pop(client, None)
        self._keyless.pop(client, None)
        self._count()

    def closed(self, reason: Closing) -> None:
        """Count a connection that was closed because of a limit."""
        self.counts.closed[reason] += 1
        self._unlogged[reason] += 1

    def sweep(self) -> None:
        """Close connections that are over a limit. Called once a second."""
        now = monotonic()
        for client in [one for one in self._open if one.deadline <= now]:
            client.expire()
        if self.limits.keyless_per_address:
            self._limit_addresses(now)
        self._log(now)

    def _limit_addresses(self, now: float) -> None:
        """Close the oldest connections of each address that has too many without a key. They do not count before the
        time for their first request is over: thousands of clients behind one proxy may connect at the same moment."""
        waiting: dict[str, list[Client]] = defaultdict(list)
        for client in takewhile(lambda one: one.opened_at + self.limits.header_seconds <= now, self._keyless):
            if not client.is_answering and client.deadline > now:
                waiting[client.address].append(client)
        for clients in waiting.values():
            for client in clients[: max(0, len(clients) - self.limits.keyless_per_address)]:
                self._close(client, Closing.KEYLESS_OF_ADDRESS)

    def _close(self, client: Client, reason: Closing) -> None:
        self.closed(reason)
        self.remove(client)
        client.hang_up()

    def _count(self) -> None:
        self.counts.keyless = len(self._keyless)
        self.counts.identified = self._identified

    def _log(self, now: float) -> None:
        counts = {reason.value: self._unlogged[reason] for reason in _LOGGED if self._unlogged[reason]}
        if counts and now >= self._logged_at + _LOGGED_EVERY_SECONDS:
            self._note("warning", "connections were closed because there are too many", open=len(self._open), **counts)
            self._unlogged.clear()
            self._logged_at = now
