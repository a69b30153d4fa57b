"""Stores that count nothing: the hot verbs without their ticks (model/rollup.py), to see what these cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from doorstep.stores.sql.postgres import claim
from doorstep.stores.sql.postgres import counters as postgres_ticking
from doorstep.stores.sql.sqlite import counters as sqlite_ticking
from doorstep.stores.tally import Tally

_TICK = postgres_ticking.picked_up("$1", "$14", "queued")
_CLAIM = claim.CLAIM.replace(_TICK, "SELECT $14::int WHERE false")


@contextmanager
def uncounted() -> Iterator[None]:
    """Within it, what is claimed and settled in this process leaves no trace in the figures."""
    assert _TICK in claim.CLAIM, "the claim counts in another way than is taken out here"
    with ExitStack() as stack:
        stack.enter_context(patch.object(claim, "CLAIM", _CLAIM))
        stack.enter_context(patch.object(postgres_ticking, "settled", lambda *_: Tally()))
        stack.enter_context(patch.object(sqlite_ticking, "tick", lambda *_: None))
        yield
