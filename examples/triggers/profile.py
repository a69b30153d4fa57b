"""The configuration of a trigger system: one endpoint for each receiver."""

from __future__ import annotations

from doorstep.schemas.endpoints import NewEndpointFields


def automation(url: str) -> NewEndpointFields:
    """An automation that is called for every lead.

    Every failure is retried after 1, 5 and 15 minutes: a 404 may only mean that the automation is being edited. Events
    that no endpoint takes wait in the inbox, which needs no configuration.
    """
    return {
        "name": "automation",
        "url": url,
        "event_types": ["lead.*"],
        "policy": "standard",
        "retry_on": ["*"],
    }
