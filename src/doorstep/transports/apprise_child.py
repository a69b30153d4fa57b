"""The process in which Apprise runs: `python -P -m doorstep.transports.apprise_child`, one message, then it ends.

Apprise and what it imports are other people's code, which opens connections by itself. So it gets a process without our
secrets and environment, where every connection is judged by the address guard at the moment it is made (an audit hook,
which cannot be removed), where nothing can be started or written, and no file but its own code be opened. Native code
that calls the system by itself would get past that; none of Apprise's services for the network does, and those for this
machine alone are refused by name.
"""

from __future__ import annotations

import logging
import os
import sys
from ipaddress import ip_network
from typing import Any

import msgspec

from doorstep.transports.address_guard import AddressGuard

LOCAL_SCHEMES = frozenset(
    {"syslog", "dbus", "kde", "qt", "glib", "gio", "gnome", "macosx", "windows", "blink1", "file"}
)
"""What Apprise would tell the machine that it runs on. (`rsyslog` is the network's.)"""
_LOOK_UP = "socket.getaddrinfo"
_CONNECTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_STARTS = frozenset({"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty", "os.spawn"})
_CHANGES = frozenset(
    {"os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
    | {"os.utime", "os.setxattr", "sqlite3.connect", "dbm.open", "syslog.openlog", "syslog.syslog", "os.kill"}
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NOWHERE = "/dev/null"
_READABLE = (
    sys.prefix,
    sys.base_prefix,
    *sys.path,
    "/etc/ssl",
    "/etc/pki",
    "/usr/lib/ssl",
    "/usr/share/ca-certificates",
    "/usr/share/zoneinfo",
    "/etc/localtime",
    "/etc/mime.types",
    _NOWHERE,
)
"""Its own code, the certificates, and what Python looks into by itself. A URL may name a file with a key in it, and there
are others' keys on this disk."""


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
    """The address guard refused every address of the last place that it wanted to reach."""
    why: str = ""
    """It will never be sent."""


class Watcher:
    """Judges what the process is about to do, and remembers what kept it from sending.

    Where a name has several addresses, and one of them was let through, it was reached: what failed then may be better
    next time. What was refused beside (a file with other people's passwords that a library looks for) decides nothing
    where anybody was asked.
    """

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._refused_address = ""
        self._was_let_through = False
        self._looked_up = False
        self._refused_act = ""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == _LOOK_UP:  # another place begins: the next of several receivers, or of a redirect
            self._refused_address, self._was_let_through, self._looked_up = "", False, True
        elif event in _CONNECTS:
            self._judge(arguments)
        elif event == "open":
            self._judge_file(*arguments)
        elif event in _STARTS or event in _CHANGES:
            self._refuse("nothing of this machine may be started or changed")

    @property
    def blocked(self) -> str:
        return "" if self._was_let_through else self._refused_address

    @property
    def refused_act(self) -> str:
        return "" if self._looked_up else self._refused_act

    def _judge(self, arguments: tuple[Any, ...]) -> None:
        address = arguments[1]
        if not isinstance(address, tuple) or len(address) < 2:
            self._refuse("only connections over IP may be made")
        host, port = str(address[0]).partition("%")[0], int(address[1])
        try:
            refusal = self._guard.judge(host, port)
        except ValueError:
            refusal = "not an address"
        if refusal is None:
            self._was_let_through = True
            return
        self._refused_address = f"{host} is {refusal}"
        raise PermissionError(f"the address guard refuses it: {self._refused_address}")

    def _judge_file(self, file: object, _mode: object = None, flags: object = 0) -> None:
        """An open file that is opened again, by its number, was judged before."""
        if isinstance(file, int):
            return
        path = os.path.realpath(os.fsdecode(file)) if isinstance(file, str | bytes | os.PathLike) else ""
        writes = not isinstance(flags, int) or bool(flags & _WRITES)
        if (writes and path != _NOWHERE) or not any(place and _is_within(path, place) for place in _READABLE):
            self._refuse("no other files may be opened")

    def _refuse(self, why: str) -> None:
        self._refused_act = why
        raise PermissionError(f"Doorstep refuses it: {why}")


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
    if order.url.strip().partition("://")[0].lower() in LOCAL_SCHEMES:
        return Answer(False, why="It leads to nobody but this machine")
    import apprise

    logging.disable(logging.CRITICAL)  # its log lines have URLs in them
    watcher = Watcher(AddressGuard([ip_network(one) for one in order.allow], own_addresses=order.own))
    sys.addaudithook(watcher)
    receiver = apprise.Apprise.instantiate(order.url)  # one: `add` would find several in it, for this machine too
    if receiver is None:
        return Answer(False, why="Apprise does not know this kind of URL")
    notifier = apprise.Apprise()
    notifier.add(receiver)
    sent = notifier.notify(
        title=order.title,
        body=order.body,
        notify_type=apprise.NotifyType(order.type),
        body_format=apprise.NotifyFormat.TEXT,
    )
    return Answer(bool(sent), blocked=watcher.blocked, why=watcher.refused_act)


if __name__ == "__main__":
    main()
