"""The process in which Apprise runs: `python -m doorstep.wire.apprise_child`, one message, then it ends.

Apprise and what it imports are other people's code, which opens connections by itself. So it gets a process without our
secrets and environment, where every connection is judged by the address guard at the moment it is made (an audit hook,
which cannot be removed), and where no other program can be started nor any file but its own code be opened. Native code
that calls the system by itself would get past that; none of Apprise's services for the network does.
"""

from __future__ import annotations

import logging
import os
import sys
from ipaddress import ip_network
from typing import Any

import msgspec

from doorstep.wire.address_guard import AddressGuard

_CONNECTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_STARTS = frozenset({"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty", "os.spawn"})
_READABLE = (
    sys.prefix,
    sys.base_prefix,
    *sys.path,
    "/etc/ssl",
    "/usr/lib/ssl",
    "/usr/share/ca-certificates",
    "/dev/null",
)
"""Its own code and the certificates. A URL may name a file with a key in it, and there are others' keys on this disk."""


class Order(msgspec.Struct):
    """What the parent asks for, as JSON on the standard input."""

    url: str
    title: str
    body: str
    type: str
    allow: list[str] = []
    own: list[tuple[str, int]] = []


class Answer(msgspec.Struct):
    """What it is told, as JSON in the last line of the standard output."""

    sent: bool
    blocked: str = ""
    why: str = ""


class _Watcher:
    """Judges what the process is about to do."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self.refusal = ""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STARTS:
            self._refuse("no other program may be started")
        if event in _CONNECTS:
            self._judge(arguments)
        if event == "open":
            self._judge_file(arguments[0])

    def _judge(self, arguments: tuple[Any, ...]) -> None:
        address = arguments[1]
        if not isinstance(address, tuple) or len(address) < 2:
            self._refuse("only connections over IP may be made")
        host, port = str(address[0]).partition("%")[0], int(address[1])
        try:
            refusal = self._guard.judge(host, port)
        except ValueError:
            refusal = "not an address"
        if refusal is not None:
            self._refuse(f"{host} is {refusal}")

    def _judge_file(self, file: object) -> None:
        """An open file that is opened again, by its number, was judged before."""
        if isinstance(file, int):
            return
        path = os.path.realpath(os.fsdecode(file)) if isinstance(file, str | bytes | os.PathLike) else ""
        if not any(place and _is_within(path, place) for place in _READABLE):
            self._refuse("no other files may be opened")

    def _refuse(self, why: str) -> None:
        self.refusal = why
        raise PermissionError(f"the address guard refuses it: {why}")


def _is_within(path: str, place: str) -> bool:
    root = os.path.realpath(place)
    return path == root or path.startswith(root + os.sep)


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    out, sys.stdout = sys.stdout, sys.stderr  # what others print must not be taken for our answer
    answer = _send(order)
    out.write(msgspec.json.encode(answer).decode() + "\n")
    out.flush()


def _send(order: Order) -> Answer:
    import apprise

    logging.disable(logging.CRITICAL)  # its log lines have URLs in them
    guard = AddressGuard([ip_network(one) for one in order.allow], own_addresses=order.own)
    watcher = _Watcher(guard)
    sys.addaudithook(watcher)
    notifier = apprise.Apprise()
    if not notifier.add(order.url):
        return Answer(False, why="Apprise does not know this kind of URL")
    sent = notifier.notify(title=order.title, body=order.body, notify_type=apprise.NotifyType(order.type))
    return Answer(bool(sent), blocked=watcher.refusal)


if __name__ == "__main__":
    main()
