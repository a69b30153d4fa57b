"""Figures: sums of the counters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import ClassVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.delivery import OPEN_STATES
from doorstep.model.event import owed_since
from doorstep.model.rollup import FIGURES, Figures, Point, Span, only
from doorstep.stores.store import EndpointKey
from doorstep.stores.tally import EVERY, rollup_parts
from tests.reference.documents import DocumentVerbs


class FigureVerbs(DocumentVerbs):
    aggregate_max: ClassVar[int] = 100

    async def aggregate(
        self, now: Instant, limit: int | None = None, *, minutes_before: Instant = 0, hours_before: Instant = 0
    ) -> int:
        counters, most = self._tables.counters, self.aggregate_max if limit is None else limit
        return max(
            counters.aggregate(Span.MINUTE.start(now), most),
            counters.drop(Span.MINUTE, minutes_before, most),
            counters.drop(Span.HOUR, hours_before, most),
            counters.drop(Span.DAY, hours_before, most),
        )

    async def figures(
        self,
        org_id: UUID | None,
        endpoint_ids: Sequence[EndpointKey],
        since: Instant | None = None,
        until: Instant | None = None,
        names: tuple[str, ...] = FIGURES,
    ) -> dict[EndpointKey, Figures]:
        return {one: only(names, self._sum(org_id, one, since, until)) for one in endpoint_ids}

    async def series(
        self,
        org_id: UUID | None,
        endpoint_ids: Sequence[EndpointKey],
        span: Span,
        since: Instant,
        until: Instant,
        names: tuple[str, ...] = FIGURES,
    ) -> dict[EndpointKey, list[Point]]:
        return {
            one: [
                Point.of(at, only(names, figures))
                for at, figures in self._spans(org_id, one, span).items()
                if since <= at < until
            ]
            for one in endpoint_ids
        }

    def _sum(
        self, org_id: UUID | None, endpoint_id: UUID | None, since: Instant | None, until: Instant | None
    ) -> Figures:
        if since is None or until is None:
            return self._spans(org_id, endpoint_id, Span.EVER).get(0, Figures())
        parts = [
            figures
            for span, start, end in rollup_parts(since, until)
            for at, figures in self._spans(org_id, endpoint_id, span).items()
            if start <= at < end
        ]
        return reduce(add, parts, Figures())

    def _spans(self, org_id: UUID | None, endpoint_id: UUID | None, span: Span) -> dict[Instant, Figures]:
        """Figures by start of the span: of an endpoint, an organization, or all organizations but the reserved one."""
        of = self._tables.counters.of
        if endpoint_id is not None:
            endpoint = self._tables.endpoints.get(endpoint_id)
            owner = org_id or (endpoint.org_id if endpoint else endpoint_id)  # an unknown endpoint has no figures
            return of(owner, endpoint_id, span)
        if org_id is not None:
            return of(org_id, EVERY, span)
        reserved = of(OPERATIONS_ORG, EVERY, span)
        everything = of(EVERY, EVERY, span).items()
        others = {at: figures - reserved.get(at, Figures()) for at, figures in everything}
        return {at: figures for at, figures in others.items() if at not in reserved or figures != Figures()}

    async def waiting_since(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        """Examines every delivery, which only a store of this size can afford."""
        own = {one for one in endpoint_ids if self.owns_endpoint(org_id, one)}
        found: dict[UUID, Instant] = {}
        for row in self._tables.deliveries.values():
            delivery, event = row.delivery, row.event.event
            if delivery.endpoint_id in own and delivery.state in OPEN_STATES:
                owed_at = owed_since(event.created_at, event.deliver_at)
                found[delivery.endpoint_id] = min(found.get(delivery.endpoint_id, owed_at), owed_at)
        return found
