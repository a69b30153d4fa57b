"""The limits on all connections together: which ones are closed, and in which order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from time import monotonic

import pytest

from doorstep.cli.connection_limits import ConnectionLimits, Connections
from doorstep.config import Settings
from doorstep.telemetry.timings import Closing


class Client:
    def __init__(self, address: str = "192.0.2.1") -> None:
        self.address = address
        self.deadline = math.inf
        self.opened_at = monotonic()
        self.health_only = False
        self.is_answering = False
        self.closed = False
        self.expired = False

    def expire(self) -> None:
        self.expired = True

    def hang_up(self) -> None:
        self.closed = True


class Notes:
    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def __call__(self, level: str, message: str, **fields: object) -> None:
        self.lines.append(fields)


def connected(connections: Connections, count: int, *, identified: bool = False, **more: str) -> list[Client]:
    clients = [Client(**more) for _ in range(count)]
    for client in clients:
        if connections.add(client):
            connections.make_room()
        if identified:
            connections.identify(client)
    return clients


def closed(clients: Iterable[Client]) -> list[bool]:
    return [client.closed for client in clients]


def test_beyond_the_limit_the_oldest_connection_without_a_key_is_closed() -> None:
    connections = Connections(ConnectionLimits(total=10))
    holders = connected(connections, 2, identified=True)
    strangers = connected(connections, 8)
    (newest,) = connected(connections, 1)
    assert closed(holders) == [False] * 2
    assert closed(strangers) == [True] + [False] * 7
    assert not newest.closed and not newest.health_only
    assert connections.counts.closed[Closing.KEYLESS] == 1
    assert (connections.counts.identified, connections.counts.keyless) == (2, 8)


def test_a_connection_that_waits_for_its_response_is_spared() -> None:
    connections = Connections(ConnectionLimits(total=10))
    strangers = connected(connections, 10)
    strangers[0].is_answering = True
    connected(connections, 1)
    assert closed(strangers[:3]) == [False, True, False]


def test_if_every_connection_has_shown_a_key_a_few_more_may_ask_for_the_health() -> None:
    connections = Connections(ConnectionLimits(total=10))
    holders = connected(connections, 10, identified=True)
    monitors = connected(connections, 20)
    assert not any(closed(holders))
    assert all(monitor.health_only for monitor in monitors)
    assert closed(monitors) == [True] * 12 + [False] * 8


def test_one_address_may_keep_only_so_many_connections_without_a_key() -> None:
    connections = Connections(ConnectionLimits(keyless_per_address=5, header_seconds=20))
    others = connected(connections, 5, address="192.0.2.2")
    strangers = connected(connections, 8)
    connected(connections, 20)
    connected(connections, 20, identified=True)
    connections.sweep()
    assert not any(closed(strangers)), "their keys may be on the way"
    for client in (*others, *strangers):
        client.opened_at -= 30
    connections.sweep()
    assert closed(strangers) == [True] * 3 + [False] * 5
    assert not any(closed(others))
    assert connections.counts.closed[Closing.KEYLESS_OF_ADDRESS] == 3


def test_a_connection_whose_deadline_has_passed_expires() -> None:
    connections = Connections()
    first, second = connected(connections, 2)
    first.deadline = 0.0
    connections.sweep()
    assert (first.expired, second.expired) == (True, False)


def test_what_was_closed_for_being_too_much_is_logged_at_most_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, notes = 1_000.0, Notes()
    monkeypatch.setattr("doorstep.cli.connection_limits.monotonic", lambda: now)
    connections = Connections(ConnectionLimits(total=10), note=notes)
    connected(connections, 10)
    for seconds in (0, 1, 9.9, 10):
        now = 1_000.0 + seconds
        connected(connections, 2)
        connections.sweep()
    assert [line["keyless"] for line in notes.lines] == [2, 6]


def test_the_default_limit_leaves_a_reserve_of_descriptors() -> None:
    settings = Settings()
    assert ConnectionLimits.of(settings, 20_000).total >= 10_000
    for descriptors in (64, 256, 1_024, 20_000, 1_000_000):
        limits = ConnectionLimits.of(settings, descriptors)
        assert limits.total + 2 * limits.backlog <= descriptors - min(descriptors // 4, settings.concurrency)
    assert ConnectionLimits.of(Settings(connections_max=7), 1_024).total == 7
