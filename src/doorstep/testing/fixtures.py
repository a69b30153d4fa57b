"""Fixtures for pytest. In your conftest.py: `pytest_plugins = ["doorstep.testing.fixtures"]`.

They are plain ones and need no plugin for asyncio. A sandbox is of your own Doorstep, so its fixture is yours:

    @pytest.fixture
    def box(doorstep_clock):
        with sandbox(ds, clock=doorstep_clock) as box:
            yield box
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from doorstep.testing.fake_clock import FakeClock
from doorstep.testing.receiver import Receiver


@pytest.fixture
def doorstep_clock() -> FakeClock:
    """A clock that stands still until the test moves it; the same one for the sandbox and the receiver."""
    return FakeClock()


@pytest.fixture
def receiver(doorstep_clock: FakeClock) -> Iterator[Receiver]:
    """A webhook receiver on a real socket of this machine, for a sandbox with `network=True`."""
    with Receiver(doorstep_clock) as it:
        yield it
