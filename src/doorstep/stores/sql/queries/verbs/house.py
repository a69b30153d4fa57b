"""Keeping house."""

from __future__ import annotations

from doorstep.clock import Instant
from doorstep.model.claim import Moved
from doorstep.stores.sql.queries import retention
from doorstep.stores.sql.queries import retention as house
from doorstep.stores.sql.queries.verbs.scripted import Scripted
from doorstep.stores.store import Cleaned


class HouseVerbs(Scripted):
    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        return await self._write(None, house.archive, dead_before, now, limit)

    async def expire(self, code: str, reason: str, since: Instant, now: Instant, limit: int) -> Moved:
        # Looked for by a reader: the writer of SQLite has better things to do, and mostly there is nothing.
        found = await self._read(None, house.expired_events, since, now, limit)
        return await self._write(None, house.expire, found, code, reason, now) if found else Moved()

    async def clean(
        self,
        settled_before: Instant,
        now: Instant,
        limit: int,
        *,
        inbox_before: Instant = 0,
        audit_before: Instant = 0,
    ) -> Cleaned:
        return await self._write(None, retention.clean, settled_before, inbox_before, audit_before, now, limit)
