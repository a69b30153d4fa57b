"""Ports for programs that tests start: each test process on this machine has its own range.

The kernel may hand out a free port a second time before the intended program has started. Deliveries for that program
would then reach another one. These ranges lie below the kernel's ephemeral ports. File locks reserve them, because two
test runs at the same time would otherwise use the same range.
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
    """A port on which nobody listens. It is not returned again soon."""
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
    """Reserve the first range that no other process uses. Its lock ends with this process, even if that is killed."""
    for number in range(_RANGES):
        lock = os.open(Path(tempfile.gettempdir(), f"doorstep-ports-{number}.lock"), os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        return number
    raise AssertionError(f"all {_RANGES} ranges of ports are taken; is something left over from other runs?")
