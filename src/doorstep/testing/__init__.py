"""For tests of programs that use Doorstep, and for Doorstep's own: see docs/how-to/testing.md.

    from doorstep.testing import Receiver, sandbox, scripted

Nothing here is for use outside of tests.
"""

from doorstep.testing.drainer import Drainer
from doorstep.testing.fake_clock import FakeClock
from doorstep.testing.fake_transport import FakeTransport, NoNetwork
from doorstep.testing.receiver import (
    Answer,
    Manner,
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
from doorstep.testing.sandbox import BlockingSandbox, Sandbox, sandbox

__all__ = [
    "Answer",
    "BlockingSandbox",
    "Drainer",
    "FakeClock",
    "FakeTransport",
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
