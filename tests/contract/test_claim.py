"""R5.2, R5.4, promise 4: due deliveries are claimed once, oldest first, and counted when they are claimed."""

from __future__ import annotations

import asyncio
from collections import Counter

from doorstep.model.action import ActionKind
from doorstep.model.claim import Quota
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import EndpointState
from doorstep.model.event import EventStatus
from doorstep.stores.store import Store
from tests.contract.scene import LEASE, SOON, Scene
from tests.support.builders import new_id


async def test_a_claim_carries_all_that_a_try_needs(scene: Scene) -> None:
    (submission,) = await scene.accept(retries_max=2, expires_at=scene.now + 99, payload=b"\x00\xff")
    scene.wait(5)
    claim = await scene.claim_one("w7")

    event = submission.event
    assert (claim.delivery_id, claim.event_id) == (submission.deliveries[0].delivery_id, event.event_id)
    assert (claim.endpoint_id, claim.org_id) == (scene.endpoint.endpoint_id, scene.org_id)
    assert (claim.event_type, claim.payload, claim.correlation_id) == (event.event_type, b"\x00\xff", "request-1")
    assert (claim.accepted_at, claim.expires_at) == (event.created_at, event.expires_at)
    assert (claim.attempt, claim.retry_attempts, claim.retries_max, claim.first_failed_at) == (1, 0, 2, None)
    assert (claim.claimed_at, claim.lease_until, claim.worker) == (scene.now, scene.now + LEASE, "w7")
    assert claim.picked_up


async def test_a_claimed_delivery_is_in_progress_until_its_lease_ends(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one("w7")
    delivery = await scene.delivery(claim.delivery_id)

    assert (delivery.state, delivery.due_at) == (DeliveryState.IN_PROGRESS, claim.lease_until)
    assert (delivery.worker, delivery.claimed_at) == ("w7", scene.now)


async def test_an_attempt_is_counted_when_it_is_claimed(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    assert (await scene.delivery(claim.delivery_id)).attempt == 1


async def test_nothing_is_claimed_before_it_is_due(scene: Scene) -> None:
    await scene.accept(due_at=scene.now + 10)
    scene.wait(9)
    assert await scene.claim() == []
    scene.wait(1)
    assert len(await scene.claim()) == 1


async def test_the_oldest_due_time_goes_first_and_then_the_order_of_creation(scene: Scene) -> None:
    due_in = [30, 10, 20, 10]
    made = [(await scene.accept(due_at=scene.now + span))[0].deliveries[0].delivery_id for span in due_in]
    scene.wait(30)

    claimed = [(await scene.claim_one()).delivery_id for _ in made]

    assert claimed == [made[1], made[3], made[2], made[0]]


async def test_a_quota_bounds_how_many_are_taken_from_its_endpoint(scene: Scene) -> None:
    other = await scene.add_endpoint()
    await scene.accept(5, endpoints=[scene.endpoint, other])
    quotas = [Quota(scene.endpoint.endpoint_id, 2), Quota(other.endpoint_id, 3)]

    claims = await scene.store.claim(quotas, scene.now, scene.now + LEASE, "w1")

    assert Counter(claim.endpoint_id for claim in claims) == {scene.endpoint.endpoint_id: 2, other.endpoint_id: 3}


async def test_an_endpoint_without_a_quota_is_left_alone(scene: Scene) -> None:
    """Callers leave out the quota for open circuits, paused endpoints and full workers."""
    await scene.accept()
    assert await scene.store.claim([], scene.now, scene.now + LEASE, "w1", forced_max=10) == []
    assert await scene.store.claim([Quota(new_id(), 9)], scene.now, scene.now + LEASE, "w1") == []
    assert await scene.claim(0) == []


async def test_the_first_claim_of_an_event_takes_it_from_received_to_queued_once(scene: Scene) -> None:
    other = await scene.add_endpoint()
    (submission,) = await scene.accept(endpoints=[scene.endpoint, other])
    assert await scene.status(submission.event.event_id) is EventStatus.RECEIVED

    quotas = [Quota(endpoint.endpoint_id, 9) for endpoint in (scene.endpoint, other)]
    claims = await scene.store.claim(quotas, scene.now, scene.now + LEASE, "w1")

    assert sorted(claim.picked_up for claim in claims) == [False, True]
    assert await scene.status(submission.event.event_id) is EventStatus.QUEUED


async def test_a_later_claim_of_an_event_does_not_pick_it_up_again(scene: Scene) -> None:
    await scene.accept()
    await scene.fail(await scene.claim_one())
    scene.wait(SOON)
    assert not (await scene.claim_one()).picked_up


async def test_every_claim_of_a_delivery_has_a_greater_token(scene: Scene) -> None:
    await scene.accept(retries_max=9)
    tokens = []
    for handed_back in (False, True, False, True):
        claim = await scene.claim_one()
        tokens.append(claim.token)
        await (scene.store.release([claim], scene.now) if handed_back else scene.fail(claim))
        scene.wait(SOON)
    assert tokens == sorted(set(tokens))


async def test_concurrent_claims_on_one_store_never_share_a_delivery(scene: Scene) -> None:
    await scene.accept(200)
    taken = await asyncio.gather(*(scene.claim(7, f"w{n}") for n in range(40)))
    ids = [claim.delivery_id for claims in taken for claim in claims]
    assert len(ids) == len(set(ids)) == 200


async def test_concurrent_claims_on_two_stores_never_share_a_delivery(scene: Scene, other_store: Store) -> None:
    made = await scene.accept(200)
    quotas = [Quota(scene.endpoint.endpoint_id, 7)]
    taken: list[object] = []
    for _ in range(20):  # a claim may skip rows that another claim has locked, so ask until none is left
        claims = (store.claim(quotas, scene.now, scene.now + LEASE, "w") for store in (scene.store, other_store) * 5)
        taken += [claim.delivery_id for batch in await asyncio.gather(*claims) for claim in batch]
        if len(taken) >= len(made):
            break
    assert len(taken) == len(set(taken)) == 200


# -- forced retries by an operator -------------------------------------------------------------------------


async def forced_claims(scene: Scene, forced_max: int = 10) -> list[object]:
    claims = await scene.store.claim([], scene.now, scene.now + LEASE, "w1", forced_max)
    return [claim.delivery_id for claim in claims]


async def test_a_forced_delivery_is_taken_without_a_quota_and_ahead_of_older_ones(scene: Scene) -> None:
    await scene.accept(3)
    (wanted,) = await scene.accept(due_at=scene.now + SOON)
    scene.wait(1)
    await scene.act(ActionKind.RETRY, wanted.deliveries[0].delivery_id)

    quotas = [Quota(scene.endpoint.endpoint_id, 1)]
    claims = await scene.store.claim(quotas, scene.now, scene.now + LEASE, "w1", forced_max=1)

    assert claims[0].delivery_id == wanted.deliveries[0].delivery_id
    assert len(claims) == 2


async def test_forced_claims_are_bounded_too(scene: Scene) -> None:
    made = await scene.accept(3)
    await scene.act(ActionKind.RETRY, *(one.deliveries[0].delivery_id for one in made))
    assert len(await forced_claims(scene, 2)) == 2
    assert len(await forced_claims(scene, 2)) == 1


async def test_a_forced_delivery_waits_while_its_endpoint_is_not_active(scene: Scene) -> None:
    (submission,) = await scene.accept()
    await scene.act(ActionKind.RETRY, submission.deliveries[0].delivery_id)
    for state in (EndpointState.PAUSED, EndpointState.DISABLED, EndpointState.DELETED):
        await scene.change_endpoint(state=state)
        assert await forced_claims(scene) == []
    await scene.change_endpoint(state=EndpointState.ACTIVE)
    assert len(await forced_claims(scene)) == 1


async def test_a_delivery_is_forced_until_it_is_settled(scene: Scene) -> None:
    (submission,) = await scene.accept()
    delivery_id = submission.deliveries[0].delivery_id
    await scene.act(ActionKind.RETRY, delivery_id)
    claim = await scene.claim_one()
    assert (await scene.delivery(delivery_id)).forced
    await scene.store.release([claim], scene.now)
    assert (await scene.delivery(delivery_id)).forced
    await scene.fail(await scene.claim_one())
    assert not (await scene.delivery(delivery_id)).forced


async def test_a_forced_delivery_is_left_to_a_worker_that_can_reach_its_endpoint(scene: Scene) -> None:
    elsewhere = await scene.add_endpoint()
    ((here,), (there,)) = [await scene.accept(endpoints=[one]) for one in (scene.endpoint, elsewhere)]
    await scene.act(ActionKind.RETRY, *(one.deliveries[0].delivery_id for one in (here, there)))

    until, unserved = scene.now + LEASE, [elsewhere.endpoint_id]
    (claim,) = await scene.store.claim([], scene.now, until, "w1", 10, unserved)
    assert claim.endpoint_id == scene.endpoint.endpoint_id
    (claim,) = await scene.store.claim([], scene.now, until, "w2", 10)
    assert claim.endpoint_id == elsewhere.endpoint_id
