"""Figures: what was counted, added up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import ClassVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.endpoint import EndpointState
from doorstep.model.rollup import FIGURES, TREND, Figures, Point, Span, only
from doorstep.stores.ranges import widened
from doorstep.stores.tally import EVERY
from tests.reference.tables import Tables


class FiguresVerbs:
    _tables: Tables
    fold_max: ClassVar[int] = 100

    async def fold(
        self, now: Instant, limit: int | None = None, *, minutes_before: Instant = 0, hours_before: Instant = 0
    ) -> int:
        ticks, most = self._tables.ticks, self.fold_max if limit is None else limit
        return max(
            ticks.fold(Span.MINUTE.start(now), most),
            ticks.drop(Span.MINUTE, minutes_before, most),
            ticks.drop(Span.HOUR, hours_before, most),
            ticks.drop(Span.DAY, hours_before, most),
        )

    async def totals(self, org_id: UUID | None = None) -> Figures:
        if org_id is None:
            return self._level(EVERY, EVERY) - self._level(OPERATIONS_ORG, EVERY)
        return self._level(org_id, EVERY)

    async def series(
        self, org_id: UUID | None, endpoint_id: UUID | None, span: Span, since: Instant, until: Instant
    ) -> list[Point]:
        found = self._tables.ticks.of(org_id or EVERY, endpoint_id or EVERY, span)
        return [Point.of(at, figures) for at, figures in found.items() if since <= at < until]

    async def figures(
        self,
        org_id: UUID,
        endpoint_ids: Sequence[UUID],
        since: Instant,
        until: Instant,
        names: tuple[str, ...] = FIGURES,
    ) -> dict[UUID, Figures]:
        return {one: only(names, await self._sum(org_id, one, since, until)) for one in endpoint_ids}

    async def _sum(self, org_id: UUID, endpoint_id: UUID | None, since: Instant, until: Instant) -> Figures:
        parts = [await self.series(org_id, endpoint_id, *part) for part in widened(since, until)]
        return reduce(add, (point.figures for points in parts for point in points), Figures())

    async def shares(
        self, org_id: UUID, endpoint_ids: Sequence[UUID], since: Instant, until: Instant
    ) -> tuple[Figures, dict[UUID, Figures]]:
        whole = await self._sum(org_id, None, since, until)
        return whole, await self.figures(org_id, endpoint_ids, since, until)

    async def trends(
        self, org_id: UUID, endpoint_ids: Sequence[UUID], span: Span, since: Instant, until: Instant
    ) -> dict[UUID, list[Point]]:
        return {
            one: [
                Point.of(point.at, only(TREND, point.figures))
                for point in await self.series(org_id, one, span, since, until)
            ]
            for one in endpoint_ids
        }

    async def dying_endpoints(self, since: Instant) -> list[tuple[UUID, UUID]]:
        owners = [(one.org_id, one.endpoint_id) for one in self._tables.endpoints.values()]
        hourly = {owner: self._tables.ticks.of(*owner, Span.HOUR) for owner in owners}
        return [owner for owner, hours in hourly.items() if any(at >= since and hours[at].died for at in hours)]

    async def busiest(self, limit: int) -> list[UUID]:
        """Counts everyone's, as only a store of this size can."""
        living = [one for one in self._tables.endpoints.values() if one.state is not EndpointState.DELETED]
        own = [(one.org_id, one.endpoint_id) for one in living if one.org_id != OPERATIONS_ORG]
        made = {key: (await self.levels(org_id, [key]))[key].deliveries for org_id, key in own}
        busy = [key for key, deliveries in made.items() if deliveries]
        return sorted(busy, key=lambda key: (-made[key], key))[:limit]

    async def levels(
        self, org_id: UUID | None, endpoint_ids: Sequence[UUID], names: tuple[str, ...] = FIGURES
    ) -> dict[UUID, Figures]:
        return {one: only(names, self._level(org_id or self._org_of(one), one)) for one in endpoint_ids}

    def _level(self, org_id: UUID | int, endpoint_id: UUID | int) -> Figures:
        return self._tables.ticks.of(org_id, endpoint_id, Span.EVER).get(0, Figures())

    def _org_of(self, endpoint_id: UUID) -> UUID:
        known = self._tables.endpoints.get(endpoint_id)
        return endpoint_id if known is None else known.org_id  # of which nothing is known either
