"""Helpers for tests of programs that use Doorstep, and of Doorstep itself. See docs/how-to/testing.md.

    from doorstep.testing import Receiver, sandbox, scripted

Do not use this package outside of tests.
"""

from doorstep.testing.receiver import (
    Answer,
    Manner,
    NoNetwork,
    Personality,
    Receiver,
    Request,
    dead,
    dribble,
    flaky,
    ok,
    reset,
    scripted,
    slow,
    status,
)
from doorstep.testing.sandbox import BlockingSandbox, Drainer, FakeClock, Sandbox, sandbox

__all__ = [
    "Answer",
    "BlockingSandbox",
    "Drainer",
    "FakeClock",
    "Manner",
    "NoNetwork",
    "Personality",
    "Receiver",
    "Request",
    "Sandbox",
    "dead",
    "dribble",
    "flaky",
    "ok",
    "reset",
    "sandbox",
    "scripted",
    "slow",
    "status",
]
