"""Promise 3: a delivery that expires while its endpoint is held becomes a dead letter, although nobody claims it."""

from __future__ import annotations

from doorstep.model.attempt import Category, Code
from doorstep.model.claim import Moved
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.model.listing import DeliveryAttempts, DeliveryHistory
from tests.contract.scene import Scene

REASON = "too late"


async def expire(scene: Scene, limit: int = 100, since: int = 0) -> Moved:
    return await scene.store.expire(Code.EXPIRED, REASON, since, scene.now, limit)


async def test_what_expired_is_a_dead_letter_with_the_reason_and_untried(scene: Scene) -> None:
    (submission,) = await scene.accept(due_at=scene.now + 999, expires_at=scene.now)
    expired = await expire(scene)
    delivery = await scene.delivery(submission.deliveries[0].delivery_id)

    assert expired.delivery_ids == (delivery.delivery_id,)
    assert [(one.event_id, one.new_status) for one in expired.changes] == [
        (submission.event.event_id, EventStatus.FAILED)
    ]
    assert (delivery.state, delivery.settled_at, delivery.due_at) == (DeliveryState.DEAD, scene.now, None)
    assert (delivery.category, delivery.code, delivery.reason) == (Category.PERMANENT, Code.EXPIRED, REASON)
    assert delivery.attempt == 0
    assert [
        line.note for line in await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=delivery.delivery_id))
    ][1:] == [f"dead: {Code.EXPIRED}"]


async def test_what_has_time_left_or_never_expires_is_spared(scene: Scene) -> None:
    await scene.accept(expires_at=scene.now + 1)
    await scene.accept()
    assert await expire(scene) == Moved()


async def test_a_retry_that_waits_expires_too_and_keeps_its_attempts(scene: Scene) -> None:
    await scene.accept(expires_at=scene.now + 5)
    claim = await scene.claim_one()
    await scene.fail(claim)
    scene.wait(5)
    assert (await expire(scene)).delivery_ids == (claim.delivery_id,)
    assert len(await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id))) == 1


async def test_what_is_being_tried_may_still_succeed(scene: Scene) -> None:
    other = await scene.add_endpoint()
    await scene.accept(endpoints=[scene.endpoint, other], expires_at=scene.now)
    held = await scene.claim_one()
    assert len((await expire(scene)).moves) == 1
    assert (await scene.deliver(held)).late == ()
    assert await scene.counts() == {DeliveryState.DELIVERED: 1, DeliveryState.DEAD: 1}


async def test_what_is_settled_is_left_alone(scene: Scene) -> None:
    for state in DeliveryState:
        if state is not DeliveryState.PENDING:
            await scene.in_state(state)
    before = await scene.counts()
    await scene.accept(expires_at=scene.now)
    await scene.deliver(await scene.claim_one())
    assert await expire(scene) == Moved()
    assert (await scene.counts())[DeliveryState.DELIVERED] == before[DeliveryState.DELIVERED] + 1


async def test_expiring_is_bounded_and_the_first_to_expire_go_first(scene: Scene) -> None:
    made = [(await scene.accept(expires_at=scene.now - age))[0] for age in (1, 3, 2)]
    rounds = [(await expire(scene, limit=1)).delivery_ids for _ in range(4)]
    assert rounds == [(made[n].deliveries[0].delivery_id,) for n in (1, 2, 0)] + [()]


async def test_only_what_expired_since_the_last_look_is_looked_at(scene: Scene) -> None:
    (old,) = await scene.accept(expires_at=scene.now - 5)
    (new,) = await scene.accept(expires_at=scene.now)
    assert (await expire(scene, since=scene.now - 5)).delivery_ids == (new.deliveries[0].delivery_id,)
    assert (await expire(scene, since=scene.now - 6)).delivery_ids == (old.deliveries[0].delivery_id,)
