"""Handling each webhook once, although it may be delivered more than once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from doorstep.receiver.errors import StillHandling
from doorstep.receiver.ledger import Ledger, Standing

HOLD_SECONDS = 60.0


class Once:
    """Lets the first one through.

        once = Once(SqliteLedger("handled.db"))
        with once(received.webhook_id) as first:
            if first:
                ...

    An exception inside gives the webhook back, so that the next try is the first again. One that arrives while the
    same is being handled raises StillHandling: to answer 200 would lose it, should the first handler fail.

    A handler that is killed after its work and before it is noted will see the webhook again, `hold_seconds` after
    it began: for an effect that must not happen twice, note the id in the same transaction as the effect. A handler
    that takes longer than `hold_seconds` can be overtaken by a second one.
    """

    def __init__(
        self, ledger: Ledger, *, hold_seconds: float = HOLD_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._hold_seconds = hold_seconds
        self._clock = clock

    @contextmanager
    def __call__(self, webhook_id: str) -> Iterator[bool]:
        """True inside, if nobody has handled it."""
        now = self._clock()
        until = now + self._hold_seconds
        standing = self._ledger.claim(webhook_id, now, until)
        if standing is Standing.HANDLING:
            raise StillHandling(f"webhook {webhook_id} is being handled; send it again later")
        if standing is Standing.HANDLED:
            yield False
            return
        try:
            yield True
        except BaseException:
            self._ledger.release(webhook_id, until)
            raise
        self._ledger.finish(webhook_id, self._clock())
