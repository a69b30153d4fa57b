"""R5.3: a claim that was never tried is handed back, and no attempt is counted."""

from __future__ import annotations

from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.model.listing import DeliveryAttempts
from tests.contract.scene import SOON, Scene


async def test_a_released_delivery_is_due_at_once_and_burns_no_attempt(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    scene.wait(5)

    assert await scene.store.release([claim], scene.now) == [claim]

    delivery = await scene.delivery(claim.delivery_id)
    assert (delivery.state, delivery.due_at, delivery.attempt) == (DeliveryState.PENDING, scene.now, 0)
    assert (delivery.worker, delivery.claimed_at) == (None, None)
    assert await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id)) == []
    assert (await scene.claim_one()).attempt == 1


async def test_releasing_a_retry_gives_its_retry_back(scene: Scene) -> None:
    await scene.accept()
    await scene.fail(await scene.claim_one())
    scene.wait(SOON)
    claim = await scene.claim_one()
    assert (claim.attempt, claim.retry_attempts) == (2, 1)
    await scene.store.release([claim], scene.now)
    delivery = await scene.delivery(claim.delivery_id)
    assert (delivery.attempt, delivery.retry_attempts) == (1, 0)


async def test_a_released_token_is_used_up(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.store.release([claim], scene.now)
    assert (await scene.deliver(claim)).late == (claim,)
    again = await scene.claim_one()
    assert again.token > claim.token
    assert (await scene.deliver(claim)).late == (claim,)
    assert (await scene.deliver(again)).late == ()


async def test_a_claim_that_is_no_longer_the_newest_cannot_be_released(scene: Scene) -> None:
    await scene.accept()
    old = await scene.claim_one()
    await scene.store.release([old], scene.now)
    new = await scene.claim_one()
    assert await scene.store.release([old], scene.now) == []
    await scene.deliver(new)
    assert await scene.store.release([new], scene.now) == []
    assert (await scene.delivery(new.delivery_id)).state is DeliveryState.DELIVERED


async def test_a_claim_named_twice_is_released_once(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    assert await scene.store.release([claim, claim], scene.now) == [claim]
    assert (await scene.delivery(claim.delivery_id)).attempt == 0


async def test_the_event_of_a_released_delivery_stays_queued(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.store.release([claim], scene.now)
    assert await scene.status(claim.event_id) is EventStatus.QUEUED
    assert not (await scene.claim_one()).picked_up
