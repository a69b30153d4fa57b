"""Single events and deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.event import EventSummary, EventView
from doorstep.stores.sql.queries import deliveries
from doorstep.stores.sql.queries import events as event_lists
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class ReadingVerbs(Scripted):
    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        return await self._read(org_id, deliveries.event, org_id, event_id)

    async def summaries(self, org_id: UUID, event_ids: Sequence[UUID]) -> list[EventSummary]:
        return await self._read(org_id, event_lists.summaries, org_id, event_ids)

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        return await self._read(org_id, deliveries.deliveries, org_id, event_id)

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery:
        return await self._read(org_id, deliveries.delivery, org_id, delivery_id)

    async def these_deliveries(self, org_id: UUID, delivery_ids: Sequence[UUID]) -> list[Delivery]:
        return await self._read(org_id, deliveries.these_deliveries, org_id, delivery_ids)

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        return await self._read(org_id, deliveries.attempts, org_id, delivery_id)

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        return await self._read(org_id, deliveries.history, org_id, delivery_id)

    async def payload(self, org_id: UUID, delivery_id: UUID) -> bytes:
        return await self._read(org_id, deliveries.payload, org_id, delivery_id)

    async def payloads(self, org_id: UUID, delivery_ids: Sequence[UUID]) -> dict[UUID, bytes]:
        return await self._read(org_id, deliveries.payloads, org_id, delivery_ids)

    async def tally(self) -> dict[DeliveryState, int]:
        return await self._read(None, deliveries.tally)
