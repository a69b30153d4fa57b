"""What there is to choose from, and what was chosen."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from doorstep.console.visit import Visit
from doorstep.model.endpoint import Endpoint
from doorstep.path.change import living

ENDPOINTS_MAX = 500


class Endpoints(NamedTuple):
    items: list[tuple[UUID, str]]
    """Ids and names."""
    cut: bool
    """Whether there are more of them."""


async def endpoints_of(visit: Visit) -> Endpoints:
    """The endpoints of the organization by name; of very many only the first, and the one that is chosen."""
    page = await visit.doorstep.components.reader.endpoints(visit.org_id, None, None, ENDPOINTS_MAX)
    found = {one.endpoint_id: one.name for one in page.items}
    chosen = visit.query.id("endpoint_id")
    if chosen is not None and chosen not in found:
        found[chosen] = (await visit.doorstep.components.reader.endpoint(visit.org_id, chosen)).name
    return Endpoints(sorted(found.items(), key=lambda one: one[1].casefold()), cut=page.next is not None)


async def endpoint_of(visit: Visit) -> Endpoint:
    """The one in the path, unless it was deleted."""
    return living(await visit.doorstep.components.reader.endpoint(visit.org_id, visit.id("endpoint_id")))


def place_of(endpoint: Endpoint) -> str:
    """Where its page is."""
    return f"/console/endpoints/{endpoint.endpoint_id}"
