"""When requests to send events are refused: by how long they wait, never because of a burst or a slow disk."""

from __future__ import annotations

import pytest

from doorstep.cli.load_shedding import LoadShedder
from doorstep.telemetry.timings import Timings

TARGET = 0.3


class Server:
    """Serves requests one after the other, in simulated time. A request waits until all before it are answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, per_second: float, store_seconds: float = 0.0) -> None:
        self.now = 1_000.0
        monkeypatch.setattr("doorstep.cli.load_shedding.monotonic", lambda: self.now)
        self.shedder = LoadShedder(TARGET, Timings(), lambda: store_seconds, lambda *_, **__: None)
        self._step = 1 / per_second
        self._store_seconds = store_seconds
        self._queue: list[float] = []
        self._arriving = 0.0
        self.waited: list[float] = []
        self.refused = 0

    def offer(self, per_second: float, seconds: float) -> None:
        """Requests arrive at this rate, for this long."""
        end = self.now + seconds
        while self.now < end:
            self.now += self._step
            self._arriving += per_second * self._step
            while self._arriving >= 1:
                self._arriving -= 1
                self.arrive()
            if self._queue:
                waited = self.now - self._queue.pop(0)
                self.waited.append(waited)
                self.shedder.end(waited + 2 * self._store_seconds, stored=True)

    def arrive(self) -> None:
        if self.shedder.refuses():
            self.refused += 1
        else:
            self.shedder.begin()
            self._queue.append(self.now)


@pytest.mark.parametrize("capacity", [400, 3_000, 20_000])
def test_at_three_times_the_capacity_the_wait_stays_near_the_target_and_the_server_stays_busy(
    monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    server = Server(monkeypatch, capacity)
    server.offer(3 * capacity, 5)  # to adapt
    server.waited.clear()
    server.refused = 0
    server.offer(3 * capacity, 5)
    assert len(server.waited) >= 0.95 * 5 * capacity
    assert max(server.waited) <= 2 * TARGET
    assert server.refused == pytest.approx(2 * 5 * capacity, rel=0.1)


def test_a_load_below_the_capacity_is_never_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, 1_000)
    server.offer(950, 20)
    assert server.refused == 0


def test_a_burst_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, 1_000)
    server.offer(100, 5)
    server.now += 10
    for _ in range(800):
        server.arrive()
    server.offer(0, 1)
    assert (server.refused, len(server.waited)) == (0, 5 * 100 + 800)


def test_after_an_overload_nothing_is_refused_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, 400)
    server.offer(4_000, 5)
    server.offer(100, 5)
    server.refused = 0
    for _ in range(500):
        server.arrive()
    assert server.refused == 0


def test_a_slow_disk_is_not_a_reason_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, 1_000, store_seconds=2.0)
    server.offer(900, 10)
    assert server.shedder.limit >= 1_000


def test_quick_refusals_of_the_application_do_not_count_as_short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, 400)
    server.offer(1_200, 5)
    limit = server.shedder.limit
    for _ in range(10_000):
        server.shedder.begin()
        server.now += 0.001
        server.shedder.end(0.0, stored=False)
    assert server.shedder.limit <= limit


def test_a_target_of_zero_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shedder = LoadShedder(0, Timings(), lambda: 0.0, lambda *_, **__: None)
    for _ in range(100_000):
        assert not shedder.refuses()
        shedder.begin()


def test_refusals_are_logged_at_most_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lines = 1_000.0, []
    monkeypatch.setattr("doorstep.cli.load_shedding.monotonic", lambda: now)
    shedder = LoadShedder(TARGET, Timings(), lambda: 0.0, lambda *_, **fields: lines.append(fields["refused"]))
    for seconds in (0, 1, 9, 10):
        now = 1_000.0 + seconds
        shedder.refused(b"/v1/events", 1.0)
        shedder.log()
    assert lines == [1, 3]
