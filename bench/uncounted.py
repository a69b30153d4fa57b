"""Stores whose methods do not update the counters (model/rollup.py), to measure the cost of these counters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from doorstep.stores.sql.postgres import claim, settle
from doorstep.stores.sql.postgres import counters as postgres_counters
from doorstep.stores.sql.sqlite import batches
from doorstep.stores.tally import Tally

_COUNT = postgres_counters.picked_up("$1", "$14", "queued")
_CLAIM = claim.CLAIM.replace(_COUNT, "SELECT $14::int WHERE false")


@contextmanager
def uncounted() -> Iterator[None]:
    """Inside this context, claims and settlements of this process are not counted."""
    assert _COUNT in claim.CLAIM, "the SQL of the claim no longer contains the counter that is removed here"
    with ExitStack() as stack:
        stack.enter_context(patch.object(claim, "CLAIM", _CLAIM))
        stack.enter_context(patch.object(settle, "settlement_tally", lambda *_: Tally()))
        stack.enter_context(patch.object(batches, "add_counts", lambda *_: None))
        yield
