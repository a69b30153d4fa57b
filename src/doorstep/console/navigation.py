"""The menu: which screens there are, in which order, and the keys that lead there after `g`."""

from __future__ import annotations

from typing import NamedTuple


class Screen(NamedTuple):
    title: str
    path: str
    key: str
    default_org: bool = False
    """Only for keys of the default organization, which looks after the whole installation."""


MENU: tuple[tuple[Screen, ...], ...] = (
    (
        Screen("Overview", "/console", "o"),
        Screen("Events", "/console/events", "v"),
        Screen("Retry queue", "/console/retry-queue", "r"),
        Screen("Dead letters", "/console/dead-letters", "d"),
    ),
    (
        Screen("Endpoints", "/console/endpoints", "e"),
        Screen("Batches", "/console/batches", "t"),
        Screen("Pipelines", "/console/pipelines", "p"),
    ),
    (
        Screen("Bulk operations", "/console/bulk", "b"),
        Screen("Alerts", "/console/alerts", "a"),
        Screen("Audit log", "/console/audit", "l"),
        Screen("Workers", "/console/workers", "w", default_org=True),
        Screen("Settings", "/console/settings", "s"),
    ),
)
"""Groups of screens: what moves, where it goes, who looks after it."""
