"""How endpoints stand: their circuits, and since when their oldest delivery waits."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.circuit import Circuit
from doorstep.model.delivery import OPEN_STATES
from doorstep.model.event import owed_since
from doorstep.stores.memory.tables import Tables


class StandingVerbs:
    _tables: Tables

    async def circuits(self, org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> dict[UUID, Circuit]:
        kept = self._tables.circuits
        return {one: kept[one] for one in self._own(org_id, endpoint_ids) if one in kept}

    async def waiting_since(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        """Looks at everything, as only a store of this size can."""
        own = set(self._own(org_id, endpoint_ids))
        found: dict[UUID, Instant] = {}
        for row in self._tables.deliveries.values():
            delivery, event = row.delivery, row.event.event
            if delivery.endpoint_id in own and delivery.state in OPEN_STATES:
                owed_at = owed_since(event.created_at, event.deliver_at)
                found[delivery.endpoint_id] = min(found.get(delivery.endpoint_id, owed_at), owed_at)
        return found

    def _own(self, org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> list[UUID]:
        endpoints = self._tables.endpoints
        return [one for one in endpoint_ids if one in endpoints and org_id in (None, endpoints[one].org_id)]
