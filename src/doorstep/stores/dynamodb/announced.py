"""Claiming what messages announce, for a function that SQS calls: `announced` limits what is found to their deliveries.

Everything else stays as it is: the claimer applies the states, circuits and limits of endpoints, and the claim itself is
the same conditional write. The keys in the messages lead straight to the items, so a late index does not matter, and
looking for what is due costs one batch read instead of a query of each shard for each endpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.claim import Lane
from doorstep.stores.dynamodb.messages import DueMessage
from doorstep.stores.dynamodb.path import PathVerbs
from doorstep.stores.dynamodb.rows import DeliveryRow, delivery_key
from doorstep.stores.dynamodb.variables import read_circuits


class AnnouncedVerbs(PathVerbs):
    announced: Collection[DueMessage] | None = None
    """The deliveries that `due_lanes` and `claim` find; None for all that wait."""

    async def due_lanes(self, now: Instant, later_max: int | None = None) -> list[Lane]:
        if self.announced is None:
            return await super().due_lanes(now, later_max)
        first: dict[UUID, Instant] = {}
        for row in await self._announced_rows():
            due_at = row.delivery.due_at or 0
            first[row.delivery.endpoint_id] = min(due_at, first.get(row.delivery.endpoint_id, due_at))
        circuits = await read_circuits(self._aws, first) if first else {}
        await self._learn_owners(first)
        ordered = sorted(first.items(), key=lambda one: one[1])
        return [await self._lane(endpoint_id, due_at, circuits.get(endpoint_id)) for endpoint_id, due_at in ordered]

    async def _waiting(
        self, endpoint_id: UUID, due_from: Instant = 0, due_until: Instant | None = None, limit: int = 1_000
    ) -> list[DeliveryRow]:
        if self.announced is None:
            return await super()._waiting(endpoint_id, due_from, due_until, limit)
        return [
            row
            for row in await self._announced_rows()
            if row.delivery.endpoint_id == endpoint_id
            and due_from <= (row.delivery.due_at or 0)
            and (due_until is None or (row.delivery.due_at or 0) <= due_until)
        ]

    async def _forced(self) -> Sequence[DeliveryRow]:
        return await super()._forced() if self.announced is None else await self._announced_rows()

    async def _announced_rows(self) -> list[DeliveryRow]:
        """The announced deliveries that wait, those that are due first before the others."""
        keys = {delivery_key(one.event_id, one.delivery_id) for one in self.announced or ()}
        return self._in_order(await self._read_deliveries(keys))
