"""Figures: what was counted, added up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.rollup import Figures, Point, Span
from doorstep.stores.memory.tables import Tables
from doorstep.stores.ranges import widened
from doorstep.stores.tally import EVERY


class FiguresVerbs:
    _tables: Tables

    async def fold(self, now: Instant, limit: int, *, minutes_before: Instant = 0, hours_before: Instant = 0) -> int:
        ticks = self._tables.ticks
        return max(
            ticks.fold(Span.MINUTE.start(now), limit),
            ticks.drop(Span.MINUTE, minutes_before, limit),
            ticks.drop(Span.HOUR, hours_before, limit),
            ticks.drop(Span.DAY, hours_before, limit),
        )

    async def totals(self, org_id: UUID | None = None) -> Figures:
        return self._tables.ticks.of(org_id or EVERY, EVERY, Span.EVER).get(0, Figures())

    async def series(
        self, org_id: UUID | None, endpoint_id: UUID | None, span: Span, since: Instant, until: Instant
    ) -> list[Point]:
        found = self._tables.ticks.of(org_id or EVERY, endpoint_id or EVERY, span)
        return [Point(at, figures) for at, figures in found.items() if since <= at < until]

    async def figures(
        self, org_id: UUID, endpoint_ids: Sequence[UUID], since: Instant, until: Instant
    ) -> dict[UUID, Figures]:
        return {one: await self._sum(org_id, one, since, until) for one in endpoint_ids}

    async def _sum(self, org_id: UUID, endpoint_id: UUID, since: Instant, until: Instant) -> Figures:
        parts = [await self.series(org_id, endpoint_id, *part) for part in widened(since, until)]
        return reduce(add, (point.figures for points in parts for point in points), Figures())

    async def levels(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Figures]:
        return {one: self._tables.ticks.of(org_id, one, Span.EVER).get(0, Figures()) for one in endpoint_ids}
