"""A program whose handlers harm their process in every way that a handler can: `doorstep worker --app`.

With `POISON=shared` they run in the worker process itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

from doorstep.app import Doorstep
from doorstep.model.endpoint import CircuitRules
from doorstep.transports.handler_replies import Received

RETRIES = 2
HANG_SECONDS = 1.0
MEMORY_MB = 256
_ISOLATED = os.environ.get("POISON") != "shared"
_NEVER_OPENS = CircuitRules(failures_max=1_000_000)

doorstep = Doorstep()


@doorstep.handler(
    "poison.*",
    isolated=_ISOLATED,
    memory_mb_max=MEMORY_MB if _ISOLATED else None,
    concurrency_max=2,
    policy=[0.1] * RETRIES,
    timeout_seconds=HANG_SECONDS,
    circuit=_NEVER_OPENS,
)
def poison(received: Received) -> object:
    """Do what the last part of the event type says."""
    deed = received.event_type.removeprefix("poison.")
    return _DEEDS[deed](received)


@doorstep.handler("neighbour", isolated=_ISOLATED, policy=[0.1] * RETRIES)
def neighbour(received: Received) -> None:
    """Has its own process pool, next to the pool of the poison handler."""


@doorstep.handler("bystander", policy=[0.1] * RETRIES)
async def bystander(received: Received) -> None:
    """Runs in the worker's own event loop."""


def _hoard(_: Received) -> None:
    hoard = []
    while True:
        hoard.append(bytes(10_000_000))  # hits the memory limit before the time limit, even on a busy machine


def _recurse(received: Received) -> object:
    return _recurse(received)


def _interrupt(_: Received) -> None:
    raise KeyboardInterrupt


def _close_output(_: Received) -> None:
    sys.stdout.close()
    os.close(1)


_DEEDS = {
    "exit": lambda _: os._exit(9),
    "segfault": lambda _: ctypes.string_at(0),
    "memory": _hoard,
    "hang": lambda _: time.sleep(30),
    "system_exit": lambda _: sys.exit(3),
    "interrupt": _interrupt,
    "recursion": _recurse,
    "close_output": _close_output,
    "rubbish": lambda _: object(),
    "harmless": lambda _: "ok",
}
