"""Lists, page by page, and their counts."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.batch import BatchFilter
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.listing import CauseGroup, Count, DeadLetterFilter, EventFilter, Page, RetryQueueFilter
from doorstep.stores.limits import COUNT_MAX
from doorstep.stores.sql.queries import dead_letters, lists, retry_queue
from doorstep.stores.sql.queries import dead_letters as deaths
from doorstep.stores.sql.queries import dead_letters as letters
from doorstep.stores.sql.queries import events as event_lists
from doorstep.stores.sql.queries import retry_queue as queue
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class ListVerbs(Scripted):
    async def list_events(
        self, org_id: UUID, wanted: EventFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[EventSummary]:
        return await self._read(org_id, event_lists.list_events, org_id, wanted, cursor, limit)

    async def count_events(self, org_id: UUID, wanted: EventFilter, limit: int = COUNT_MAX) -> Count:
        return await self._read(org_id, event_lists.count_events, org_id, wanted, limit)

    async def inbox(
        self, org_id: UUID, status: EventStatus, cursor: str | None = None, limit: int = 50
    ) -> Page[EventView]:
        return await self._read(org_id, event_lists.inbox, org_id, status, cursor, limit)

    async def count_inbox(self, org_id: UUID, status: EventStatus, limit: int = COUNT_MAX) -> Count:
        return await self._read(org_id, event_lists.count_inbox, org_id, status, limit)

    async def retry_queue(
        self, org_id: UUID, wanted: RetryQueueFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        return await self._read(org_id, queue.retry_queue, org_id, wanted, cursor, limit)

    async def count_retry_queue(self, org_id: UUID, wanted: RetryQueueFilter, limit: int = COUNT_MAX) -> Count:
        return await self._read(org_id, queue.count_retry_queue, org_id, wanted, limit)

    async def retry_queue_by_endpoint(
        self, org_id: UUID, wanted: RetryQueueFilter, limit: int = COUNT_MAX
    ) -> dict[UUID, int]:
        return await self._read(org_id, queue.retry_queue_by_endpoint, org_id, wanted, limit)

    async def dead_letters(
        self, org_id: UUID, wanted: DeadLetterFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        return await self._read(org_id, letters.dead_letters, org_id, wanted, cursor, limit)

    async def count_dead_letters(self, org_id: UUID, wanted: DeadLetterFilter, limit: int = COUNT_MAX) -> Count:
        return await self._read(org_id, letters.count_dead_letters, org_id, wanted, limit)

    async def dead_letters_by_endpoint(
        self, org_id: UUID, wanted: DeadLetterFilter, limit: int = COUNT_MAX
    ) -> dict[UUID, int]:
        return await self._read(org_id, letters.dead_letters_by_endpoint, org_id, wanted, limit)

    async def cause_groups(
        self, org_id: UUID, wanted: DeadLetterFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[CauseGroup]:
        return await self._read(org_id, dead_letters.cause_groups, org_id, wanted, cursor, limit)

    async def deaths_by_hour(
        self, org_id: UUID, causes: Sequence[int], since: Instant, hours: int
    ) -> dict[int, tuple[int, ...]]:
        return await self._read(org_id, deaths.deaths_by_hour, org_id, causes, since, hours)

    async def list_batches(
        self, org_id: UUID, wanted: BatchFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        return await self._read(org_id, retry_queue.list_batches, org_id, wanted, cursor, limit)

    async def list_endpoints(
        self, org_id: UUID, state: EndpointState | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Endpoint]:
        return await self._read(org_id, lists.list_endpoints, org_id, state, cursor, limit)

    async def list_audit(
        self,
        org_id: UUID,
        actor: str | None = None,
        action: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        about: Sequence[UUID] = (),
    ) -> Page[AuditEntry]:
        return await self._read(org_id, lists.list_audit, org_id, actor, action, cursor, limit, about)
