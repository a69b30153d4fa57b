"""Step two: one delivery for each endpoint that takes the event."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from doorstep.errors import InvalidInput
from doorstep.model.delivery import NewDelivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event
from doorstep.path.directory import Directory


def fan_out(
    event: Event, only: Collection[UUID] | None, directory: Directory, new_id: Callable[[], UUID]
) -> tuple[NewDelivery, ...]:
    """The deliveries an event owes: to the endpoints named in `only`, or to those whose event types match."""
    if only is None:
        endpoints = directory.routes.route(event.org_id, event.event_type)
    else:
        endpoints = tuple(_named(endpoint_id, event.org_id, directory) for endpoint_id in dict.fromkeys(only))
    due_at = event.created_at if event.deliver_at is None else event.deliver_at
    return tuple(
        NewDelivery(new_id(), endpoint.endpoint_id, due_at, len(directory.policy(endpoint, event.event_type).delays))
        for endpoint in endpoints
    )


def _named(endpoint_id: UUID, org_id: UUID, directory: Directory) -> Endpoint:
    endpoint = directory.endpoint(endpoint_id)
    if endpoint is None or endpoint.org_id != org_id:
        raise InvalidInput("endpoint_ids", f"there is no endpoint {endpoint_id}")
    return endpoint
