"""How a worker's places are shared, so that a dead, slow or flooding endpoint cannot take them all.

Every organization with work gets an equal share of the places, and one share more is always kept free for
whoever comes next; an organization's endpoints divide its share. The free share is what keeps a newcomer from
waiting behind a hundred thousand deliveries of someone else, or behind connections that hang until they time out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.noun import Noun


class Demand(Noun, frozen=True):
    """One endpoint that could be given places."""

    endpoint_id: UUID
    org_id: UUID
    due_at: Instant
    """When its first waiting delivery is (or was) due."""
    busy: int
    """Places it has now."""
    busy_max: int
    """Its own limit on this worker, from its settings and its circuit."""


def shares(demands: Sequence[Demand], places: int, free: int) -> dict[UUID, int]:
    """How many more places each endpoint gets now, the longest waiting first; those who get none are left out."""
    endpoints_of = Counter(demand.org_id for demand in demands)
    org_share = places / (len(endpoints_of) + 1)
    granted: dict[UUID, int] = {}
    for demand in sorted(demands, key=lambda demand: demand.due_at):
        share = max(1, int(org_share / endpoints_of[demand.org_id]))
        more = min(share, demand.busy_max) - demand.busy
        if more > 0 and free > 0:
            granted[demand.endpoint_id] = min(more, free)
            free -= granted[demand.endpoint_id]
    return granted
