"""Sends messages through Apprise. Each message is sent by a process of its own, which is killed if it exceeds the
timeout."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_network
from typing import Any

import msgspec

from doorstep.errors import Permanent, Transient
from doorstep.model.attempt import Code
from doorstep.transports.address_guard import AddressGuard

PYTHON = (sys.executable, "-P")
"""`-P` keeps the working directory, which may contain our database and keys, off the import path."""
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "NETRC": "/dev/null",
}
"""The environment variables of the process. They replace our own, so that the process gets no secrets, no proxy
settings and none of the user's passwords."""
FOLDER = "/"


def is_installed() -> bool:
    return importlib.util.find_spec("apprise") is not None


async def send_by_apprise(url: str, message: dict[str, str], guard: AddressGuard, timeout_seconds: float) -> None:
    """Send a message. Raises Transient or Permanent if it was not sent. Apprise's own error messages are not shown,
    because they may contain secrets."""
    order = Order(url=url, allow=guard.allowed, own=guard.own, allow_http=guard.allow_http, **message)
    answer = await _ask(order, timeout_seconds)
    if answer.sent:
        return
    if answer.blocked:
        raise Permanent(Code.BLOCKED, f"The address guard refuses it: {answer.blocked}.")
    if answer.why:
        raise Permanent(Code.REJECTED, f"{answer.why}.")
    raise Transient(Code.SERVICE_UNAVAILABLE, "Apprise could not send it.")


async def _ask(order: Order, timeout_seconds: float) -> Answer:
    process = await asyncio.create_subprocess_exec(
        *PYTHON,
        "-m",
        "doorstep.transports.apprise",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=ENVIRONMENT,
        cwd=FOLDER,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            said, _ = await process.communicate(msgspec.json.encode(order))
    except TimeoutError:
        raise Transient(Code.TIMEOUT, "Apprise took too long.") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        return msgspec.json.decode(said.strip().rpartition(b"\n")[2], type=Answer)
    except msgspec.MsgspecError:
        raise Transient(Code.HANDLER_CRASHED, f"Apprise's process ended with {process.returncode}.") from None


LOCAL_SCHEMES = frozenset(
    {"syslog", "dbus", "kde", "qt", "glib", "gio", "gnome", "macosx", "windows", "blink1", "file"}
)
"""The Apprise URL schemes that notify the local machine. `rsyslog` is not included, because it uses the network."""
_LOOK_UP = "socket.getaddrinfo"
_CONNECTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_STARTS_OR_CHANGES = frozenset(
    {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty", "os.spawn"}
    | {"os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
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
"""The only paths that the process may read: its code, the certificates, and files that Python itself reads. An Apprise
URL can name a key file to read, and this machine may contain other people's keys."""


class Order(msgspec.Struct):
    """The request from the parent process, as JSON on standard input."""

    url: str
    title: str
    body: str
    type: str
    allow: list[str] = []
    own: list[tuple[str, int]] = []
    allow_http: bool = False


class Answer(msgspec.Struct):
    """The response to the parent process, as JSON in the last line of standard output."""

    sent: bool
    blocked: str = ""
    """Why the address guard blocked all addresses of the last host that Apprise tried to reach; empty if it did not."""
    why: str = ""
    """Why the message can never be sent; empty if no such reason is known."""


class Watcher:
    """An audit hook that checks the actions of the process and records why a message could not be sent.

    If a host name resolves to several addresses and at least one of them is allowed, the failure counts as temporary.
    Libraries may try to open blocked files, such as password files. A blocked file therefore counts as the reason for a
    failure only if no host name was looked up.
    """

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self.plain = False
        """Whether the next connection is for HTTP without TLS."""
        self._refused_address = ""
        self._was_let_through = False
        self._looked_up = False
        self._refused_act = ""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == _LOOK_UP:  # Apprise turns to another host: another receiver, or a redirect
            self._refused_address, self._was_let_through, self._looked_up = "", False, True
        elif event in _CONNECTS:
            self._judge(arguments)
        elif event == "open":
            self._judge_file(*arguments)
        elif event in _STARTS_OR_CHANGES:
            self._refuse("nothing on this machine may be started or changed")

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
            refusal = self._guard.judge(host, port, plain=self.plain)
        except ValueError:
            refusal = "not an address"
        if refusal is None:
            self._was_let_through = True
            return
        self._refused_address = f"{host}: {refusal}"
        raise PermissionError(f"the address guard refuses it: {self._refused_address}")

    def _judge_file(self, file: object, _mode: object = None, flags: object = 0) -> None:
        """Check whether a file may be opened. A file that is opened by its descriptor has already been checked."""
        if isinstance(file, int):
            return
        path = os.path.realpath(os.fsdecode(file)) if isinstance(file, str | bytes | os.PathLike) else ""
        writes = not isinstance(flags, int) or bool(flags & _WRITES)
        if (writes and path != _NOWHERE) or not any(place and _is_within(path, place) for place in _READABLE):
            self._refuse("no other files may be opened")

    def _refuse(self, why: str) -> None:
        self._refused_act = why
        raise PermissionError(f"Doorstep refuses it: {why}")


def _note_plain(watcher: Watcher) -> None:
    """Let the watcher know whether a connection is for plain HTTP. An audit hook sees only its address."""
    connections = sys.modules.get("urllib3.connection")
    for name, plain in (("HTTPConnection", True), ("HTTPSConnection", False)):
        kind = getattr(connections, name, None)
        if kind is not None:
            kind.connect = _noted(kind.connect, watcher, plain)


def _noted(connect: Callable[[Any], Any], watcher: Watcher, plain: bool) -> Callable[[Any], Any]:
    def noted(connection: Any) -> Any:
        watcher.plain = plain
        try:
            return connect(connection)
        finally:
            watcher.plain = False

    return noted


def _is_within(path: str, place: str) -> bool:
    root = os.path.realpath(place)
    return path == root or path.startswith(root + os.sep)


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    out, sys.stdout = sys.stdout, sys.stderr  # output of libraries must not be mistaken for the response
    answer = _send(order)
    out.write(msgspec.json.encode(answer).decode() + "\n")
    out.flush()


def _send(order: Order) -> Answer:
    if order.url.strip().partition("://")[0].lower() in LOCAL_SCHEMES:
        return Answer(False, why="It would notify only this machine")
    import apprise

    logging.disable(logging.CRITICAL)  # Apprise's log records contain URLs
    allowed = [ip_network(one) for one in order.allow]
    watcher = Watcher(AddressGuard(allowed, own_addresses=order.own, allow_http=order.allow_http))
    sys.addaudithook(watcher)
    # This creates exactly one receiver. `add` with the URL would accept several, including local ones.
    receiver = apprise.Apprise.instantiate(order.url)
    if receiver is None:
        return Answer(False, why="Apprise does not know this kind of URL")
    _note_plain(watcher)
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
