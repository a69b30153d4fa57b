"""What one process measures itself: its requests and connections, and how fast it schedules retries. `/metrics` shows
the result."""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from typing import NamedTuple

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""The upper bounds of the buckets."""


class Timing:
    """How often something took how long."""

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        """The count of each bucket. The last one has no upper bound."""
        self.total = 0.0
        """The sum of all durations in seconds."""

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


class Answered(NamedTuple):
    """The kind of a request: its route and the status of the response. All values come from the program."""

    method: str
    route: str
    """The path of the route, such as `/v1/events/{event_id}`; empty if no route was reached."""
    status: int


class Closing(StrEnum):
    """Why the server closed a connection."""

    HEADER_TIMEOUT = "header_timeout"
    BODY_TIMEOUT = "body_timeout"
    IDLE = "idle"
    INVALID = "invalid"
    """The client sent something that is not HTTP, or is over a limit."""
    KEYLESS_OF_ADDRESS = "keyless_of_address"
    """Too many connections of one address had not shown a valid key."""
    KEYLESS = "keyless"
    """There were too many connections, and this one had not shown a valid key."""
    REFUSED = "refused"
    """There were too many connections, and all others had shown a valid key."""


class ConnectionCounts:
    """The connections of the web server."""

    def __init__(self) -> None:
        self.identified = self.keyless = 0
        """How many are open, with and without a valid key."""
        self.closed = dict.fromkeys(Closing, 0)


class Timings:
    def __init__(self) -> None:
        self.connections = ConnectionCounts()
        self.requests: dict[Answered, Timing] = {}
        self.retry_scheduled = Timing()
        """From the failure of an attempt until its retry was stored."""
        self.attempts_prevented = 0
        """Attempts that this process could not make because it lacked descriptors, memory or ports."""

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request to the HTTP API. A route that bypasses the middleware calls this too."""
        kind = Answered(method if method in _METHODS else "", route, status)
        timing = self.requests.get(kind)
        if timing is None:
            timing = self.requests[kind] = Timing()
        timing.observe(seconds)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Clients may send any word as the method, so others are counted together."""
