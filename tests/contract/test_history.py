"""R1.4: the complete history of a delivery can be read in order."""

from __future__ import annotations

from itertools import pairwise

from doorstep.clock import SECOND
from doorstep.model.action import ActionKind
from doorstep.model.claim import Settlement
from doorstep.model.delivery import TRANSITIONS, DeliveryState, HistoryEntry
from doorstep.model.listing import DeliveryHistory
from tests.contract.scene import SOON, WEEK, Scene
from tests.support.builders import failure


async def test_every_transition_writes_one_line_that_says_who_or_why(scene: Scene) -> None:
    s = DeliveryState
    (submission,) = await scene.accept(retries_max=3)
    begun = scene.now
    claim = await scene.claim_one("w1")
    await scene.store.release([claim], scene.now)
    scene.wait(1)
    claim = await scene.claim_one("w2")
    await scene.settle(Settlement.retry(claim, failure(scene.now, "TIMEOUT"), scene.now + SOON, 3))
    scene.wait(SOON)
    await scene.kill(await scene.claim_one("w2"))
    await scene.act(ActionKind.RETRY, claim.delivery_id, revive_at=scene.now)
    await scene.deliver(await scene.claim_one("w3"))

    assert await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=claim.delivery_id)) == [
        HistoryEntry(submission.event.created_at, None, s.PENDING, 0, "accepted"),
        HistoryEntry(begun, s.PENDING, s.IN_PROGRESS, 1, "claimed by w1"),
        HistoryEntry(begun, s.IN_PROGRESS, s.PENDING, 0, "released untried by w1"),
        HistoryEntry(begun + 1, s.PENDING, s.IN_PROGRESS, 1, "claimed by w2"),
        HistoryEntry(begun + 1, s.IN_PROGRESS, s.PENDING, 1, "failed: TIMEOUT, retry 1 of 3"),
        HistoryEntry(scene.now, s.PENDING, s.IN_PROGRESS, 2, "claimed by w2"),
        HistoryEntry(scene.now, s.IN_PROGRESS, s.DEAD, 2, "dead: NOT_FOUND"),
        HistoryEntry(scene.now, s.DEAD, s.PENDING, 2, "retried by ops"),
        HistoryEntry(scene.now, s.PENDING, s.IN_PROGRESS, 3, "claimed by w3"),
        HistoryEntry(scene.now, s.IN_PROGRESS, s.DELIVERED, 3, "delivered"),
    ]


async def test_what_operators_and_the_cleaner_do_is_in_the_history_too(scene: Scene) -> None:
    await scene.accept()
    (submission,) = await scene.accept()
    delivery_id = submission.deliveries[0].delivery_id
    await scene.act(ActionKind.SKIP, delivery_id, reason="known bad")
    scene.wait(WEEK + SECOND)
    await scene.store.archive(scene.now - WEEK, scene.now, 10)
    await scene.act(ActionKind.RESOLVE, delivery_id)
    lines = await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=delivery_id))
    assert [line.note for line in lines[1:]] == [
        "skipped by ops: known bad",
        "archived: no action taken",
        "resolved by ops",
    ]


async def test_each_line_begins_where_the_one_before_it_ended_and_is_an_allowed_transition(scene: Scene) -> None:
    for state in DeliveryState:
        lines = await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=await scene.in_state(state)))
        assert lines[0].old_state is None
        assert lines[-1].new_state is state
        for before, after in pairwise(lines):
            assert after.old_state is before.new_state
            assert (after.old_state, after.new_state) in TRANSITIONS


async def test_what_changes_no_state_writes_no_line(scene: Scene) -> None:
    (submission,) = await scene.accept()
    delivery_id = submission.deliveries[0].delivery_id
    await scene.act(ActionKind.RETRY, delivery_id)
    assert len(await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=delivery_id))) == 1
