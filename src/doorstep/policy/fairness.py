"""How a worker's places are shared, so that no flood and nobody's hanging receivers can take them all.

One rule: an organization may hold as many places as stay free. One that is alone gets half of them, two get a third
each, n get an equal share of n + 1; what stays free is the share of whoever comes next, who need not wait for
anybody's try to end. The last eighth goes to organizations that hold nothing yet, one place each, because free
places halve with every newcomer while the tries of the others hang. Endpoints share within their organization in
the same way: the last quarter of what it may hold goes to those that hold nothing yet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.record import Record

_Queue = list[tuple[int, Instant, UUID, int]]
"""The endpoints of an organization that want places: held, waiting since, id, limit. A heap: the poorest is first."""


class Demand(Record, frozen=True):
    """One endpoint that could be given places."""

    endpoint_id: UUID
    org_id: UUID
    due_at: Instant
    """When its first waiting delivery is (or was) due."""
    busy: int
    """Places it has now."""
    busy_max: int
    """Its own limit on this worker, from its settings and its circuit."""


def shares(demands: Sequence[Demand], places: int, busy: Mapping[UUID, int]) -> dict[UUID, int]:
    """How many more places each endpoint gets now; those who get none are left out.

    `busy` is what each organization holds at the moment, also of endpoints that want nothing more. Places are given
    one by one to the organization that holds the fewest, there to the endpoint that holds the fewest, and among
    equals to the one that has waited longest: nobody's first place waits behind somebody else's twentieth.
    """
    granted: Counter[UUID] = Counter()
    left = places - sum(busy.values())
    queues = _queues(demands)
    orgs = [(busy.get(org_id, 0), min(due_at for _, due_at, _, _ in queue), org_id) for org_id, queue in queues.items()]
    heapify(orgs)
    while orgs:
        held, waiting_since, org_id = orgs[0]
        queue = queues[org_id]
        if not queue or not _may_grow(held, queue[0][0], left, places):
            heappop(orgs)
            continue
        granted[_take_turn(queue)] += 1
        left -= 1
        heapreplace(orgs, (held + 1, waiting_since, org_id))
    return dict(granted)


def _queues(demands: Sequence[Demand]) -> dict[UUID, _Queue]:
    queues: defaultdict[UUID, _Queue] = defaultdict(list)
    for demand in demands:
        if demand.busy < demand.busy_max:
            queues[demand.org_id].append((demand.busy, demand.due_at, demand.endpoint_id, demand.busy_max))
    for queue in queues.values():
        heapify(queue)
    return queues


def _may_grow(org_held: int, endpoint_held: int, left: int, places: int) -> bool:
    """Whether an organization may have one more place, for an endpoint that has so many."""
    if org_held == 0:
        return left > 0
    if left <= places // 8:
        return False
    return org_held < left if endpoint_held == 0 else 4 * org_held < 3 * left


def _take_turn(queue: _Queue) -> UUID:
    """Give the first of the queue a place, and let it stand in line again if it may have more."""
    held, due_at, endpoint_id, busy_max = queue[0]
    if held + 1 < busy_max:
        heapreplace(queue, (held + 1, due_at, endpoint_id, busy_max))
    else:
        heappop(queue)
    return endpoint_id


def byte_shares(orgs: Sequence[UUID], held: Mapping[UUID, int], bytes_max: int, one_max: int) -> list[int]:
    """How many bytes each of these claims may take, given the organizations they are for; 0 is none at all.

    `held` is what each organization has in hand of the `bytes_max` that all may have. A claim ends with the delivery
    that uses up its bytes, which may have `one_max` more; with that counted in, no more is given than is left. The
    rule is that of places: nobody gets more while he holds as much as is left, and who holds nothing gets one
    delivery in any case.
    """
    left = bytes_max - sum(held.values())
    fitting = min(len(orgs), max(left, 0) // (2 * one_max))
    each = left // (2 * fitting) if fitting else 0
    given = [0] * len(orgs)
    served: set[UUID] = set()
    for place in sorted(range(len(orgs)), key=lambda place: held.get(orgs[place], 0)):
        has = held.get(orgs[place], 0)
        if fitting and has < left:
            given[place] = each
            fitting -= 1
        elif not has and orgs[place] not in served:
            given[place] = 1
        served.add(orgs[place])
    return given
