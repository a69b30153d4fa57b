"""What alerts need to know of an organization's endpoints: their names, who still lives, and who asked to be told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from uuid import UUID

from doorstep.errors import InvalidInput, NotFound
from doorstep.model.endpoint import EndpointState
from doorstep.path.directory import Directory
from doorstep.policy.routing import subscribes
from doorstep.stores.store import Store


class Roster:
    """The endpoints of one organization. Deleted ones have their names only where those were looked up."""

    def __init__(self, org_id: UUID, directory: Directory) -> None:
        self._org_id = org_id
        self._directory = directory
        self._departed: dict[UUID, str] = {}

    async def look_up(self, store: Store, endpoint_ids: Iterable[UUID | None]) -> None:
        """The names of those among them that were deleted."""
        for endpoint_id in {one for one in endpoint_ids if one is not None and not self.is_living(one)}:
            with suppress(NotFound):
                self._departed[endpoint_id] = (await store.endpoint(self._org_id, endpoint_id)).name

    def is_living(self, endpoint_id: UUID) -> bool:
        return self._directory.endpoint(endpoint_id) is not None

    def name(self, endpoint_id: UUID | None) -> str:
        if endpoint_id is None:
            return ""
        endpoint = self._directory.endpoint(endpoint_id)
        return endpoint.name if endpoint else self._departed.get(endpoint_id, "")

    def subscribers(self, event_type: str, about: UUID | None) -> tuple[UUID, ...]:
        """Who asked for operational events of this type. An endpoint is not told of its own troubles: that would only be
        one more that cannot be delivered."""
        routed = self._directory.routes.route(self._org_id, event_type)
        return tuple(one.endpoint_id for one in routed if one.endpoint_id != about and subscribes(one, event_type))


async def check_living(store: Store, org_id: UUID, endpoint_ids: Sequence[UUID], field: str) -> None:
    """Refuse to arrange anything about endpoints that are not there, or not any more; `field` is what named them."""
    states = {one.endpoint_id: one.state for one in await store.these_endpoints(org_id, endpoint_ids)}
    for endpoint_id in endpoint_ids:
        if endpoint_id not in states:
            raise InvalidInput(field, f"there is no endpoint {endpoint_id}")
        if states[endpoint_id] is EndpointState.DELETED:
            raise InvalidInput(field, f"endpoint {endpoint_id} was deleted")
