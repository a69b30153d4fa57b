"""New events at a steady rate during another measurement, sent from a thread of the bench itself."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import NamedTuple, Self

from bench.serving import Client
from bench.setting import PAYLOAD


class Sent(NamedTuple):
    event_type: str
    at: int
    """The time on the machine's monotonic clock, in nanoseconds."""


class Traffic:
    """Sends while it is open. Each event is sent on time, even if the previous response was late."""

    def __init__(self, port: int, event_types: Sequence[str], per_second: float) -> None:
        self.sent: dict[str, Sent] = {}
        self._client = Client(port)
        self._event_types = event_types
        self._pause_seconds = 1 / per_second
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._thread.join()
        self._client.close()

    def _send_all(self) -> None:
        due = time.monotonic()
        for event_type in cycle(self._event_types):
            if self._closing.wait(max(0.0, due - time.monotonic())):
                return
            due += self._pause_seconds
            at = time.monotonic_ns()
            event_id = self._client.send(b'{"event_type": "%s", "payload": %s}' % (event_type.encode(), PAYLOAD))
            self.sent[event_id] = Sent(event_type, at)

    def waits_ms(self, arrived: Mapping[str, int]) -> dict[str, list[float]]:
        """For each event type, the milliseconds from each request to the arrival of its event."""
        waits: dict[str, list[float]] = defaultdict(list)
        for event_id, (event_type, at) in self.sent.items():
            waits[event_type].append((arrived[event_id] - at) / 1e6)
        return waits
