"""Receivers that misbehave, as plain socket scripts in threads of their own.

A script gets the accepted socket with the request unread. `Hostile` counts the connections and the bytes that
the other side took, and cuts every script short when the test ends.
"""

from __future__ import annotations

import gzip
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

MIB = 1024 * 1024


class Hostile:
    """A listening socket with one script for all who connect."""

    def __init__(self, script: Callable[[Hostile, socket.socket], None]) -> None:
        self._script = script
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._open: list[socket.socket] = []
        self.over = threading.Event()
        self.connections = 0
        self.bytes_sent = 0
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def send(self, peer: socket.socket, data: bytes) -> None:
        peer.sendall(data)
        self.bytes_sent += len(data)

    def dribble(self, peer: socket.socket, data: bytes, seconds: float) -> None:
        """One byte at a time."""
        for byte in data:
            self.send(peer, bytes([byte]))
            if self.over.wait(seconds):
                return

    def close(self) -> None:
        self.over.set()
        self._listening.close()
        for peer in self._open:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed: the test is over
            while True:
                peer, _ = self._listening.accept()
                self.connections += 1
                self._open.append(peer)
                threading.Thread(target=self._run, args=(peer,), daemon=True).start()

    def _run(self, peer: socket.socket) -> None:
        with suppress(OSError):  # the other side had enough
            self._script(self, peer)


@contextmanager
def hostile(script: Callable[[Hostile, socket.socket], None]) -> Iterator[Hostile]:
    receiver = Hostile(script)
    try:
        yield receiver
    finally:
        receiver.close()


def read_request(peer: socket.socket) -> bytes:
    """One request with a content-length, or nothing if the other side has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = peer.recv(65_536)
        if not chunk:
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += peer.recv(65_536)
    return head + b"\r\n\r\n" + body


# -- scripts -------------------------------------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\n"
DRIBBLE_SECONDS = 0.05
"""Slow enough that no timeout between two bytes would ever strike, fast enough for a test."""


def dribbles_headers(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.dribble(peer, OK + b"X-Slow: " + b"x" * 10_000, DRIBBLE_SECONDS)


def dribbles_body(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Content-Length: 10000\r\n\r\n")
    receiver.dribble(peer, b"x" * 10_000, DRIBBLE_SECONDS)


def never_ends_its_chunks(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Transfer-Encoding: chunked\r\n\r\n")
    while not receiver.over.is_set():
        receiver.send(peer, b"10000\r\n" + b"x" * 65_536 + b"\r\n")


def bombs(receiver: Hostile, peer: socket.socket) -> None:
    """300 MiB of zeros in 300 KiB of gzip."""
    read_request(peer)
    bomb = gzip.compress(bytes(MIB)) * 300
    length = f"Content-Length: {len(bomb)}\r\n\r\n".encode()
    receiver.send(peer, OK + b"Content-Encoding: gzip\r\n" + length + bomb)


def bombs_by_transfer_encoding(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    bomb = gzip.compress(bytes(MIB)) * 300
    chunk = f"{len(bomb):x}\r\n".encode() + bomb + b"\r\n0\r\n\r\n"
    receiver.send(peer, OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk)


def resets_in_the_body(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Content-Length: 10000\r\n\r\n" + b"x" * 100)
    reset(peer)


def resets_at_once(receiver: Hostile, peer: socket.socket) -> None:
    reset(peer)


def closes_at_once(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    peer.close()


def closes_in_the_body(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Content-Length: 10000\r\n\r\n" + b"x" * 100)
    peer.close()


def hangs(receiver: Hostile, peer: socket.socket) -> None:
    receiver.over.wait()


def hangs_after_the_request(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.over.wait()


def sends_100_000_headers(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK)
    for number in range(100_000):
        receiver.send(peer, b"X-%d: y\r\n" % number)
    receiver.send(peer, b"Content-Length: 0\r\n\r\n")


def sends_one_endless_header(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"X: ")
    while not receiver.over.is_set():
        receiver.send(peer, b"y" * 65_536)


def floods_with_interim_answers(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    while not receiver.over.is_set():
        receiver.send(peer, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 100)


def talks_garbage(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, b"\x00\xffSSH-2.0-hello there\r\n" * 10)
    peer.close()


def claims_a_huge_length(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Content-Length: 9000000000000000000\r\n\r\n")
    while not receiver.over.is_set():
        receiver.send(peer, b"x" * 65_536)


def claims_an_impossible_length(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Content-Length: 99999999999999999999999999\r\n\r\n" + b"x" * 100_000)


def never_reads(receiver: Hostile, peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    receiver.over.wait()


def answers_once_then_closes_the_idle_connection(receiver: Hostile, peer: socket.socket) -> None:
    """As a receiver does that keeps connections for a shorter time than we do."""
    if read_request(peer):
        receiver.send(peer, OK + b"Content-Length: 0\r\n\r\n")
        peer.close()


def answers_once_then_resets_at_the_next_request(receiver: Hostile, peer: socket.socket) -> None:
    """The worst moment: the idle connection dies while the next request is under way on it."""
    if read_request(peer):
        receiver.send(peer, OK + b"Content-Length: 0\r\n\r\n")
        if peer.recv(1):
            reset(peer)


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
