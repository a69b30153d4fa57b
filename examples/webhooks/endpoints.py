"""A webhook: a customer's URL and its event types."""

from __future__ import annotations

from doorstep.schemas.endpoints import NewEndpointFields


def subscription(name: str, url: str, *event_types: str) -> NewEndpointFields:
    """Event types are exact, or a prefix such as `order.*`. The program's defaults apply to retries and the circuit."""
    return {"name": name, "url": url, "event_types": event_types}
