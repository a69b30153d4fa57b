"""Processing each webhook once, and the ledger that remembers which were processed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple, Protocol

from doorstep.receiver.webhook import StillHandling

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


DAY_SECONDS = 86_400.0


class Standing(Enum):
    """What is known of a webhook when it arrives."""

    NEW = "new"
    HANDLING = "handling"
    """Claimed by someone who has not finished."""
    HANDLED = "handled"


class Ledger(Protocol):
    """Remembers ids. Times are seconds since 1970; each verb is one atomic step."""

    def claim(self, webhook_id: str, now: float, until: float) -> Standing:
        """NEW: it is the caller's until then. A claim that has run out (its holder crashed) is given anew."""

    def finish(self, webhook_id: str, now: float) -> None:
        """It has been handled."""

    def release(self, webhook_id: str, until: float) -> None:
        """It has not been handled after all. Only the claim that runs `until` is given up, not a later one."""


class _Entry(NamedTuple):
    until: float
    handled: bool


class MemoryLedger:
    """For one process, and until it ends. When it is full the oldest ids are forgotten, and would be handled again."""

    def __init__(self, *, keep_seconds: float = DAY_SECONDS, entries_max: int = 100_000) -> None:
        self._keep_seconds = keep_seconds
        self._entries_max = entries_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def claim(self, webhook_id: str, now: float, until: float) -> Standing:
        """See `Ledger`."""
        with self._lock:
            entry = self._entries.get(webhook_id)
            if entry is not None and entry.until > now:
                return Standing.HANDLED if entry.handled else Standing.HANDLING
            self._put(webhook_id, _Entry(until, handled=False))
            return Standing.NEW

    def finish(self, webhook_id: str, now: float) -> None:
        """See `Ledger`."""
        with self._lock:
            self._put(webhook_id, _Entry(now + self._keep_seconds, handled=True))

    def release(self, webhook_id: str, until: float) -> None:
        """See `Ledger`."""
        with self._lock:
            if self._entries.get(webhook_id) == _Entry(until, handled=False):
                del self._entries[webhook_id]

    def __len__(self) -> int:
        return len(self._entries)

    def _put(self, webhook_id: str, entry: _Entry) -> None:
        self._entries.pop(webhook_id, None)
        self._entries[webhook_id] = entry
        while len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)
