"""R1.1: the visible status of an event always follows from the states of its deliveries."""

from __future__ import annotations

from itertools import product
from uuid import UUID

import pytest

from doorstep.model.action import ActionKind
from doorstep.model.claim import Quota, Settlement
from doorstep.model.delivery import DEAD_STATES, DONE_STATES, OPEN_STATES, DeliveryState
from doorstep.model.event import EventStatus, EventView, status_of
from doorstep.model.listing import DeliveryHistory, EventDeliveries
from tests.contract.scene import LEASE, SOON, Scene
from tests.support.builders import failure, refusal, success
from tests.support.shortcuts import living_endpoints

ENDS = ("deliver", "fail", "kill", "cancel", "skip", "resolve", "leave")


async def expected_status(scene: Scene, event_id: UUID) -> EventStatus:
    """Apply the model's rule to the deliveries as the store returns them."""
    deliveries = await scene.store.find(scene.org_id, EventDeliveries(event_id=event_id))

    def count(states: frozenset[DeliveryState]) -> int:
        return sum(one.state in states for one in deliveries)

    return status_of(
        open_count=count(OPEN_STATES),
        dead_count=count(DEAD_STATES),
        done_count=count(DONE_STATES),
        picked_up=any([await _was_claimed(scene, one.delivery_id) for one in deliveries]),
    )


async def _was_claimed(scene: Scene, delivery_id: UUID) -> bool:
    lines = await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=delivery_id))
    return any(line.new_state is DeliveryState.IN_PROGRESS for line in lines)


@pytest.mark.parametrize("later", [False, True], ids=["together", "one by one"])
async def test_the_status_follows_from_the_deliveries_however_they_end(scene: Scene, later: bool) -> None:
    other = await scene.add_endpoint()
    for ends in product(ENDS, repeat=2):
        (submission,) = await scene.accept(endpoints=[scene.endpoint, other])
        ids = [one.delivery_id for one in submission.deliveries]
        await _end(scene, dict(zip(ids, ends, strict=True)), one_by_one=later)
        event_id = submission.event.event_id
        assert await scene.status(event_id) is await expected_status(scene, event_id), ends


async def _end(scene: Scene, ends: dict[UUID, str], one_by_one: bool) -> None:
    for delivery_id, end in ends.items():
        if end in ("cancel", "skip", "resolve"):
            await scene.act(ActionKind.SKIP if end == "resolve" else ActionKind(end), delivery_id)
        if end == "resolve":
            await scene.act(ActionKind.RESOLVE, delivery_id)
    tried = {delivery_id: end for delivery_id, end in ends.items() if end in ("deliver", "fail", "kill")}
    settlements = await _settlements(scene, tried)
    for batch in [[one] for one in settlements] if one_by_one else [settlements]:
        await scene.settle(*batch)


async def _settlements(scene: Scene, tried: dict[UUID, str]) -> list[Settlement]:
    quotas = [Quota(one.endpoint_id, 1_000) for one in (await living_endpoints(scene.store))]
    claims = await scene.store.claim(quotas, scene.now, scene.now + LEASE, "w1")
    await scene.store.release([claim for claim in claims if claim.delivery_id not in tried], scene.now)
    make = {
        "deliver": lambda claim: Settlement.delivered(claim, success(scene.now)),
        "fail": lambda claim: Settlement.retry(claim, failure(scene.now), scene.now + LEASE, 3),
        "kill": lambda claim: Settlement.dead(claim, refusal(scene.now)),
    }
    return [make[tried[claim.delivery_id]](claim) for claim in claims if claim.delivery_id in tried]


async def test_an_event_with_one_dead_delivery_is_failed_only_when_nothing_is_left_to_try(scene: Scene) -> None:
    other = await scene.add_endpoint()
    (submission,) = await scene.accept(endpoints=[scene.endpoint, other])
    await scene.kill(await scene.claim_one())
    assert await scene.status(submission.event.event_id) is EventStatus.QUEUED

    (last,) = await scene.store.claim([Quota(other.endpoint_id, 1)], scene.now, scene.now + LEASE, "w1")
    settled = await scene.deliver(last)

    assert [(one.old_status, one.new_status) for one in settled.changes] == [(EventStatus.QUEUED, EventStatus.FAILED)]
    assert await scene.status(submission.event.event_id) is EventStatus.FAILED


async def test_deliveries_of_one_event_settled_together_change_its_status_once(scene: Scene) -> None:
    other = await scene.add_endpoint()
    await scene.accept(endpoints=[scene.endpoint, other])
    quotas = [Quota(one.endpoint_id, 1) for one in (scene.endpoint, other)]
    claims = await scene.store.claim(quotas, scene.now, scene.now + LEASE, "w1")
    settled = await scene.deliver(*claims)
    assert [one.new_status for one in settled.changes] == [EventStatus.DELIVERED]


async def test_the_figures_of_an_event_are_those_of_its_deliveries(scene: Scene) -> None:
    (submission,) = await scene.accept()
    event_id = submission.event.event_id
    await scene.fail(await scene.claim_one())
    view = await scene.store.get(EventView, scene.org_id, event_id)
    assert (view.retry_attempts, view.last_retry_at, view.next_retry_at) == (0, None, scene.now + SOON)

    scene.wait(SOON)
    await scene.fail(await scene.claim_one())
    view = await scene.store.get(EventView, scene.org_id, event_id)
    assert (view.retry_attempts, view.last_retry_at, view.next_retry_at) == (1, scene.now, scene.now + SOON)

    scene.wait(SOON)
    await scene.kill(await scene.claim_one())
    view = await scene.store.get(EventView, scene.org_id, event_id)
    assert (view.retry_attempts, view.last_retry_at, view.next_retry_at) == (2, scene.now, None)
    assert (view.status, view.failed_at) == (EventStatus.FAILED, scene.now)


async def test_an_event_that_is_tried_again_or_delivered_has_not_failed(scene: Scene) -> None:
    (submission,) = await scene.accept()
    event_id = submission.event.event_id
    claim = await scene.claim_one()
    await scene.kill(claim)
    await scene.act(ActionKind.RETRY, claim.delivery_id, revive_at=scene.now)
    assert (await scene.store.get(EventView, scene.org_id, event_id)).failed_at is None
    await scene.deliver(await scene.claim_one())
    view = await scene.store.get(EventView, scene.org_id, event_id)
    assert (view.status, view.failed_at) == (EventStatus.DELIVERED, None)
