"""An endpoint of the triggers API."""

from __future__ import annotations

from doorstep.schemas.endpoints import NewEndpointFields


def automation(url: str) -> NewEndpointFields:
    """An automation that is called for every lead. Events that no endpoint takes wait in the inbox.

    The program's defaults apply: every failure is retried after 1, 5 and 15 minutes. Even a 404 may only mean that the
    automation is being edited.
    """
    return {"name": "automation", "url": url, "event_types": ["lead.*"]}
