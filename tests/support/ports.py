"""Ports for programs that tests start: each test process of this machine has a range of its own.

A port that the kernel gives out may be given out again before the program that is to have it has started; its
deliveries then reach somebody else. These ranges lie below those that the kernel takes from. Whose they are is kept by
locks on files, because two runs of the tests at once would otherwise share them.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

_FIRST = 12_000
_EACH = 500
_RANGES = 40

_turns = count()


def free_port() -> int:
    """A port that nobody listens at, and that is not given out again soon."""
    first = _FIRST + _own_range() * _EACH
    for _ in range(_EACH):
        port = first + next(_turns) % _EACH
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


@cache
def _own_range() -> int:
    """The first that no other process has; it is given back when this one ends, however it ends."""
    for number in range(_RANGES):
        lock = os.open(Path(tempfile.gettempdir(), f"doorstep-ports-{number}.lock"), os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        return number
    raise AssertionError(f"all {_RANGES} ranges of ports are taken; is something left over from other runs?")
