"""Posting into the outbox, and what cannot be accepted from it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.act import AuditLine
from doorstep.model.posting import Posting
from doorstep.stores.sql.cold import outbox as outbox_scripts
from doorstep.stores.sql.cold.verbs.scripted import Scripted


class OutboxVerbs(Scripted):
    async def post(self, postings: Sequence[Posting]) -> None:
        await self._write(None, outbox_scripts.post, postings)

    async def outbox(self, limit: int) -> list[Posting]:
        return await self._read(None, outbox_scripts.outbox, limit)

    async def set_aside(self, event_id: UUID, refusal: str, now: Instant) -> None:
        await self._write(None, outbox_scripts.set_aside, event_id, refusal, now)

    async def refused(self, limit: int) -> list[Posting]:
        return await self._read(None, outbox_scripts.refused, limit)

    async def put_back(self, event_ids: Sequence[UUID], line: AuditLine) -> list[Posting]:
        found = await self._write(None, outbox_scripts.put_back, event_ids, line)
        self.tell_posted()
        return found

    async def discard(self, event_ids: Sequence[UUID], line: AuditLine) -> list[Posting]:
        return await self._write(None, outbox_scripts.discard, event_ids, line)
