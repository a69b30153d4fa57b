"""Shares the slots of a worker, so that neither a flood of events nor a hanging receiver can take all of them.

The rule is that an organization may hold at most as many slots as remain free. So a single organization gets half of
all slots, two get a third each, and n get 1/(n + 1) each. The remaining share is free for the next organization, which
need not wait for an attempt to end. As long as attempts hang, each additional organization halves the number of free
slots. The last eighth of all slots is therefore reserved for organizations that hold no slot, and each of them gets
only one. Endpoints share the slots of their organization in the same way: the last quarter of these is reserved for
endpoints that hold none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.record import Record

_Queue = list[tuple[int, Instant, UUID, int]]
"""The endpoints of an organization that need slots, each as (slots held, waiting since, id, limit). It is a heap: the
endpoint with the fewest slots comes first."""


class Demand(Record, frozen=True):
    """One endpoint that could use more slots."""

    endpoint_id: UUID
    org_id: UUID
    due_at: Instant
    """When its first waiting delivery is (or was) due."""
    busy: int
    """The number of slots that the endpoint holds now."""
    busy_max: int
    """The endpoint's slot limit on this worker, which depends on its settings and its circuit."""


def shares(demands: Sequence[Demand], slots: int, busy: Mapping[UUID, int]) -> dict[UUID, int]:
    """How many more slots each endpoint gets; endpoints that get none are omitted.

    `busy` is the number of slots that each organization holds now, including endpoints that need no more. Slots are
    given one by one to the organization with the fewest, and within it to the endpoint with the fewest. Among equals,
    the one that has waited longest comes first. So no endpoint waits for its first slot while another gets its
    twentieth.
    """
    granted: Counter[UUID] = Counter()
    left = slots - sum(busy.values())
    queues = _queues(demands)
    orgs = [(busy.get(org_id, 0), min(due_at for _, due_at, _, _ in queue), org_id) for org_id, queue in queues.items()]
    heapify(orgs)
    while orgs:
        held, waiting_since, org_id = orgs[0]
        queue = queues[org_id]
        if not queue or not may_grow(held, queue[0][0], left, slots):
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


def may_grow(org_held: int, endpoint_held: int, left: int, slots: int) -> bool:
    """Whether an organization may have one more slot, for an endpoint that holds `endpoint_held` slots."""
    if org_held == 0:
        return left > 0
    if left <= slots // 8:
        return False
    return org_held < left if endpoint_held == 0 else 4 * org_held < 3 * left


def _take_turn(queue: _Queue) -> UUID:
    """Give the first endpoint of the queue a slot, and queue it again if it may have more."""
    held, due_at, endpoint_id, busy_max = queue[0]
    if held + 1 < busy_max:
        heapreplace(queue, (held + 1, due_at, endpoint_id, busy_max))
    else:
        heappop(queue)
    return endpoint_id


def byte_shares(orgs: Sequence[UUID], held: Mapping[UUID, int], bytes_max: int, one_max: int) -> list[int]:
    """How many bytes of payload each claim may take; 0 means no claim. `orgs` lists the organization of each claim.

    All organizations together may hold `bytes_max` bytes, and `held` is the number of bytes that each of them holds
    now. A claim ends with the delivery that uses up its bytes, so it may exceed its share by up to `one_max`; the
    shares allow for that. The rule is the same as for slots: an organization gets nothing while it holds at least as
    much as is left. An organization that holds no bytes can always claim at least one delivery.
    """
    left = bytes_max - sum(held.values())
    fitting = min(len(orgs), max(left, 0) // (2 * one_max))
    each = left // (2 * fitting) if fitting else 0
    given = [0] * len(orgs)
    served: set[UUID] = set()
    for index in sorted(range(len(orgs)), key=lambda index: held.get(orgs[index], 0)):
        has = held.get(orgs[index], 0)
        if fitting and has < left:
            given[index] = each
            fitting -= 1
        elif not has and orgs[index] not in served:
            given[index] = 1
        served.add(orgs[index])
    return given
