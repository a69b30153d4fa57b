"""Reading: single things by their ids, with what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.event import EventSummary, EventView


class ReadingStore(Protocol):
    """Nothing here changes anything."""

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        """The event with the figures of its deliveries; one that is in the outbox is received, or failed if set aside.

        `deliveries` is as many as were accepted; `retry_attempts` is the highest; `last_retry_at` the latest
        `last_attempt_at` of those with more than one attempt; `next_retry_at` the first of theirs; `failed_at` is
        when the status became failed, while it is.
        """

    async def summaries(self, org_id: UUID, event_ids: Sequence[UUID]) -> list[EventSummary]:
        """Those of the events that are there, in any order, each once: figures without payloads, for who asks often."""

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        """The deliveries of an event in the order of their creation; none for an unknown event."""

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery: ...

    async def these_deliveries(self, org_id: UUID, delivery_ids: Sequence[UUID]) -> list[Delivery]:
        """Those of the deliveries that are there, in any order, each once."""

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        """The attempt log by number, rows of one number in the order of the calls that wrote them; it outlives the
        deletion of a dead letter."""

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        """Every transition in order, the acceptance first."""

    async def tally(self) -> dict[DeliveryState, int]:
        """How many deliveries are in each of the states, zeros too, counted row by row: for tests and reports."""

    async def payload(self, org_id: UUID, delivery_id: UUID) -> bytes:
        """What goes out for a delivery: its own payload if an operator edited it, else that of its event."""

    async def payloads(self, org_id: UUID, delivery_ids: Sequence[UUID]) -> dict[UUID, bytes]:
        """The same for those of these deliveries that are there, and whose event was not deleted."""
