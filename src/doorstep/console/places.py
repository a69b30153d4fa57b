"""Where the screen of a thing is. Pure."""

from __future__ import annotations

from urllib.parse import quote

_SCREENS = {
    "endpoint": "endpoints",
    "bulk": "bulk",
    "bulk operation": "bulk",
    "alert": "alerts",
    "batch": "batches",
    "event": "events",
    "delivery": "deliveries",
}
"""That of each kind of thing that has one."""


def place_of_kind(kind: str, name: str) -> str | None:
    return f"/console/{_SCREENS[kind]}/{quote(name, safe='')}" if kind in _SCREENS else None


def place_of_entity(pipeline: str, entity_id: str) -> str:
    """The id is somebody else's text: it may have slashes in it."""
    return f"/console/pipelines/{quote(pipeline, safe='')}/{quote(entity_id, safe='')}"
