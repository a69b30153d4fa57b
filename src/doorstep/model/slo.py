"""A service level objective: what share of its deliveries an endpoint is to get, and how soon."""

from __future__ import annotations

from doorstep.model.noun import Noun


class Slo(Noun, frozen=True, kw_only=True):
    """The target of an endpoint: its own, else its organization's, else this one."""

    success: float = 0.99
    """The share of deliveries that are to arrive, rather than to end as dead letters."""
    p95_seconds: float = 60.0
    """How soon after their acceptance 95 % of those that arrive are to have done so."""
