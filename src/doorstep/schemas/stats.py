"""What happened over a range of time, how endpoints do, and how they stand against their targets."""

from __future__ import annotations

from typing import Literal, TypeAlias
from uuid import UUID

from doorstep.schemas.endpoints import CircuitStateName, EndpointStateName, Slo
from doorstep.schemas.shape import Answer, Figures, Listing, ListQuery, Pagination, Query, Time

Range: TypeAlias = Literal["1h", "6h", "24h", "7d", "30d"]
Share: TypeAlias = float
"""From 0 to 1."""


class StatsQuery(Query, frozen=True, kw_only=True):
    """What to tell."""

    range: Range | None = None
    """With it, `report` tells what happened in that time."""
    endpoint_id: UUID | None = None
    """Only what concerns this endpoint, in `report`; of the last 24 hours, if there is no `range`."""


class HealthQuery(ListQuery, frozen=True, kw_only=True):
    """Over which time."""

    range: Range = "24h"


# -- a range of time ---------------------------------------------------------------------------------------------


class EventSum(Figures, frozen=True):
    created: int
    delivered: int
    failed: int


class DeliverySum(Figures, frozen=True):
    created: int
    delivered: int
    dead: int


class AttemptSum(Figures, frozen=True):
    succeeded: int
    retry: int
    dead: int


class TimeSum(Figures, frozen=True):
    """In seconds; null if nothing was delivered."""

    p50: float | None
    p95: float | None
    p99: float | None
    mean: float | None


class RetriesUsed(Figures, frozen=True):
    """How many deliveries had used this number of retries when an attempt ended them."""

    retries: int
    """The last of the list stands for this many and more."""
    deliveries: int


class TimeBucket(Figures, frozen=True):
    """How many deliveries took at most this long, and longer than the bucket before allows."""

    seconds: float | None
    """Null is the last one, without a bound."""
    deliveries: int


class Summary(Answer, frozen=True):
    """The whole range. Rates are from 0 to 1; null where there is nothing to tell."""

    events: EventSum | None
    deliveries: DeliverySum
    attempts: AttemptSum
    """By what they came to."""
    success_rate: Share | None
    failed_rate: Share | None
    retry_attempts: tuple[RetriesUsed, ...]
    time_to_delivery: TimeSum
    time_to_delivery_buckets: tuple[TimeBucket, ...]
    blocked_addresses: int
    late_settles: int


class EventSeries(Figures, frozen=True):
    """Events by what became of them in each step."""

    created: tuple[int, ...]
    delivered: tuple[int, ...]
    failed: tuple[int, ...]


class StatusSeries(Figures, frozen=True):
    """How many stored events had each status at the end of each step."""

    received: tuple[int, ...]
    queued: tuple[int, ...]
    delivered: tuple[int, ...]
    failed: tuple[int, ...]


class DeliverySeries(Figures, frozen=True):
    created: tuple[int, ...]
    delivered: tuple[int, ...]
    dead: tuple[int, ...]
    """Those that became dead letters, in any way."""


class AttemptSeries(Figures, frozen=True):
    """Attempts by what they came to."""

    succeeded: tuple[int, ...]
    retry: tuple[int, ...]
    dead: tuple[int, ...]


class TimeSeries(Figures, frozen=True):
    """In seconds; null where nothing was delivered."""

    p50: tuple[float | None, ...]
    p95: tuple[float | None, ...]
    p99: tuple[float | None, ...]


class Series(Answer, frozen=True):
    """One number for each step, the oldest first. With `endpoint_id`, `events` and `statuses` are null: an event may be
    for several endpoints."""

    events: EventSeries | None
    statuses: StatusSeries | None
    deliveries: DeliverySeries
    attempts: AttemptSeries
    success_rate: tuple[Share | None, ...]
    """Of the deliveries that came to their end, those that were delivered; null where none did."""
    failed_rate: tuple[Share | None, ...] | None
    """Of the events that came to their end, those that failed."""
    time_to_delivery: TimeSeries
    queue_depth: tuple[int, ...]
    """Deliveries that were waiting or in progress at the end of each step."""
    dead_letters: tuple[int, ...]


class Report(Answer, frozen=True):
    """A range of time, on a regular axis: the first step begins at `since`, the last one is still going on."""

    range: Range
    since: Time
    until: Time
    step_seconds: int
    sum: Summary
    series: Series


# -- now ---------------------------------------------------------------------------------------------------------


class DeliveryStats(Figures, frozen=True):
    retrying: int
    """Those that failed and will be tried again, or are being tried."""
    dead: int
    archived: int


class EventStats(Figures, frozen=True):
    inbox: int
    """Those that wait to be acknowledged."""
    failed: int


class Stats(Answer, frozen=True):
    """How much there is now. Counting stops at 10,000: what is named in `floors` is at least so much."""

    deliveries: DeliveryStats
    events: EventStats
    floors: tuple[str, ...]
    oldest_due_at: Time | None
    """Since when the first of the due deliveries has been due, but for those that are held."""
    report: Report | None = None
    """What happened in the range that was asked for; exact, however much is stored."""


class EndpointHealth(Answer, frozen=True):
    """How an endpoint did in the range that was asked for, and how it stands now."""

    endpoint_id: UUID
    name: str
    state: EndpointStateName
    circuit: CircuitStateName
    delivered: int
    dead: int
    attempts: AttemptSum
    success_rate: Share | None
    time_to_delivery: TimeSum
    queue_depth: int
    dead_letters: int
    waiting_since: Time | None
    """Since when the oldest of what waits has done so: since its acceptance, or its `deliver_at`. Exact where no more than
    500 wait."""


class EndpointHealthPage(Listing[EndpointHealth], frozen=True):
    """One page of the endpoints with how they did."""

    endpoints: tuple[EndpointHealth, ...]
    pagination: Pagination


# -- targets -----------------------------------------------------------------------------------------------------


class Burn(Figures, frozen=True):
    """How many times quicker than allowed deliveries were lost lately: at 1 the budget lasts exactly 30 days. Null where
    none came to its end."""

    one_hour: float | None
    six_hours: float | None
    three_days: float | None


class EndpointSlo(Answer, frozen=True):
    """An endpoint against its target, over 30 days."""

    endpoint_id: UUID
    name: str
    target: Slo
    met: bool
    success_rate: Share | None
    p95_seconds: float | None
    oldest_seconds: float | None
    """How long the oldest of what waits has done so; null if nothing does."""
    budget_left: float | None
    """The share of the error budget that is left; below zero once more was lost than the target allows."""
    burn: Burn
    waiting_since: Time | None
    """Since when the oldest of what waits has done so: since its acceptance, or its `deliver_at`. Exact where no more than
    500 wait."""


class EndpointSloPage(Listing[EndpointSlo], frozen=True):
    """One page of the endpoints against their targets."""

    endpoints: tuple[EndpointSlo, ...]
    pagination: Pagination
