"""Keeping house: what has been kept long enough goes."""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import astuple

from doorstep.clock import Instant
from doorstep.model.claim import Moved
from doorstep.model.record import Record


class Cleaned(Record, frozen=True):
    """How many rows one round of cleaning removed."""

    deliveries: int = 0
    attempts: int = 0
    events: int = 0
    idempotency_keys: int = 0
    inbox_events: int = 0
    """Events that nobody ever acknowledged; `events` leaves them out."""
    circuit_changes: int = 0
    audit_lines: int = 0
    bulk_items: int = 0
    """What bulk operations remember of the deliveries that they retried."""
    bulks: int = 0

    @property
    def total(self) -> int:
        return sum(astuple(self))


class HouseStore(Protocol):
    """Each call does a bounded part of the work, the oldest first."""

    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        """Up to `limit` dead letters settled before `dead_before` and not deleted become archived, oldest first.
        `settled_at` stays: it is when they died."""

    async def expire(self, code: str, reason: str, since: Instant, now: Instant, limit: int) -> Moved:
        """Move what still waits of up to `limit` events that expired after `since`, up to `now`, to the dead letters.

        The events that expired first go first; what is in progress is left to its worker. The deliveries become
        permanent failures with this code and reason, as `bury` makes them.
        """

    async def clean(
        self,
        settled_before: Instant,
        now: Instant,
        limit: int,
        *,
        inbox_before: Instant = 0,
        audit_before: Instant = 0,
    ) -> Cleaned:
        """Remove what has been kept long enough, oldest first, up to `limit` of each kind:

        deliveries settled before (delivered, resolved, cancelled, deleted), with their attempts and history and the
        events of which nothing is left; events acknowledged before; changes of circuits before, but never the newest
        of an endpoint; bulk operations that ended before, once nothing is left of what they remember; inbox events
        accepted before `inbox_before` that nobody acknowledged; audit lines before `audit_before`; idempotency keys
        that no longer count. Dead letters stay.
        """
