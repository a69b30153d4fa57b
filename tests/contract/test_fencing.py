"""Promise 5, R5.2, R5.3: only the newest claim can change a delivery; a late result is recorded but changes nothing."""

from __future__ import annotations

import pytest

from doorstep.errors import NotFound
from doorstep.model.action import ActionKind
from doorstep.model.attempt import Code
from doorstep.model.claim import Claim, Settlement
from doorstep.model.delivery import DeliveryState
from doorstep.model.listing import DeliveryAttempts, DeliveryHistory
from doorstep.stores.store import Retention, Store
from tests.contract.scene import LEASE, SOON, Scene
from tests.support.builders import failure, refusal, success

LOST = Code.WORKER_LOST


async def lose_worker(scene: Scene) -> tuple[Claim, Claim]:
    """Let a lease end, settle it as lost, and claim again; return the old claim and its successor."""
    old = await scene.claim_one("lost")
    scene.wait(LEASE)
    (expired,) = await scene.store.expired(scene.now, 10)
    await scene.settle(Settlement.retry(expired, failure(scene.now, LOST), scene.now, 3))
    return old, await scene.claim_one("successor")


async def test_a_worker_whose_lease_expired_cannot_settle_over_its_successor(scene: Scene) -> None:
    await scene.accept()
    old, new = await lose_worker(scene)
    before = await scene.delivery(old.delivery_id)

    settled = await scene.deliver(old)

    assert settled.late == (old,)
    assert settled.changes == ()
    assert await scene.delivery(old.delivery_id) == before
    assert (await scene.deliver(new)).late == ()


async def test_a_late_result_changes_nothing_even_after_its_successor_settled(scene: Scene) -> None:
    await scene.accept()
    old, new = await lose_worker(scene)
    await scene.deliver(new)
    before = await scene.delivery(old.delivery_id)
    history = await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=old.delivery_id))

    assert (await scene.kill(old)).late == (old,)

    assert await scene.delivery(old.delivery_id) == before
    assert await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=old.delivery_id)) == history


async def test_a_late_result_is_kept_in_the_log_and_marked(scene: Scene) -> None:
    await scene.accept()
    old, new = await lose_worker(scene)
    await scene.deliver(new)
    await scene.settle(Settlement.retry(old, failure(scene.now), scene.now + SOON, 3))

    rows = await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=old.delivery_id))

    assert [(row.number, row.code, row.worker, row.late) for row in rows] == [
        (1, LOST, "lost", False),
        (1, Code.SERVICE_UNAVAILABLE, "lost", True),
        (2, None, "successor", False),
    ]
    assert rows[1].next_retry_at is None, "nothing was scheduled because of it"


async def test_several_late_results_of_one_number_are_all_kept(scene: Scene) -> None:
    await scene.accept()
    old, _ = await lose_worker(scene)
    for _ in range(3):
        await scene.deliver(old)
    await scene.settle(Settlement.delivered(old, success(scene.now)), Settlement.delivered(old, success(scene.now)))
    rows = await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=old.delivery_id))
    assert [row.late for row in rows] == [False] + [True] * 5


async def test_a_worker_that_is_late_but_not_replaced_may_still_settle(scene: Scene) -> None:
    """Here the worker's token is still the newest: nobody else has tried the delivery, so its result counts."""
    await scene.accept()
    claim = await scene.claim_one()
    scene.wait(10 * LEASE)
    assert (await scene.deliver(claim)).late == ()
    assert (await scene.delivery(claim.delivery_id)).state is DeliveryState.DELIVERED


async def test_a_claim_can_be_settled_only_once(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.deliver(claim)
    assert (await scene.kill(claim)).late == (claim,)
    assert (await scene.delivery(claim.delivery_id)).state is DeliveryState.DELIVERED


async def test_of_two_results_of_one_claim_in_one_call_the_first_counts(scene: Scene) -> None:
    """This happens when a worker's result and the decision that the worker is lost arrive in the same batch."""
    await scene.accept()
    claim = await scene.claim_one()
    settled = await scene.settle(
        Settlement.delivered(claim, success(scene.now)), Settlement.dead(claim, refusal(scene.now))
    )
    assert settled.late == (claim,)
    assert (await scene.delivery(claim.delivery_id)).state is DeliveryState.DELIVERED
    rows = await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id))
    assert [(row.response_code, row.late) for row in rows] == [(200, False), (404, True)]


async def test_a_late_result_does_not_keep_the_rest_of_its_batch_from_being_written(scene: Scene) -> None:
    await scene.accept(2)
    old, new = await scene.claim()
    await scene.deliver(old)
    settled = await scene.deliver(old, new)
    assert settled.late == (old,)
    assert (await scene.delivery(new.delivery_id)).state is DeliveryState.DELIVERED


async def test_a_token_taken_by_another_store_fences_this_one(scene: Scene, other_store: Store) -> None:
    await scene.accept()
    old = await scene.claim_one()
    await other_store.release([old], scene.now)
    new = await scene.claim_one()
    assert (await other_store.settle([Settlement.delivered(old, success(scene.now))], scene.now)).late == (old,)
    assert (await other_store.settle([Settlement.delivered(new, success(scene.now))], scene.now)).late == ()


async def test_a_payload_that_kills_its_workers_runs_out_of_attempts(scene: Scene) -> None:
    """Each lost worker used one attempt when it claimed, so the attempts run out."""
    await scene.accept(retries_max=2)
    for attempt in (1, 2, 3):
        await scene.claim_one(f"w{attempt}")
        scene.wait(LEASE)
        (lost,) = await scene.store.expired(scene.now, 10)
        assert (lost.attempt, lost.retry_attempts) == (attempt, attempt - 1)
        if lost.retry_attempts < lost.retries_max:
            await scene.fail(lost, outcome=failure(scene.now, LOST))
            scene.wait(SOON)
    await scene.settle(Settlement.dead(lost, failure(scene.now, LOST)))
    delivery = await scene.delivery(lost.delivery_id)
    assert (delivery.state, delivery.code, delivery.attempt) == (DeliveryState.DEAD, LOST, 3)


async def test_the_result_of_a_delivery_that_was_cleaned_away_is_late_and_harmless(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.deliver(claim)
    await scene.store.clean(Retention(settled_before=scene.now + 1), scene.now, 10)

    assert (await scene.deliver(claim)).late == (claim,)

    assert await scene.counts() == {}
    with pytest.raises(NotFound):
        await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id))


async def test_a_late_result_cannot_undo_what_an_operator_did(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.store.release([claim], scene.now)
    await scene.act(ActionKind.CANCEL, claim.delivery_id)
    assert (await scene.deliver(claim)).late == (claim,)
    assert (await scene.delivery(claim.delivery_id)).state is DeliveryState.CANCELLED
