"""Step two: create one delivery for each endpoint that receives the event."""

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
    deleted: Collection[UUID],
    directory: Directory,
    new_id: Callable[[], UUID],
) -> tuple[NewDelivery, ...]:
    """The deliveries of an event, either to the endpoints in `only` or to all endpoints whose event types match.

    Endpoints in `deleted` get a delivery too. When such a delivery is due, the claimer finds that its endpoint was
    deleted, and makes the delivery a dead letter.
    """
    if only is None:
        endpoints = directory.route(event.org_id, event.event_type)
    else:
        existing = [endpoint_id for endpoint_id in dict.fromkeys(only) if endpoint_id not in deleted]
        endpoints = tuple(_named(endpoint_id, event.org_id, directory) for endpoint_id in existing)
    # Never due before its acceptance: otherwise an event with a `deliver_at` in the past would jump the queue.
    due_at = owed_since(event.created_at, event.deliver_at)
    # If several batch endpoints match, the delivery to the first one determines the status of the batch.
    batch_endpoint = next((endpoint for endpoint in endpoints if endpoint.batch), None)
    deliveries = [
        NewDelivery(
            new_id(),
            endpoint.endpoint_id,
            due_at,
            len(directory.policy(endpoint, event.event_type).delays),
            endpoint is batch_endpoint,
        )
        for endpoint in endpoints
    ]
    return (*deliveries, *(NewDelivery(new_id(), endpoint_id, due_at, 0) for endpoint_id in deleted))


def _named(endpoint_id: UUID, org_id: UUID, directory: Directory) -> Endpoint:
    endpoint = directory.endpoint(endpoint_id)
    if endpoint is None or endpoint.org_id != org_id:
        raise InvalidInput("endpoint_ids", f"there is no endpoint {endpoint_id}")
    return endpoint
