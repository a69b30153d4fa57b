"""Fixtures for pytest. In your conftest.py: `pytest_plugins = ["doorstep.testing.fixtures"]`.

They need no asyncio plugin. A sandbox wraps your own Doorstep, so you write its fixture yourself:

    @pytest.fixture
    def box(doorstep_clock):
        with sandbox(ds, clock=doorstep_clock) as box:
            yield box
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from doorstep.testing.receiver import Receiver
from doorstep.testing.sandbox import FakeClock


@pytest.fixture
def doorstep_clock() -> FakeClock:
    """A clock that stands still until the test moves it. Share it between the sandbox and the receiver."""
    return FakeClock()


@pytest.fixture
def receiver(doorstep_clock: FakeClock) -> Iterator[Receiver]:
    """A webhook receiver on a real socket, for a sandbox with `network=True`."""
    with Receiver(doorstep_clock) as it:
        yield it
