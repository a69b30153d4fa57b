"""Reading: what the rows say, never changing them. Another organization's rows are not found."""

from __future__ import annotations

from uuid import UUID

from doorstep.errors import NotFound
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.event import EventView
from doorstep.stores.memory.tables import DeliveryRow, Tables


class ReadingVerbs:
    """Events, deliveries and their logs, as they stand."""

    _tables: Tables

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        row = self._tables.events.get(event_id)
        if row is None or row.event.org_id != org_id:
            raise NotFound(f"no event {event_id}")
        deliveries = [one.delivery for one in row.deliveries]
        retried = (one.last_attempt_at for one in deliveries if one.attempt > 1)
        return EventView(
            event=row.event,
            status=row.status,
            deliveries=row.accepted_deliveries,
            retry_attempts=max((one.retry_attempts for one in deliveries), default=0),
            last_retry_at=max((at for at in retried if at is not None), default=None),
            failed_at=row.failed_at,
            next_retry_at=min((one.next_retry_at for one in deliveries if one.next_retry_at is not None), default=None),
        )

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        row = self._tables.events.get(event_id)
        if row is None or row.event.org_id != org_id:
            return []
        return [one.delivery for one in row.deliveries]

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery:
        return self._row(org_id, delivery_id).delivery

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        return sorted(self._row(org_id, delivery_id).attempts, key=lambda attempt: attempt.number)

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        return list(self._row(org_id, delivery_id).history)

    async def tally(self) -> dict[DeliveryState, int]:
        states = [row.delivery.state for row in self._tables.deliveries.values()]
        return {state: states.count(state) for state in DeliveryState}

    def _row(self, org_id: UUID, delivery_id: UUID) -> DeliveryRow:
        row = self._tables.deliveries.get(delivery_id)
        if row is None or row.delivery.org_id != org_id:
            raise NotFound(f"no delivery {delivery_id}")
        return row
