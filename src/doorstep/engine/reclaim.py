"""Settles the attempts of lost workers: workers that were killed, frozen, or cut off from the store.

If a lease ends without a settlement, this counts as a failed attempt and is logged as such. The delivery is due again
within a second, or within a minute if several attempts in a row ended this way. If it was the last attempt, the
delivery becomes a dead letter. So a payload that kills every worker ends up as a dead letter.
"""

from __future__ import annotations

from doorstep.clock import SECOND, Instant, seconds
from doorstep.engine.directory import Directory
from doorstep.engine.settle import Settler
from doorstep.model.attempt import Code
from doorstep.model.claim import Claim, Settlement
from doorstep.policy.classification import lost_worker, without_attempt
from doorstep.policy.retry import Random, settlement_for
from doorstep.stores.store import Store

_BATCH_MAX = 500


async def reclaim(store: Store, directory: Directory, settler: Settler, now: Instant, random: Random) -> int:
    """Settle claims whose lease has ended, on behalf of their workers; returns the number of claims."""
    claims = await store.expired(now, _BATCH_MAX)
    if claims:
        await directory.refresh()
        await directory.load({claim.org_id for claim in claims})
        await settler.settle([_lost(claim, directory, now, random) for claim in claims])
    return len(claims)


async def next_expiry_seconds(store: Store, now: Instant, seconds_max: float) -> float:
    """The number of seconds until the next lease ends, but at most `seconds_max`."""
    soonest = await store.expired(now + seconds(seconds_max), 1)
    return max(0.0, (soonest[0].lease_until - now) / SECOND) if soonest else seconds_max


def _lost(claim: Claim, directory: Directory, now: Instant, random: Random) -> Settlement:
    endpoint = directory.endpoint(claim.endpoint_id)
    if endpoint is None:
        outcome = without_attempt(claim, Code.ENDPOINT_DELETED, "The endpoint was deleted during the attempt.", now)
        return Settlement.dead(claim, outcome)
    outcome = lost_worker(claim, now)
    try:
        return settlement_for(claim, outcome, directory.policy(endpoint, claim.event_type), random)
    except Exception:  # noqa: BLE001  a bug that affects one claim must not keep the others from being reclaimed
        return Settlement.dead(claim, outcome)
