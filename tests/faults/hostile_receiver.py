"""Misbehaving receivers, written as plain socket scripts that run in a separate process.

`Hostiles` starts that process, which opens one port for each script. A script gets the accepted socket with the request
unread, and runs until the client gives up. The process counts connections and bytes for the tests.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MIB = 1024 * 1024


class Hostiles:
    """The test's handle on all hostile receivers."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.faults.hostile_receiver"]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._ports = self._ask()

    def url(self, script: Script, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self._ports[script.__name__]}/"

    def seen(self, script: Script) -> dict[str, int]:
        """How many `connections` a script has had, and how many `bytes` it was able to send, so far."""
        counts: dict[str, int] = self._ask(script.__name__)
        return counts

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, question: str = "ports") -> dict[str, int]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        answered: dict[str, int] = json.loads(self._process.stdout.readline())
        return answered


class Hostile:
    """A listening socket that runs one script for each connection."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._open: list[socket.socket] = []
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        self.bytes_sent = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def send(self, peer: socket.socket, data: bytes) -> None:
        peer.sendall(data)
        self.bytes_sent += len(data)

    def dribble(self, peer: socket.socket, data: bytes) -> None:
        for byte in data:
            self.send(peer, bytes([byte]))
            time.sleep(DRIBBLE_SECONDS)

    def hang(self) -> None:
        threading.Event().wait()

    def _accept(self) -> None:
        while True:
            peer, _ = self._listening.accept()
            self.connections += 1
            self._open.append(peer)  # otherwise it would be closed when the script returns
            threading.Thread(target=self._run, args=(peer,), daemon=True).start()

    def _run(self, peer: socket.socket) -> None:
        with suppress(OSError):  # the client gave up
            self._script(self, peer)


Script = Callable[[Hostile, socket.socket], None]


def read_request(peer: socket.socket) -> bytes:
    """Read one request with a content-length; empty if the client has closed the connection."""
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
"""A pause so short that a timeout between two bytes would never expire."""


def dribbles_headers(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.dribble(peer, OK + b"X-Slow: " + b"x" * 10_000)


def dribbles_body(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Content-Length: 10000\r\n\r\n")
    receiver.dribble(peer, b"x" * 10_000)


def never_ends_its_chunks(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
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


def closes_without_reading(receiver: Hostile, peer: socket.socket) -> None:
    peer.recv(1)
    peer.close()


def talks_without_reading(receiver: Hostile, peer: socket.socket) -> None:
    receiver.send(peer, b"220 mail.example ESMTP\r\n" * 10)
    receiver.hang()


def closes_at_once(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    peer.close()


def closes_in_the_body(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Content-Length: 10000\r\n\r\n" + b"x" * 100)
    peer.close()


def hangs(receiver: Hostile, peer: socket.socket) -> None:
    receiver.hang()


def hangs_after_the_request(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.hang()


def sends_100_000_headers(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK)
    for number in range(100_000):
        receiver.send(peer, b"X-%d: y\r\n" % number)
    receiver.send(peer, b"Content-Length: 0\r\n\r\n")


def sends_one_endless_header(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"X: ")
    while True:
        receiver.send(peer, b"y" * 65_536)


def floods_with_interim_answers(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    while True:
        receiver.send(peer, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 100)


def talks_garbage(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, b"\x00\xffSSH-2.0-hello there\r\n" * 10)
    peer.close()


def claims_a_huge_length(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Content-Length: 9000000000000000000\r\n\r\n")
    while True:
        receiver.send(peer, b"x" * 65_536)


def claims_an_impossible_length(receiver: Hostile, peer: socket.socket) -> None:
    read_request(peer)
    receiver.send(peer, OK + b"Content-Length: 99999999999999999999999999\r\n\r\n" + b"x" * 100_000)


def never_reads(receiver: Hostile, peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    receiver.hang()


def answers_once_then_closes_the_idle_connection(receiver: Hostile, peer: socket.socket) -> None:
    """Like a receiver that keeps idle connections for a shorter time than we do."""
    if read_request(peer):
        receiver.send(peer, OK + b"Content-Length: 0\r\n\r\n")
        peer.close()


def answers_once_then_resets_at_the_next_request(receiver: Hostile, peer: socket.socket) -> None:
    """The worst moment: the idle connection is reset while the next request is being sent on it."""
    if read_request(peer):
        receiver.send(peer, OK + b"Content-Length: 0\r\n\r\n")
        if peer.recv(1):
            reset(peer)


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


SCRIPTS: tuple[Script, ...] = (
    dribbles_headers,
    dribbles_body,
    never_ends_its_chunks,
    bombs,
    bombs_by_transfer_encoding,
    resets_in_the_body,
    resets_at_once,
    closes_without_reading,
    talks_without_reading,
    closes_at_once,
    closes_in_the_body,
    hangs,
    hangs_after_the_request,
    sends_100_000_headers,
    sends_one_endless_header,
    floods_with_interim_answers,
    talks_garbage,
    claims_a_huge_length,
    claims_an_impossible_length,
    never_reads,
    answers_once_then_closes_the_idle_connection,
    answers_once_then_resets_at_the_next_request,
)


def main() -> None:
    """Answer commands on standard input: `ports`, or the name of a script to get its counts."""
    receivers = {script.__name__: Hostile(script) for script in SCRIPTS}
    for line in sys.stdin:
        if (name := line.strip()) == "ports":
            answered = {name: receiver.port for name, receiver in receivers.items()}
        else:
            answered = {"connections": receivers[name].connections, "bytes": receivers[name].bytes_sent}
        print(json.dumps(answered), flush=True)


if __name__ == "__main__":
    main()
