"""What happened over a range of time, how endpoints fare, and how they stand against their targets."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from doorstep.client.answers.answer import Answered


class Summary(Answered, frozen=True, kw_only=True):
    """A whole range. Rates are from 0 to 1, times in seconds; None where there is nothing to tell."""

    events: dict[str, int] | None
    """`created`, `delivered`, `failed`; None for a single endpoint."""
    deliveries: dict[str, int]
    attempts: dict[str, int]
    """By what they came to: `succeeded`, `retry`, `dead`."""
    success_rate: float | None
    failed_rate: float | None
    retry_attempts: tuple[dict[str, int], ...]
    """How many `deliveries` had used so many `retries` when a try ended them."""
    time_to_delivery: dict[str, float | None]
    """`p50`, `p95`, `p99` and `mean`."""
    time_to_delivery_buckets: tuple[dict[str, float | None], ...]
    blocked_addresses: int
    late_settles: int


class Series(Answered, frozen=True, kw_only=True):
    """One number for each step, the oldest first."""

    events: dict[str, tuple[int, ...]] | None
    statuses: dict[str, tuple[int, ...]] | None
    """How many stored events had each status at the end of each step."""
    deliveries: dict[str, tuple[int, ...]]
    attempts: dict[str, tuple[int, ...]]
    success_rate: tuple[float | None, ...]
    failed_rate: tuple[float | None, ...] | None
    time_to_delivery: dict[str, tuple[float | None, ...]]
    queue_depth: tuple[int, ...]
    dead_letters: tuple[int, ...]


class Report(Answered, frozen=True, kw_only=True):
    """A range of time on a regular axis: the first step begins at `since`, the last one is still going on."""

    range: str
    since: datetime
    until: datetime
    step_seconds: int
    sum: Summary
    series: Series


class Stats(Answered, frozen=True, kw_only=True):
    """How much stands where, now."""

    deliveries: dict[str, int]
    events: dict[str, int]
    floors: tuple[str, ...]
    """The numbers that are counted only so far: there are at least so many."""
    oldest_due_at: datetime | None
    report: Report | None = None
    """What happened in the range that was asked for."""


class EndpointHealth(Answered, frozen=True, kw_only=True):
    """How an endpoint fared in a range, and how it stands now."""

    endpoint_id: UUID
    name: str
    state: str
    circuit: str
    delivered: int
    dead: int
    attempts: dict[str, int]
    success_rate: float | None
    time_to_delivery: dict[str, float | None]
    queue_depth: int
    dead_letters: int
    waiting_since: datetime | None


class Slo(Answered, frozen=True, kw_only=True):
    """A target: the share of deliveries that is to arrive, how soon 95 % of those, and the age that none may exceed."""

    success: float = 0.99
    p95_seconds: float = 60.0
    oldest_seconds: float = 3_600.0


class EndpointSlo(Answered, frozen=True, kw_only=True):
    """An endpoint against its target, over 30 days."""

    endpoint_id: UUID
    name: str
    target: Slo
    met: bool
    success_rate: float | None
    p95_seconds: float | None
    oldest_seconds: float | None = None
    """How long the oldest of what waits has done so."""
    budget_left: float | None
    """Of the error budget, from 1 down; below 0 it is overdrawn."""
    burn: dict[str, float | None]
    """`one_hour`, `six_hours` and `three_days`: how many times quicker than allowed the budget was used."""
    waiting_since: datetime | None
