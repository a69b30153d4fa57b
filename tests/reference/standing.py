"""How endpoints stand: their circuits, since when their oldest delivery waits, and how much waits that is older than
something."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.circuit import Circuit
from doorstep.model.delivery import OPEN_STATES
from doorstep.model.endpoint import EndpointState
from doorstep.model.event import owed_since
from doorstep.model.listing import Count
from doorstep.model.rollup import Span
from doorstep.stores.limits import COUNT_MAX
from tests.reference.tables import Tables


class StandingVerbs:
    _tables: Tables

    async def circuits(self, org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> dict[UUID, Circuit]:
        kept = self._tables.circuits
        return {one: kept[one] for one in self._own(org_id, endpoint_ids) if one in kept}

    async def ailing(self, org_id: UUID, since: Instant, hours: int, limit: int) -> list[UUID]:
        own = [one for one in self._tables.endpoints.values() if one.org_id == org_id]
        living = sorted(one.endpoint_id for one in own if one.state is not EndpointState.DELETED)
        disabled = [one for one in living if self._tables.endpoints[one].state is EndpointState.DISABLED]
        lost_at = {one: self._lost_at(org_id, one) for one in living}
        losing = sorted((one for one in living if lost_at[one] >= since), key=lambda one: -lost_at[one])
        found = [*disabled, *self._barred(living, "open"), *self._barred(living, "half_open"), *losing]
        return list(dict.fromkeys(found))[:limit]

    def _barred(self, endpoint_ids: Sequence[UUID], state: str) -> list[UUID]:
        kept = self._tables.circuits
        return [one for one in endpoint_ids if one in kept and kept[one].state == state]

    def _lost_at(self, org_id: UUID, endpoint_id: UUID) -> Instant:
        """The last hour in which a delivery died."""
        hours = self._tables.ticks.of(org_id, endpoint_id, Span.HOUR)
        return max((at for at, figures in hours.items() if figures.dead), default=-1)

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

    async def count_waiting(
        self, org_id: UUID, endpoint_id: UUID, created_before: Instant, limit: int = COUNT_MAX
    ) -> Count:
        waiting = self._tables.waiting[endpoint_id].all() if self._own(org_id, [endpoint_id]) else ()
        examined = [self._tables.by_key[key] for key in islice(waiting, limit + 1)]
        older = sum(row.delivery.created_at < created_before for row in examined)
        return Count(min(older, limit), exact=len(examined) <= limit)

    def _own(self, org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> list[UUID]:
        endpoints = self._tables.endpoints
        return [one for one in endpoint_ids if one in endpoints and org_id in (None, endpoints[one].org_id)]
