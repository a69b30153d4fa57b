"""Which webhooks have been handled: the ledger's contract, and one in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from enum import Enum
from typing import NamedTuple, Protocol

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
