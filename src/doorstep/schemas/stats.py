"""Statistics over a time range, the health of endpoints, their targets, and the workers."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from uuid import UUID

from doorstep.schemas.endpoints import CircuitStateName, EndpointStateName, Slo
from doorstep.schemas.shape import (
    Answer,
    CountedListing,
    Figures,
    Listing,
    ListQuery,
    Pagination,
    Query,
    Time,
    choice,
)

Range: TypeAlias = Literal["1h", "6h", "24h", "7d", "30d"]
Share: TypeAlias = float
"""A share from 0 to 1."""


class StatsQuery(Query, frozen=True, kw_only=True):
    """The parameters of the statistics."""

    range: Range | None = None
    """If given, the response has a `report` on this time range."""
    endpoint_id: UUID | None = None
    """Limits `report` to this endpoint; without a `range`, the report covers the last 24 hours."""


HealthSort: TypeAlias = Literal[
    "name", "success_rate", "response_time", "time_to_delivery", "attempts", "queue_depth", "dead_letters"
]
"""Times are sorted by their 95th percentile."""
SortOrder: TypeAlias = Literal["asc", "desc"]


class HealthQuery(ListQuery, frozen=True, kw_only=True):
    """The time range of the health figures, and how the endpoints are sorted."""

    range: Range = "24h"
    sort: HealthSort | None = None
    """By default, endpoints are listed in the order of creation."""
    order: SortOrder = "desc"
    """Endpoints without a value come last in either order."""


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
    """Times in seconds; null if nothing was measured."""

    p50: float | None
    p95: float | None
    p99: float | None
    mean: float | None


class RetriesUsed(Figures, frozen=True):
    """The number of deliveries that had used this many retries when their last attempt ended."""

    retries: int
    """The number of retries. The last entry of the list also counts deliveries with more retries."""
    deliveries: int


class TimeBucket(Figures, frozen=True):
    """The number of deliveries that took at most `seconds`, but more than the previous bucket's bound."""

    seconds: float | None
    """The upper bound; null for the last bucket, which has none."""
    deliveries: int


class Summary(Answer, frozen=True):
    """Totals of the whole range. Rates are from 0 to 1; they are null if there is no data."""

    events: EventSum | None
    deliveries: DeliverySum
    attempts: AttemptSum
    """The number of attempts by outcome."""
    success_rate: Share | None
    failed_rate: Share | None
    retry_attempts: tuple[RetriesUsed, ...]
    time_to_delivery: TimeSum
    time_to_delivery_buckets: tuple[TimeBucket, ...]
    response_time: TimeSum
    """The duration of the attempts that reached the receiver, failed ones and timeouts included."""
    blocked_addresses: int
    late_settles: int


class EventSeries(Figures, frozen=True):
    """The number of events created, delivered and failed in each step."""

    created: tuple[int, ...]
    delivered: tuple[int, ...]
    failed: tuple[int, ...]


class StatusSeries(Figures, frozen=True):
    """The number of stored events with each status at the end of each step."""

    received: tuple[int, ...]
    queued: tuple[int, ...]
    delivered: tuple[int, ...]
    failed: tuple[int, ...]


class DeliverySeries(Figures, frozen=True):
    created: tuple[int, ...]
    delivered: tuple[int, ...]
    dead: tuple[int, ...]
    """Deliveries that became dead letters, for any reason."""


class AttemptSeries(Figures, frozen=True):
    """The number of attempts by outcome in each step."""

    succeeded: tuple[int, ...]
    retry: tuple[int, ...]
    dead: tuple[int, ...]


class TimeSeries(Figures, frozen=True):
    """A time in seconds; null for steps in which nothing was measured."""

    p50: tuple[float | None, ...]
    p95: tuple[float | None, ...]
    p99: tuple[float | None, ...]


class Series(Answer, frozen=True):
    """The figures of each step, oldest step first. With `endpoint_id`, `events` and `statuses` are null, because an
    event may go to several endpoints."""

    events: EventSeries | None
    statuses: StatusSeries | None
    deliveries: DeliverySeries
    attempts: AttemptSeries
    success_rate: tuple[Share | None, ...]
    """The share of ended deliveries that were delivered; null if none ended."""
    failed_rate: tuple[Share | None, ...] | None
    """The share of ended events that failed."""
    time_to_delivery: TimeSeries
    response_time: TimeSeries
    queue_depth: tuple[int, ...]
    """Deliveries waiting or in progress at the end of each step."""
    dead_letters: tuple[int, ...]


class Report(Answer, frozen=True):
    """A time range in equal steps. The first step begins at `since`; the last step is still running."""

    range: Range
    since: Time
    until: Time
    step_seconds: int
    sum: Summary
    series: Series


# -- now ---------------------------------------------------------------------------------------------------------


class DeliveryStats(Figures, frozen=True):
    retrying: int
    """Deliveries that failed and will be retried, or are being retried."""
    dead: int
    archived: int


class EventStats(Figures, frozen=True):
    inbox: int
    """Events that wait to be acknowledged."""
    failed: int


class Stats(Answer, frozen=True):
    """Current counts. Counting stops at 10,000; the counts named in `floors` are lower bounds."""

    deliveries: DeliveryStats
    events: EventStats
    floors: tuple[str, ...]
    circuits_open: int
    """Endpoints whose circuit is open or half-open."""
    oldest_due_at: Time | None
    """The earliest due time among the deliveries that are due now. Held deliveries do not count."""
    report: Report | None = None
    """The report on the requested range. It is exact, regardless of how much is stored."""


class EndpointHealth(Answer, frozen=True):
    """How an endpoint performed in the requested range, and its current state."""

    endpoint_id: UUID
    name: str
    state: EndpointStateName
    circuit: CircuitStateName
    delivered: int
    dead: int
    attempts: AttemptSum
    success_rate: Share | None
    time_to_delivery: TimeSum
    """From acceptance to delivery, with all waiting and retries."""
    response_time: TimeSum
    """The receiver's own time: the duration of the attempts that reached it, failed ones and timeouts included."""
    queue_depth: int
    dead_letters: int
    waiting_since: Time | None
    """When the oldest waiting delivery began to wait: the time of its acceptance, or its `deliver_at`. This is exact for
    up to 500 waiting deliveries."""


class SortedPagination(Pagination, frozen=True):
    """The position in a list that can be sorted."""

    sort_complete: bool
    """False if the organization has more endpoints than are sorted. Then only the first 200 that were created are
    listed; without `sort`, all are."""


class SortedListing(Listing[EndpointHealth], frozen=True, kw_only=True):
    """One page of a list that can be sorted."""

    pagination: SortedPagination


class EndpointHealthPage(SortedListing, frozen=True):
    """One page of endpoints with their health."""

    endpoints: tuple[EndpointHealth, ...]


# -- targets -----------------------------------------------------------------------------------------------------


class Burn(Figures, frozen=True):
    """How fast the error budget is used up: at a rate of 1, it lasts exactly 30 days. Null if no delivery ended."""

    one_hour: float | None
    six_hours: float | None
    three_days: float | None


class EndpointSlo(Answer, frozen=True):
    """An endpoint compared with its target, over 30 days."""

    endpoint_id: UUID
    name: str
    target: Slo
    met: bool
    success_rate: Share | None
    p95_seconds: float | None
    oldest_seconds: float | None
    """How long the oldest waiting delivery has been waiting; null if no delivery is waiting."""
    budget_left: float | None
    """The remaining share of the error budget; negative if more deliveries failed than the target allows."""
    burn: Burn
    waiting_since: Time | None
    """When the oldest waiting delivery began to wait: the time of its acceptance, or its `deliver_at`. This is exact for
    up to 500 waiting deliveries."""


class EndpointSloPage(Listing[EndpointSlo], frozen=True):
    """One page of endpoints compared with their targets."""

    endpoints: tuple[EndpointSlo, ...]


class Worker(Answer, frozen=True):
    """A process that delivers events. The values are from its last heartbeat; it sends one every 10 seconds."""

    name: str
    """The worker's name in the attempt log and in the logs. Each time a process starts, it gets a new name."""
    state: Annotated[str, choice("alive", "lost")]
    """`lost`: no heartbeat for more than 35 seconds. The worker's deliveries are due again when their leases end."""
    host: str
    pid: int
    version: str
    started_at: Time
    seen_at: Time
    places: int
    """The maximum number of attempts that it runs concurrently."""
    places_in_use: int
    handlers: tuple[str, ...]
    """The Python handlers that it can run."""
    tasks: tuple[str, ...]
    """The tasks that this worker performed in the last 90 seconds, out of those that only one process runs at a
    time."""


class WorkerPage(CountedListing[Worker], frozen=True):
    """All workers."""

    workers: tuple[Worker, ...]
