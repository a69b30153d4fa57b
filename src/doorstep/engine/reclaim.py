"""What becomes of the claims of a worker that was lost: killed, frozen, or cut off from the store.

When a lease ends unsettled, the try is settled on behalf of the lost worker: it counts as a failed attempt, is
written to the log as such, and the delivery is due again within a moment (within a minute if it has cost several
workers in a row), or dead if that was its last attempt. So a payload that kills every worker that touches it ends among
the dead letters.
"""

from __future__ import annotations

from doorstep.clock import Clock, Instant
from doorstep.engine.directory import Directory
from doorstep.engine.settle import Settler
from doorstep.model.attempt import Code
from doorstep.model.claim import Claim, Settlement
from doorstep.policy.classification import lost_worker, without_try
from doorstep.policy.retry import Random, settlement_for
from doorstep.stores.protocol.path import PathStore

_BATCH_MAX = 500


async def reclaim(store: PathStore, directory: Directory, settler: Settler, clock: Clock, random: Random) -> int:
    """Settle claims whose lease has ended, on behalf of their workers; returns how many there were."""
    now = clock.now()
    claims = await store.expired(now, _BATCH_MAX)
    if claims:
        await directory.refresh()
        await settler.settle([_settlement(claim, directory, now, random) for claim in claims])
    return len(claims)


def _settlement(claim: Claim, directory: Directory, now: Instant, random: Random) -> Settlement:
    endpoint = directory.endpoint(claim.endpoint_id)
    if endpoint is None:
        outcome = without_try(claim, Code.ENDPOINT_DELETED, "The endpoint was deleted while this was tried.", now)
        return Settlement.dead(claim, outcome)
    outcome = lost_worker(claim, now)
    try:
        return settlement_for(claim, outcome, directory.policy(endpoint, claim.event_type), random)
    except Exception:  # noqa: BLE001  a bug of ours with one of them must not keep the others from being reclaimed
        return Settlement.dead(claim, outcome)
