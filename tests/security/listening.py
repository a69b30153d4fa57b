"""A socket that records who connects. In most tests, nobody may connect."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.patience import PATIENCE_SECONDS

EVERYWHERE = "::"
"""Every IPv4 and IPv6 address of this machine."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Listener:
    """Answers each connection with the same bytes and closes it. With `greets`, it sends them before it reads."""

    def __init__(self, host: str, port: int, answer: bytes, greets: bool) -> None:
        everywhere = host == EVERYWHERE
        family = socket.AF_INET6 if everywhere else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, dualstack_ipv6=everywhere)
        self.port: int = self._socket.getsockname()[1]
        self._answer = answer
        self._greets = greets
        self.seen: list[bytes] = []
        """The first bytes of each connection."""

    def listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # the listener is closed
            with connection:
                connection.settimeout(PATIENCE_SECONDS)
                self.seen.append(self._exchanged(connection))

    def _exchanged(self, connection: socket.socket) -> bytes:
        try:
            if self._greets:
                connection.sendall(self._answer)
            received = connection.recv(65_536)
            if not self._greets:
                connection.sendall(self._answer)
        except OSError:
            return b""
        return received

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextmanager
def listening(
    host: str = "127.0.0.1", port: int = 0, answer: bytes = OK, *, greets: bool = False
) -> Iterator[Listener]:
    listener = Listener(host, port, answer, greets)
    threading.Thread(target=listener.listen, daemon=True).start()
    try:
        yield listener
    finally:
        listener.close()
