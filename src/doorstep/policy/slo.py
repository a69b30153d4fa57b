"""How an endpoint stands against its target: what it has used of its error budget, and how quickly it uses it up.

The budget is the share of deliveries that may be lost. A burn of 1 uses it up exactly at the end of the window; of 14,
thirty days' worth in two.
"""

from __future__ import annotations

from typing import NamedTuple

from doorstep.clock import DAY, Instant
from doorstep.model.endpoint import Endpoint
from doorstep.model.org import Org
from doorstep.model.rollup import HOUR, TTD, Figures
from doorstep.model.slo import Slo
from doorstep.policy.reporting import share, success_rate, time_to_delivery

BUDGET_WINDOW: Instant = 30 * DAY
BURN_WINDOWS: dict[str, Instant] = {"1h": HOUR, "6h": 6 * HOUR, "3d": 3 * DAY}
"""Quick, slow and creeping: what is worth waking someone, what a look, and what a plan."""
BURN_FIGURES = ("succeeded", "dead")
BUDGET_FIGURES = (*BURN_FIGURES, *TTD)
"""What is looked at of each; the others need not be read."""
_BUILT_IN = Slo()


class SloReport(NamedTuple):
    """One endpoint against its target. None: nothing has come to its end in that time, so there is nothing to judge."""

    target: Slo
    success_rate: float | None
    p95_seconds: float | None
    slow: bool
    """More than 5 % of what arrived took longer than the target."""
    oldest_seconds: float | None
    """How long the oldest of what waits has done so."""
    budget_left: float | None
    """The share of the error budget that is left; below zero once more was lost than the target allows."""
    burn: dict[str, float | None]

    @property
    def met(self) -> bool:
        """All three targets are; with nothing to judge they are."""
        stuck = self.oldest_seconds is not None and self.oldest_seconds > self.target.oldest_seconds
        return not self.slow and not stuck and (self.success_rate is None or self.success_rate >= self.target.success)


def slo_of(endpoint: Endpoint, org: Org | None) -> Slo:
    """The most specific that was said."""
    return endpoint.slo or (org.slo if org is not None else None) or _BUILT_IN


def against(target: Slo, window: Figures, recent: dict[str, Figures], oldest_seconds: float | None = None) -> SloReport:
    """What the figures of the whole window and of each burn window come to, and what still waits."""
    used, p95 = burn(target, window), time_to_delivery(window, 0.95)
    return SloReport(
        target=target,
        success_rate=success_rate(window),
        p95_seconds=p95,
        slow=p95 is not None and (p95 > target.p95_seconds or _is_beyond_measure(window)),
        oldest_seconds=oldest_seconds,
        budget_left=None if used is None else 1.0 - used,
        burn={name: burn(target, figures) for name, figures in recent.items()},
    )


def _is_beyond_measure(figures: Figures) -> bool:
    """Of the times beyond the last bound only that is known, which a target may be just as well."""
    *measured, beyond = figures.ttd
    return beyond > 0.05 * (sum(measured) + beyond)


def burn(target: Slo, figures: Figures) -> float | None:
    """How many times quicker than allowed deliveries were lost."""
    lost = share(figures.dead, figures.succeeded + figures.dead)
    return None if lost is None else lost / (1.0 - target.success)
