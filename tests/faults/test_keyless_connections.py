"""A client without a key opens as many connections as the server has file descriptors, and again when one is closed.
Everybody else must notice nothing."""

from __future__ import annotations

import http.client
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.faults.conftest import Install
from tests.faults.harness.databases import SqliteDatabase
from tests.faults.harness.installation import Installation, await_condition
from tests.faults.harness.occasion import in_time
from tests.faults.harness.trial import drain
from tests.support.patience import PATIENCE_SECONDS

_DESCRIPTORS = 256
_SENDS = 40
_TRIES_MAX = 3
"""A client is expected to connect again if its connection is lost before the response: on a busy machine, hundreds of
other connections may be opened between the moment in which it connects and the moment in which it sends its key."""
_SEND_SECONDS_MAX = 2.0


class Hoarder(threading.Thread):
    """Keeps connections open without saying anything, and opens a new one for each that is closed."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._count = count
        self._ended = threading.Event()
        self.held: list[socket.socket] = []
        self.opened = 0

    def run(self) -> None:
        while not self._ended.wait(0.02):
            self.held = [one for one in self.held if not self._is_closed(one)]
            with suppress(OSError):
                while len(self.held) < self._count and not self._ended.is_set():
                    self.held.append(socket.create_connection(("127.0.0.1", self._port), PATIENCE_SECONDS))
                    self.opened += 1
        for one in self.held:
            one.close()

    def end(self) -> None:
        self._ended.set()
        self.join(PATIENCE_SECONDS)

    @staticmethod
    def _is_closed(one: socket.socket) -> bool:
        if select.select([one], [], [], 0)[0]:
            one.close()
            return True
        return False


@contextmanager
def hoarding(port: int, count: int) -> Iterator[Hoarder]:
    hoarder = Hoarder(port, count)
    hoarder.start()
    try:
        yield hoarder
    finally:
        hoarder.end()


def send(installation: Installation) -> tuple[int, float]:
    """Send one event on a new connection. Returns the number of tries, and the seconds that the last one took."""
    for tries in range(1, _TRIES_MAX + 1):
        began = time.monotonic()
        with suppress(OSError, http.client.HTTPException):
            status, answer = installation.ask("POST", "/v1/events", {"event_type": "plain", "payload": 1})
            assert status == 202, answer
            return tries, time.monotonic() - began
    raise AssertionError(f"no response in {_TRIES_MAX} tries")


def send_many(installation: Installation) -> tuple[int, float]:
    """The number of lost tries, and the seconds of the slowest send."""
    sends = [send(installation) for _ in range(_SENDS)]
    return sum(tries for tries, _ in sends) - _SENDS, max(seconds for _, seconds in sends)


def metric(installation: Installation, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", installation.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found, name
    return float(found[1])


def test_a_client_without_a_key_that_holds_all_descriptors_locks_nobody_out(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = install(sqlite_database)
    installation.receive("ok")
    server = installation.serve(wrapper=["prlimit", f"--nofile={_DESCRIPTORS}:{_DESCRIPTORS}"])
    installation.enrol("plain")
    lost, before = send_many(installation)
    assert lost == 0
    with hoarding(installation.port, 2 * _DESCRIPTORS) as hoarder:
        await_condition(lambda: hoarder.opened > 2 * _DESCRIPTORS, "the server to close connections")
        lost, during = send_many(installation)
        assert lost <= _SENDS // 10
        assert installation.ask("GET", "/readyz")[0] == 200
        drain(installation)
        closed = metric(installation, 'doorstep_connections_closed_total{reason="keyless"}')
        assert closed >= _DESCRIPTORS
        await_condition(lambda: "connections were closed because there are too many" in server.said, "a log line")
    lost, after = send_many(installation)
    assert lost == 0
    print(f"\nslowest of {_SENDS} sends before, during, after: {before:.3f} s, {during:.3f} s, {after:.3f} s")
    in_time(during, _SEND_SECONDS_MAX)
    assert server.exits == []
