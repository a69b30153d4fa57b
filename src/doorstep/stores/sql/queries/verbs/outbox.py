"""Posting into the outbox, and what cannot be accepted from it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.sql.queries import outbox as outbox_scripts
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class OutboxVerbs(Scripted):
    async def post(self, postings: Sequence[OutboxMessage]) -> None:
        await self._write(None, outbox_scripts.post, postings)

    async def outbox(self, limit: int) -> list[OutboxMessage]:
        return await self._read(None, outbox_scripts.outbox, limit)

    async def set_aside(self, event_id: UUID, refusal: str, now: Instant) -> None:
        await self._write(None, outbox_scripts.set_aside, event_id, refusal, now)

    async def refused(self, limit: int) -> list[OutboxMessage]:
        return await self._read(None, outbox_scripts.refused, limit)

    async def put_back(self, event_ids: Sequence[UUID], line: AuditEntry) -> list[OutboxMessage]:
        found = await self._write(None, outbox_scripts.put_back, event_ids, line)
        self.tell_posted()
        return found

    async def discard(self, event_ids: Sequence[UUID], line: AuditEntry) -> list[OutboxMessage]:
        return await self._write(None, outbox_scripts.discard, event_ids, line)
