"""R2, R4: the result of an attempt, its log row, the next due time and the event are written together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from doorstep.model.action import ActionKind
from doorstep.model.attempt import Attempt, Category, Code, Timings
from doorstep.model.claim import Claim, Settled, Settlement, StatusChange
from doorstep.model.delivery import DeliveryState, IllegalTransition
from doorstep.model.event import EventStatus
from doorstep.model.listing import DeliveryAttempts
from tests.contract.scene import SOON, Scene
from tests.support.builders import failure, refusal, success


async def claimed(scene: Scene, **fields: object) -> Claim:
    await scene.accept(**fields)  # type: ignore[arg-type]
    return await scene.claim_one()


async def test_a_delivered_delivery_is_settled_and_has_no_due_time(scene: Scene) -> None:
    claim = await claimed(scene)
    scene.wait(3)
    await scene.settle(Settlement.delivered(claim, success(scene.now - 1, status=204)))
    delivery = await scene.delivery(claim.delivery_id)

    assert (delivery.state, delivery.due_at, delivery.settled_at) == (DeliveryState.DELIVERED, None, scene.now)
    assert (delivery.response_code, delivery.last_attempt_at) == (204, scene.now - 1)
    assert (delivery.category, delivery.code, delivery.reason) == (None, None, None)
    assert (delivery.worker, delivery.claimed_at) == (None, None)


async def test_a_failure_is_due_again_at_the_very_time_that_was_decided(scene: Scene) -> None:
    claim = await claimed(scene)
    scene.wait(3)
    await scene.settle(Settlement.retry(claim, failure(scene.now - 1), scene.now + 77, 3))
    delivery = await scene.delivery(claim.delivery_id)

    assert (delivery.state, delivery.due_at, delivery.settled_at) == (DeliveryState.PENDING, scene.now + 77, None)
    assert delivery.next_retry_at == scene.now + 77
    assert (delivery.category, delivery.code) == (Category.TRANSIENT, Code.SERVICE_UNAVAILABLE)
    assert (delivery.reason, delivery.response_code) == ("the receiver is down", 503)
    assert (delivery.first_failed_at, delivery.last_attempt_at) == (scene.now - 1, scene.now - 1)
    assert (delivery.worker, delivery.claimed_at) == (None, None)

    scene.wait(76)
    assert await scene.claim() == []
    scene.wait(1)
    assert len(await scene.claim()) == 1


async def test_a_dead_letter_keeps_why_it_died(scene: Scene) -> None:
    claim = await claimed(scene)
    await scene.settle(Settlement.dead(claim, refusal(scene.now, reason="no such page")))
    delivery = await scene.delivery(claim.delivery_id)

    assert (delivery.state, delivery.due_at, delivery.settled_at) == (DeliveryState.DEAD, None, scene.now)
    assert (delivery.category, delivery.code) == (Category.PERMANENT, Code.NOT_FOUND)
    assert (delivery.reason, delivery.response_code) == ("no such page", 404)


async def test_three_retries_mean_four_attempts_and_the_count_never_passes_the_maximum(scene: Scene) -> None:
    await scene.accept(retries_max=3)
    seen = []
    for _ in range(5):  # one more than the policy allows: the count must not exceed the policy
        claim = await scene.claim_one()
        seen.append((claim.attempt, claim.retry_attempts))
        await scene.fail(claim)
        scene.wait(SOON)
    assert seen == [(1, 0), (2, 1), (3, 2), (4, 3), (5, 3)]
    assert (await scene.delivery(claim.delivery_id)).retry_attempts == 3


async def test_a_retry_takes_over_the_maximum_of_the_policy_that_decided_it(scene: Scene) -> None:
    claim = await claimed(scene, retries_max=3)
    await scene.settle(Settlement.retry(claim, failure(scene.now), scene.now, 7))
    assert (await scene.delivery(claim.delivery_id)).retries_max == 7


async def test_a_lowered_maximum_never_leaves_more_retries_used_than_allowed(scene: Scene) -> None:
    await scene.accept(retries_max=3)
    for _ in range(3):
        claim = await scene.claim_one()
        await scene.settle(Settlement.retry(claim, failure(scene.now), scene.now, 3))
    claim = await scene.claim_one()
    await scene.settle(Settlement.retry(claim, failure(scene.now), scene.now, 1))
    delivery = await scene.delivery(claim.delivery_id)
    assert (delivery.retry_attempts, delivery.retries_max) == (1, 1)


async def test_a_delivery_that_succeeded_on_a_retry_says_so_and_has_the_last_response(scene: Scene) -> None:
    await scene.accept()
    for _ in range(2):
        await scene.fail(await scene.claim_one())
        scene.wait(SOON)
    claim = await scene.claim_one()
    await scene.deliver(claim)
    delivery = await scene.delivery(claim.delivery_id)
    assert delivery.remark == "Succeeded on retry attempt 2"
    assert delivery.response_code == 200
    assert delivery.first_failed_at is not None, "when it first failed stays known"


@pytest.mark.parametrize("failures", [0, 1])
async def test_a_dead_letter_that_succeeded_when_an_operator_retried_it_says_so(scene: Scene, failures: int) -> None:
    await scene.accept()
    for _ in range(2):
        await scene.fail(await scene.claim_one())
        scene.wait(SOON)
    dead = await scene.claim_one()
    await scene.kill(dead)
    await scene.act(ActionKind.RETRY, dead.delivery_id)
    for _ in range(failures):
        scene.wait(SOON)
        await scene.fail(await scene.claim_one())
    scene.wait(SOON)
    await scene.deliver(await scene.claim_one())
    delivery = await scene.delivery(dead.delivery_id)
    assert delivery.remark == f"Succeeded on retry attempt {3 + failures}", "the retry is attempt 4 of the log, or 5"
    assert delivery.retry_attempts == failures, "the new round counts for itself"


async def test_the_first_failure_is_remembered_through_later_ones(scene: Scene) -> None:
    await scene.accept()
    first_failed_at = scene.now
    await scene.fail(await scene.claim_one())
    scene.wait(SOON)
    claim = await scene.claim_one()
    assert claim.first_failed_at == first_failed_at
    await scene.fail(claim)
    assert (await scene.delivery(claim.delivery_id)).first_failed_at == first_failed_at


async def test_every_attempt_has_one_full_row_in_the_log(scene: Scene) -> None:
    claim = await claimed(scene)
    scene.wait(20_000)
    await scene.settle(Settlement.retry(claim, failure(scene.now), scene.now + SOON, 3))

    assert await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id)) == [
        Attempt(
            delivery_id=claim.delivery_id,
            number=1,
            started_at=scene.now - 20_000,
            finished_at=scene.now,
            timings=Timings(1, 2, 3, 4),
            request_headers=b"webhook-id: 1",
            response_code=503,
            response_headers=b"x: y",
            response_body=b"ok",
            category="transient",
            code="SERVICE_UNAVAILABLE",
            reason="the receiver is down",
            detail="detail",
            worker="w1",
            next_retry_at=scene.now + SOON,
            late=False,
        )
    ]


async def test_the_log_is_in_the_order_of_the_attempts(scene: Scene) -> None:
    await scene.accept()
    for _ in range(3):
        await scene.fail(await scene.claim_one())
        scene.wait(SOON)
    claim = await scene.claim_one()
    await scene.deliver(claim)
    rows = await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id))
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert [row.code for row in rows] == [Code.SERVICE_UNAVAILABLE] * 3 + [None]


async def test_a_batch_of_mixed_results_is_written_in_one_call(scene: Scene) -> None:
    await scene.accept(3)
    one, two, three = await scene.claim()
    settled = await scene.settle(
        Settlement.delivered(one, success(scene.now)),
        Settlement.retry(two, failure(scene.now), scene.now + 5, 3),
        Settlement.dead(three, refusal(scene.now)),
    )
    assert settled.late == ()
    assert {(change.event_id, change.new_status) for change in settled.changes} == {
        (one.event_id, EventStatus.DELIVERED),
        (three.event_id, EventStatus.FAILED),
    }
    assert await scene.counts() == {state: 1 for state in ("delivered", "pending", "dead")}


async def test_a_status_change_names_the_event_and_the_retries_it_took(scene: Scene) -> None:
    await scene.accept()
    await scene.fail(await scene.claim_one())
    scene.wait(SOON)
    claim = await scene.claim_one()
    assert await scene.deliver(claim) == Settled(
        (),
        (StatusChange(claim.event_id, scene.org_id, "request-1", EventStatus.QUEUED, EventStatus.DELIVERED, 1),),
    )


async def test_settling_nothing_is_no_error(scene: Scene) -> None:
    assert await scene.settle() == Settled()


@pytest.mark.parametrize("target", ["in_progress", "resolved", "archived", "cancelled"])
async def test_a_settlement_into_a_state_that_cannot_follow_is_refused_and_keeps_nothing_of_its_batch(
    scene: Scene, target: str
) -> None:
    await scene.accept(2)
    good, other = await scene.claim()
    bad = replace(Settlement.delivered(other, success(scene.now)), state=DeliveryState(target))

    with pytest.raises(IllegalTransition):
        await scene.settle(Settlement.delivered(good, success(scene.now)), bad)

    assert await scene.counts() == {DeliveryState.IN_PROGRESS: 2}
    assert await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=good.delivery_id)) == []
    assert (await scene.deliver(good)).late == (), "it can still be settled rightly"


async def test_an_operators_retry_starts_the_count_anew_while_attempts_go_on(scene: Scene) -> None:
    await scene.accept(retries_max=1)
    await scene.fail(await scene.claim_one())
    scene.wait(SOON)
    claim = await scene.claim_one()
    await scene.kill(claim)
    await scene.act(ActionKind.RETRY, claim.delivery_id, revive_at=scene.now)

    seen = []
    for _ in range(2):
        again = await scene.claim_one()
        seen.append((again.attempt, again.retry_attempts))
        await scene.fail(again)
        scene.wait(SOON)
    assert seen == [(3, 0), (4, 1)]
