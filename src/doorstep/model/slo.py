"""A service level objective: what share of its deliveries an endpoint is to get, how soon, and after what time at most."""

from __future__ import annotations

from doorstep.model.noun import Noun


class Slo(Noun, frozen=True, kw_only=True):
    """The target of an endpoint: its own, else its organization's, else this one."""

    success: float = 0.99
    """The share of deliveries that are to arrive, rather than to end as dead letters."""
    p95_seconds: float = 60.0
    """How soon 95 % of those that arrive are to have done so, from when they were owed."""
    oldest_seconds: float = 3_600.0
    """How long the oldest of what has not arrived yet may have been owed."""
