"""For tests of programs that use Doorstep, and for Doorstep's own: a clock that only moves when told, a network
that answers what it is told."""

from doorstep.testing.fake_clock import FakeClock
from doorstep.testing.fake_transport import FakeTransport

__all__ = ["FakeClock", "FakeTransport"]
