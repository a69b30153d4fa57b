"""The shapes of targets, and of how endpoints stand against them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from doorstep.api.schemas import Pagination, Shape, Timestamp, iso
from doorstep.model.slo import OLDEST_SECONDS_MAX, P95_SECONDS_MAX, Slo
from doorstep.path.reporting import Standing

Success = Annotated[float, Field(ge=0.5, le=0.99999)]
P95Seconds = Annotated[float, Field(ge=0.001, le=P95_SECONDS_MAX)]
OldestSeconds = Annotated[float, Field(ge=1, le=OLDEST_SECONDS_MAX)]


class SloShape(Shape):
    """What share of the deliveries is to arrive, how soon 95 % of those are to have done so, and how long the oldest of what
    still waits may have waited."""

    success: Success = Slo().success
    p95_seconds: P95Seconds = Slo().p95_seconds
    oldest_seconds: OldestSeconds = Slo().oldest_seconds

    @classmethod
    def of(cls, slo: Slo) -> SloShape:
        return cls(
            success=float(slo.success),
            p95_seconds=float(slo.p95_seconds),
            oldest_seconds=float(slo.oldest_seconds),
        )

    def slo(self) -> Slo:
        return Slo(success=self.success, p95_seconds=self.p95_seconds, oldest_seconds=self.oldest_seconds)


class BurnOut(Shape):
    """How many times quicker than allowed deliveries were lost lately: at 1 the budget lasts exactly 30 days. Null where
    none came to its end."""

    one_hour: float | None
    six_hours: float | None
    three_days: float | None


class SloOut(Shape):
    """An endpoint against its target, over 30 days."""

    endpoint_id: UUID
    name: str
    target: SloShape
    met: bool
    success_rate: float | None
    p95_seconds: float | None
    oldest_seconds: float | None
    """How long the oldest of what waits has done so; null if nothing does."""
    budget_left: float | None
    """The share of the error budget that is left; below zero once more was lost than the target allows."""
    burn: BurnOut
    waiting_since: Timestamp | None
    """Since when the oldest of what waits has done so: since its acceptance, or its `deliver_at`. Exact where no more than
    500 wait."""

    @classmethod
    def of(cls, standing: Standing) -> SloOut:
        report = standing.report
        return cls(
            endpoint_id=standing.endpoint.endpoint_id,
            name=standing.endpoint.name,
            target=SloShape.of(report.target),
            met=report.met,
            success_rate=report.success_rate,
            p95_seconds=report.p95_seconds,
            oldest_seconds=report.oldest_seconds,
            budget_left=report.budget_left,
            burn=BurnOut(one_hour=report.burn["1h"], six_hours=report.burn["6h"], three_days=report.burn["3d"]),
            waiting_since=iso(standing.waiting_since),
        )


class SlosOut(Shape):
    endpoints: list[SloOut]
    pagination: Pagination
