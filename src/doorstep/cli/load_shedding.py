"""Refuses to accept events that would wait too long, so that the others do not have to.

More requests than this process can serve would otherwise wait in line, until every client has given up on the response
to its request and repeats it. The number of requests in progress is limited instead, to as many as can be served within
the target. That number is measured all the time, because the capacity depends on the machine, the disk and the
payloads. A refusal costs a tenth of an acceptance, because it is made before the request reaches the application.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from doorstep.telemetry.timings import Timings

PATHS = frozenset({b"/v1/events", b"/v1/events/batch"})
"""Other requests are never refused: health checks, status queries and the console are few, and needed most now."""
REFUSED_AFTER_SECONDS = 1.0
"""How long a refusal is held back. A client that repeats its request at once would otherwise use up the time that
acceptances need."""
_START = 1_000
"""A burst of this many requests is taken without any measurement."""
_LEAST, _MOST = 64, 16_384
_WINDOW_SECONDS = 0.1
_LOGGED_EVERY_SECONDS = 10.0

Note = Callable[..., None]


class LoadShedder:
    def __init__(
        self,
        target_seconds: float,
        timings: Timings,
        store_seconds: Callable[[], float],
        note: Note,
    ) -> None:
        """`store_seconds` returns how long the last transaction took. It does not count as waiting, because refusing
        requests does not make the store faster. A target of 0 means that nothing is refused."""
        self._target = target_seconds
        self._timings = timings
        self._store_seconds = store_seconds
        self._note = note
        self.limit = float(_START)
        self.in_progress = 0
        self._start_window(0.0)
        self._unlogged, self._logged_at = 0, 0.0

    def refuses(self) -> bool:
        if not self._target or self.in_progress < self.limit:
            return False
        self._was_full = True
        return True

    def refused(self, path: bytes, seconds: float) -> None:
        """Count a refused request."""
        self._timings.request("POST", path.decode(), 429, seconds)
        self._unlogged += 1

    def begin(self) -> None:
        if not self.in_progress:
            self._start_window(monotonic())
        self.in_progress += 1

    def end(self, seconds: float, *, stored: bool) -> None:
        """A request is answered after this time. Only those count whose events were stored; refusals are quick."""
        self.in_progress -= 1
        if stored:
            self._waited += max(0.0, seconds - self._commits_seconds())
            self._count += 1
        now = monotonic()
        if self._count and now >= self._since + _WINDOW_SECONDS:
            self._adapt(self._waited / self._count, self._count / (now - self._since))
            self._start_window(now)

    def _start_window(self, now: float) -> None:
        self._since, self._waited, self._count, self._was_full = now, 0.0, 0, False

    def _adapt(self, waited: float, per_second: float) -> None:
        """By Little's law, the number of requests in progress is their rate times the time that each takes. The rate is
        that of the server if requests wait; otherwise it is only that of the clients."""
        if waited > self._target or self._was_full:
            self.limit = (self.limit + per_second * (self._target + self._commits_seconds())) / 2
        else:
            self.limit = max(self.limit, min(_START, self.limit * 2))
        self.limit = min(_MOST, max(_LEAST, self.limit))

    def _commits_seconds(self) -> float:
        """How long the transaction of a request takes, and the one before it, for which it also waits."""
        return 2 * self._store_seconds()

    def log(self) -> None:
        """Called once a second."""
        if self._unlogged and (now := monotonic()) >= self._logged_at + _LOGGED_EVERY_SECONDS:
            self._note("warning", "requests to send events were refused because others wait", refused=self._unlogged)
            self._unlogged, self._logged_at = 0, now
