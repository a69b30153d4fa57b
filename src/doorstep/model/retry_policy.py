"""A retry policy as a value: a list of delays, a jitter, an optional overall deadline."""

from __future__ import annotations

from doorstep.model.noun import Noun


class RetryPolicy(Noun, frozen=True):
    """`delays[n]` is the pause in seconds before retry n + 1: three delays mean up to four attempts."""

    delays: tuple[float, ...]
    jitter: float = 0.1
    """Each delay is varied by up to this share, so that a recovered receiver is not stampeded."""
    deadline_seconds: float | None = None
    """No retry starts later than this after the event was owed: accepted, or due by its `deliver_at`."""
    name: str = ""
