"""Figures: how much of everything happened, and how much there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.rollup import FIGURES, Figures, Point, Span


class FigureStore(Protocol):
    """Every verb that changes something counts it in its own transaction, under the minute of its `now`, as a tick; see
    model/rollup.py. `fold` moves ticks into roll-ups now and then. Readers add the two together in one picture, so
    that they are exact at any moment, however late somebody folds.
    """

    fold_max: ClassVar[int]
    """How many a fold moves or drops at once without holding anybody up."""

    async def fold(
        self, now: Instant, limit: int | None = None, *, minutes_before: Instant = 0, hours_before: Instant = 0
    ) -> int:
        """Move up to `limit` ticks of minutes that have ended into roll-ups, and drop up to `limit` of the minutes and of
        the hours that began before these; without a limit `fold_max`. Returns how many those were of which it was most: if
        as many as the limit, there are more. Of ticks a store may have several for the same minute and endpoint. Several
        may do it at once."""

    async def totals(self, org_id: UUID | None = None) -> Figures:
        """The figures since ever, of an organization, or of all together but for the reserved one: its messages are in
        nobody's lists."""

    async def series(
        self, org_id: UUID | None, endpoint_id: UUID | None, span: Span, since: Instant, until: Instant
    ) -> list[Point]:
        """The figures minute by minute, or hour by hour, that begin at `since` or later and before `until`, oldest first:
        those of an endpoint, of an organization (`endpoint_id` None), or of the whole store (both None). Where nothing
        happened, or what did is no longer kept, there is no point."""

    async def figures(
        self,
        org_id: UUID,
        endpoint_ids: Sequence[UUID],
        since: Instant,
        until: Instant,
        names: tuple[str, ...] = FIGURES,
    ) -> dict[UUID, Figures]:
        """Sums over a range for each of these endpoints, unknown ones too. It is widened to whole minutes, and where it
        is longer than FINE_RANGE to whole hours. Only what is named is added up, which costs less; the rest is 0."""

    async def shares(
        self, org_id: UUID, endpoint_ids: Sequence[UUID], since: Instant, until: Instant
    ) -> tuple[Figures, dict[UUID, Figures]]:
        """Sums over a range for the organization, and for each of these endpoints as `figures` has them: all of one
        picture, so that the parts can be subtracted from the whole."""

    async def trends(
        self, org_id: UUID, endpoint_ids: Sequence[UUID], span: Span, since: Instant, until: Instant
    ) -> dict[UUID, list[Point]]:
        """The series of each of these endpoints, unknown ones too, in one go, with the figures of TREND alone."""

    async def dying_endpoints(self, since: Instant) -> list[tuple[UUID, UUID]]:
        """The endpoints, deleted ones too, each with its organization before it, that a try failed for good at in one of
        the hours that begin at `since` or later; in any order, each once."""

    async def busiest(self, limit: int) -> list[UUID]:
        """The endpoints of all organizations that had the most deliveries since ever, the busiest first, at a cost that
        does not grow with how many there are. Deleted ones are left out, and those of the reserved organization.
        Whoever has had less than others until a minute ago may be missing though it has more now."""

    async def levels(
        self, org_id: UUID | None, endpoint_ids: Sequence[UUID], names: tuple[str, ...] = FIGURES
    ) -> dict[UUID, Figures]:
        """The figures since ever of each of these endpoints, unknown ones too: the levels are what there is now. They are
        those of an organization, or of any. Of all figures, or of those that are named; the rest is 0."""
