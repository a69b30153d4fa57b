"""Ports for programs that tests start: each worker of the test run has a range of its own.

A port that the kernel gives out may be given out again before the program that is to have it has started; its
deliveries then reach somebody else. These ranges lie below those that the kernel takes from.
"""

from __future__ import annotations

import os
import random
import socket
from itertools import count

_FIRST = 12_000
_EACH = 1_500
_WORKERS_MAX = 12

_turns = count(random.randrange(_EACH))


def free_port() -> int:
    """A port that nobody listens at, and that is not given out again soon."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS_MAX
    for _ in range(_EACH):
        port = _FIRST + worker * _EACH + next(_turns) % _EACH
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
