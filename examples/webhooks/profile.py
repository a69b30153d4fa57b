"""All that makes Doorstep a webhook sender: one endpoint for each subscription."""

from __future__ import annotations

from doorstep.schemas.endpoints import NewEndpointFields


def subscription(name: str, url: str, *event_types: str) -> NewEndpointFields:
    """A customer's URL, and the events that it is called for: exact types, or `order.*` for any rest.

    What may pass is tried four times in all; what cannot get better (404, 422) only once. A receiver that fails five
    times in a row is left alone for five minutes, and asked with a single request whether it is back. These are the
    defaults; they are written out here because they are what this profile is about.
    """
    return {
        "name": name,
        "url": url,
        "event_types": event_types,
        "policy": "standard",
        "circuit": {"failures_max": 5, "open_seconds": 300},
    }
