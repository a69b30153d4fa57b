"""The configuration of a webhook sender: one endpoint for each subscription."""

from __future__ import annotations

from doorstep.schemas.endpoints import NewEndpointFields


def subscription(name: str, url: str, *event_types: str) -> NewEndpointFields:
    """A customer's URL and its event types: exact ones, or a prefix such as `order.*`.

    A delivery that fails transiently gets four attempts in total, one that fails permanently (404, 422) only one. If a
    receiver fails five times in a row, Doorstep sends nothing for five minutes, and then a single probe. These are the
    defaults; they are written out here because this profile demonstrates them.
    """
    return {
        "name": name,
        "url": url,
        "event_types": event_types,
        "policy": "standard",
        "circuit": {"failures_max": 5, "open_seconds": 300},
    }
