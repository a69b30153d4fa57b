"""The outbox: what programs posted in their own transactions, until it is forwarded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.outbox import OutboxMessage
from doorstep.stores import notes
from doorstep.stores.limits import OUTBOX_BYTES_MAX, fitting
from tests.reference.tables import Tables


class OutboxVerbs:
    """Rows are kept in the order in which they came."""

    _tables: Tables

    async def post(self, postings: Sequence[OutboxMessage]) -> None:
        for posting in postings:
            self._tables.outbox[posting.event_id] = posting
        self.tell_posted()

    async def outbox(self, limit: int) -> list[OutboxMessage]:
        waiting = (row for row in self._tables.outbox.values() if row.refused_at is None)
        first = list(islice(waiting, limit))
        return first[: fitting((len(row.payload) for row in first), OUTBOX_BYTES_MAX)]

    async def any_posted(self) -> bool:
        return bool(await self.outbox(1))

    async def clear_outbox(self, event_ids: Sequence[UUID]) -> None:
        for event_id in event_ids:
            self._tables.outbox.pop(event_id, None)

    async def set_aside(self, event_id: UUID, refusal: str, now: Instant) -> None:
        row = self._tables.outbox.get(event_id)
        if row is not None and row.refused_at is None:
            self._tables.outbox[event_id] = replace(row, refused_at=now, refusal=refusal)

    async def refused(self, limit: int) -> list[OutboxMessage]:
        return list(islice((row for row in self._tables.outbox.values() if row.refused_at is not None), limit))

    async def put_back(self, event_ids: Sequence[UUID], line: AuditEntry) -> list[OutboxMessage]:
        found = self._refused_among(event_ids)
        self._audit(line, found)
        for row in found:
            self._tables.outbox[row.event_id] = replace(row, refused_at=None, refusal=None)
        self.tell_posted()
        return found

    async def discard(self, event_ids: Sequence[UUID], line: AuditEntry) -> list[OutboxMessage]:
        found = self._refused_among(event_ids)
        self._audit(line, found)
        for row in found:
            del self._tables.outbox[row.event_id]
        return found

    def _refused_among(self, event_ids: Sequence[UUID]) -> list[OutboxMessage]:
        rows = (self._tables.outbox.get(event_id) for event_id in dict.fromkeys(event_ids))
        return [row for row in rows if row is not None and row.refused_at is not None]

    def _audit(self, line: AuditEntry, done: Sequence[OutboxMessage]) -> None:
        lines = notes.outbox_lines(line, done, self._tables.orgs)
        for one in lines:
            self._tables.check_org(one.org_id)
        for one in lines:
            self._tables.audit.append(one)

    def on_posted(self, wake: Callable[[], None]) -> None:
        self._tables.posted_wakes.append(wake)

    def tell_posted(self) -> None:
        for wake in self._tables.posted_wakes:
            wake()
