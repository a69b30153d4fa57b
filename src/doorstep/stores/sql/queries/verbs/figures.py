"""Figures: how much of everything happened, and how much there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.rollup import FIGURES, Figures, Point, Span
from doorstep.stores.sql.queries import aggregation, figures
from doorstep.stores.sql.queries import figures as dying
from doorstep.stores.sql.queries import figures as rollups
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class FigureVerbs(Scripted):
    fold_max: ClassVar[int]

    async def fold(
        self, now: Instant, limit: int | None = None, *, minutes_before: Instant = 0, hours_before: Instant = 0
    ) -> int:
        most = self.fold_max if limit is None else limit
        return await self._write(None, aggregation.aggregate, now, most, minutes_before, hours_before)

    async def totals(self, org_id: UUID | None = None) -> Figures:
        return await self._read(org_id, rollups.totals, org_id)

    async def series(
        self, org_id: UUID | None, endpoint_id: UUID | None, span: Span, since: Instant, until: Instant
    ) -> list[Point]:
        return await self._read(org_id, rollups.series, org_id, endpoint_id, span, since, until)

    async def figures(
        self,
        org_id: UUID,
        endpoint_ids: Sequence[UUID],
        since: Instant,
        until: Instant,
        names: tuple[str, ...] = FIGURES,
    ) -> dict[UUID, Figures]:
        return await self._read(org_id, rollups.figures, org_id, endpoint_ids, since, until, names)

    async def shares(
        self, org_id: UUID, endpoint_ids: Sequence[UUID], since: Instant, until: Instant
    ) -> tuple[Figures, dict[UUID, Figures]]:
        return await self._read(org_id, rollups.shares, org_id, endpoint_ids, since, until)

    async def trends(
        self, org_id: UUID, endpoint_ids: Sequence[UUID], span: Span, since: Instant, until: Instant
    ) -> dict[UUID, list[Point]]:
        return await self._read(org_id, rollups.trends, org_id, endpoint_ids, span, since, until)

    async def dying_endpoints(self, since: Instant) -> list[tuple[UUID, UUID]]:
        return await self._read(None, dying.dying_endpoints, since)

    async def busiest(self, limit: int) -> list[UUID]:
        return await self._read(None, figures.busiest, limit)

    async def levels(
        self, org_id: UUID | None, endpoint_ids: Sequence[UUID], names: tuple[str, ...] = FIGURES
    ) -> dict[UUID, Figures]:
        return await self._read(org_id, rollups.levels, org_id, endpoint_ids, names)
