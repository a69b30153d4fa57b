"""Reading: what the rows say, never changing them. Another organization's rows are not found."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.errors import NotFound
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.event import EventSummary, EventView
from doorstep.model.outbox import OutboxMessage, summary_of_posting, view_of_posting
from doorstep.stores import notes
from tests.reference.projections import summary_of, view_of
from tests.reference.tables import DeliveryRow, Tables


class ReadingVerbs:
    """Events, deliveries and their logs, as they stand."""

    _tables: Tables

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        posting = self._posting(org_id, event_id)
        return view_of(self._tables.event(org_id, event_id)) if posting is None else view_of_posting(posting)

    async def summaries(self, org_id: UUID, event_ids: Sequence[UUID]) -> list[EventSummary]:
        rows = [self._tables.events.get(event_id) for event_id in dict.fromkeys(event_ids)]
        found = [summary_of(row) for row in rows if row is not None and row.event.org_id == org_id and not row.deleted]
        postings = [self._posting(org_id, event_id) for event_id in dict.fromkeys(event_ids)]
        return found + [summary_of_posting(posting) for posting in postings if posting is not None]

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        row = self._tables.events.get(event_id)
        if row is None or row.event.org_id != org_id:
            return []
        return [one.delivery for one in row.deliveries]

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery:
        return self._row(org_id, delivery_id).delivery

    async def these_deliveries(self, org_id: UUID, delivery_ids: Sequence[UUID]) -> list[Delivery]:
        return [row.delivery for row in self._rows(org_id, delivery_ids)]

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        return sorted(self._row(org_id, delivery_id).attempts, key=lambda attempt: attempt.number)

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        return list(self._row(org_id, delivery_id).history)

    async def payload(self, org_id: UUID, delivery_id: UUID) -> bytes:
        row = self._row(org_id, delivery_id)
        if row.event.deleted:
            raise NotFound(notes.no_payload(delivery_id))
        return row.payload

    async def payloads(self, org_id: UUID, delivery_ids: Sequence[UUID]) -> dict[UUID, bytes]:
        rows = self._rows(org_id, delivery_ids)
        return {row.delivery.delivery_id: row.payload for row in rows if not row.event.deleted}

    async def tally(self) -> dict[DeliveryState, int]:
        states = [row.delivery.state for row in self._tables.deliveries.values()]
        return {state: states.count(state) for state in DeliveryState}

    def _posting(self, org_id: UUID, event_id: UUID) -> OutboxMessage | None:
        """What is in the outbox and not yet among the events."""
        posting = self._tables.outbox.get(event_id)
        shown = org_id in self._tables.orgs and event_id not in self._tables.events
        return posting if shown and posting is not None and posting.org_id == org_id else None

    def _rows(self, org_id: UUID, delivery_ids: Sequence[UUID]) -> list[DeliveryRow]:
        rows = [self._tables.deliveries.get(delivery_id) for delivery_id in dict.fromkeys(delivery_ids)]
        return [row for row in rows if row is not None and row.delivery.org_id == org_id]

    def _row(self, org_id: UUID, delivery_id: UUID) -> DeliveryRow:
        row = self._tables.deliveries.get(delivery_id)
        if row is None or row.delivery.org_id != org_id:
            raise NotFound(f"no delivery {delivery_id}")
        return row
