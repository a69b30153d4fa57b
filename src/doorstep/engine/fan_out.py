"""Step two: one delivery for each endpoint that takes the event."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from doorstep.engine.directory import Directory
from doorstep.errors import InvalidInput
from doorstep.model.delivery import NewDelivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event, owed_since


def fan_out(
    event: Event,
    only: Collection[UUID] | None,
    departed: Collection[UUID],
    directory: Directory,
    new_id: Callable[[], UUID],
) -> tuple[NewDelivery, ...]:
    """The deliveries an event owes: to the endpoints named in `only`, or to those whose event types match.

    Those of `only` that have `departed` are owed one too: it will be found waiting for a deleted endpoint, and buried.
    """
    if only is None:
        endpoints = directory.routes.route(event.org_id, event.event_type)
    else:
        living = [endpoint_id for endpoint_id in dict.fromkeys(only) if endpoint_id not in departed]
        endpoints = tuple(_named(endpoint_id, event.org_id, directory) for endpoint_id in living)
    due_at = owed_since(event.created_at, event.deliver_at)  # a time long past would pass by all who wait
    batch_endpoint = next((endpoint for endpoint in endpoints if endpoint.batch), None)  # one status: that of the first
    owed = [
        NewDelivery(
            new_id(),
            endpoint.endpoint_id,
            due_at,
            len(directory.policy(endpoint, event.event_type).delays),
            endpoint is batch_endpoint,
        )
        for endpoint in endpoints
    ]
    return (*owed, *(NewDelivery(new_id(), endpoint_id, due_at, 0) for endpoint_id in departed))


def _named(endpoint_id: UUID, org_id: UUID, directory: Directory) -> Endpoint:
    endpoint = directory.endpoint(endpoint_id)
    if endpoint is None or endpoint.org_id != org_id:
        raise InvalidInput("endpoint_ids", f"there is no endpoint {endpoint_id}")
    return endpoint
