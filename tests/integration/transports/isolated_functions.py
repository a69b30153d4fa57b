"""Handlers that do everything that a handler can do to its own process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from dataclasses import dataclass

from doorstep.errors import Permanent
from doorstep.transports.handler_replies import Received


def do(received: Received) -> object:
    """Run the behavior that the event type names."""
    return _DEEDS[received.event_type](received)


async def do_async(received: Received) -> object:
    await asyncio.sleep(0)
    return _DEEDS[received.event_type](received)


class Shelf:
    """Shows that a handler function may also be nested inside another object."""

    @staticmethod
    def do(received: Received) -> object:
        return do(received)


@dataclass
class Order:
    number: int


def ship(order: Order, event: Received) -> object:
    """Takes its payload as a type, and calls a system that does not answer if the event type says so."""
    if event.event_type == "call":
        raise TimeoutError
    return {"number": order.number}


def _report(received: Received) -> object:
    return {"pid": os.getpid(), "org": received.org_id, "metadata": received.metadata, "folder": os.getcwd()}


def _refuse(_: Received) -> None:
    raise Permanent("CARRIER_9", "no such number", response={"their": "words"})


def _quote(received: Received) -> None:
    raise ValueError(f"cannot use {received.payload!r}")


def _rant(_: Received) -> None:
    raise Permanent("CARRIER_" + "9" * 1_000_000, "no such number " * 100_000)


def _mumble(_: Received) -> None:
    """Raises an error whose text is not valid UTF-8, like some file names."""
    raise Permanent("CARRIER_\udc80", os.fsdecode(b"no such file: \xe9"))


def _hang(_: Received) -> None:
    time.sleep(60)


def _hang_with_child(received: Received) -> None:
    """Start a program and hang. The payload names the file that gets the process ids."""
    started = subprocess.Popen(["sleep", "60"])
    with open(received.json()["pids"], "w") as file:
        file.write(f"{os.getpid()} {started.pid}")
    started.wait()


def _exit_with_child(received: Received) -> None:
    """Exit and leave a child program running."""
    started = subprocess.Popen(["sleep", "60"])
    with open(received.json()["pids"], "w") as file:
        file.write(f"{started.pid}")
    os._exit(7)


def _hoard(_: Received) -> None:
    hoard = []
    while True:
        hoard.append(bytes(10_000))


def _babble(_: Received) -> None:
    """Find the connection to the worker among the open file descriptors, and write garbage into it."""
    for handle in map(int, os.listdir("/proc/self/fd")):
        if os.path.exists(f"/proc/self/fd/{handle}") and "socket" in os.readlink(f"/proc/self/fd/{handle}"):
            os.write(handle, b"\x00\x00\x00\x05hello")
    time.sleep(60)


def _fork(_: Received) -> object:
    return os.fork() and os.getpid()


def _recurse(received: Received) -> object:
    return _recurse(received)


def _close_output(_: Received) -> str:
    sys.stdout.close()
    os.close(1)
    return "closed"


_DEEDS = {
    "report": _report,
    "refuse": _refuse,
    "rant": _rant,
    "mumble": _mumble,
    "quote": _quote,
    "hang": _hang,
    "hang with child": _hang_with_child,
    "exit with child": _exit_with_child,
    "hoard": _hoard,
    "babble": _babble,
    "fork": _fork,
    "recurse": _recurse,
    "close output": _close_output,
    "exit": lambda _: os._exit(3),
    "leave": lambda _: sys.exit(4),
    "interrupt": lambda _: (_ for _ in ()).throw(KeyboardInterrupt()),
    "segfault": lambda _: ctypes.string_at(0),
    "rubbish": lambda _: object(),
}
