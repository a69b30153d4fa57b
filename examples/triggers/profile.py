"""All that makes Doorstep a trigger system: one endpoint for those who want to be called."""

from __future__ import annotations

from doorstep.schemas.endpoints import NewEndpointFields


def automation(url: str) -> NewEndpointFields:
    """Someone's automation, called for every lead.

    Whatever goes wrong is retried, after 1, 5 and 15 minutes: a 404 may only mean that the automation is being edited.
    Events that no endpoint takes wait in the inbox, and need no configuration at all.
    """
    return {
        "name": "automation",
        "url": url,
        "event_types": ["lead.*"],
        "policy": "standard",
        "retry_on": ["*"],
    }
