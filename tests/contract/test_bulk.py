"""R7.3: bulk operations. The real bulk service on every store, advanced step by step; the scene plays the worker."""

from __future__ import annotations

import asyncio

import pytest

from doorstep.clock import SECOND
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import Action, ActionKind
from doorstep.model.bulk import Bulk, BulkFailures, BulkFilter, BulkKind, BulkState, LiveBulks, Selection
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES, DeliveryState
from doorstep.model.listing import AuditFilter, Count, DeadLetterFilter, DeliveryHistory, RetryQueueFilter
from doorstep.operations import bulk as bulk_module
from doorstep.stores.store import Store
from tests.contract.desk import Desk, claims_of, dead_letters, work
from tests.contract.scene import Scene
from tests.support.builders import new_id

_S = DeliveryState


async def test_every_dead_letter_is_retried_once_and_the_results_are_counted(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 5)
    bulk = await desk.begin()
    assert (bulk.total, bulk.total_exact) == (5, True)
    bulk = await desk.step(bulk, 3)
    claims = [*await scene.store.claim([], scene.now, scene.now + SECOND, "w1", 10), *await claims_of(scene)]
    assert len(claims) == 5
    await scene.deliver(*claims[:3])
    await scene.kill(*claims[3:])
    bulk = await desk.step(bulk, 2)
    assert (bulk.state, bulk.progress, bulk.in_flight) == (BulkState.FINISHED, "3/5 succeeded, 2 failed", 0)
    assert bulk.finished_at == scene.now
    assert await scene.counts() == {_S.DELIVERED: 3, _S.DEAD: 2}, "what died again is not retried again"
    failures = await scene.store.page(scene.org_id, BulkFailures(bulk_id=bulk.bulk_id), None, 10)
    assert {one.delivery_id for one in failures.items} == {claim.delivery_id for claim in claims[3:]}


async def test_what_is_revived_is_not_forced_ahead_of_fresh_events_but_for_one_probe(scene: Scene, desk: Desk) -> None:
    ids = await dead_letters(scene, 5)
    await desk.step(await desk.begin(), 2)
    forced = [(await scene.delivery(one)).forced for one in ids]
    assert sorted(forced) == [False, False, False, False, True]


async def test_only_so_much_waits_for_an_endpoint_at_a_time(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 60)
    bulk = await desk.step(await desk.begin(), 10)
    assert bulk.in_flight == 25
    assert (await scene.counts())[_S.PENDING] == 25


async def test_a_paused_operation_takes_nothing_and_goes_on_when_it_is_resumed(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 5)
    bulk = await desk.begin()
    await desk.pause(scene.org_id, bulk.bulk_id, "ops")
    assert (await desk.step(bulk, 3)).taken == 0
    await desk.resume(scene.org_id, bulk.bulk_id, "ops")
    assert (await desk.step(bulk, 3)).taken == 5


async def test_what_a_cancelled_operation_has_taken_is_still_counted_and_the_rest_is_left(
    scene: Scene, desk: Desk
) -> None:
    await dead_letters(scene, 50)
    bulk = await desk.step(await desk.begin(), 3)
    assert bulk.taken == 25
    await desk.cancel(scene.org_id, bulk.bulk_id, "ops")
    await desk.step(bulk, 3)
    await scene.deliver(*await scene.store.claim([], scene.now, scene.now + SECOND, "w1", 10))
    await scene.deliver(*await claims_of(scene))
    bulk = await desk.step(bulk, 2)
    assert (bulk.state, bulk.succeeded, bulk.taken) == (BulkState.CANCELLED, 25, 25)
    assert bulk.finished_at is not None
    assert (await scene.counts())[_S.DEAD] == 25
    with pytest.raises(Conflict, match="cancelled"):
        await desk.resume(scene.org_id, bulk.bulk_id, "ops")


async def test_an_operation_that_is_cancelled_with_nothing_under_way_ends_too(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 3)
    bulk = await desk.begin()
    await desk.cancel(scene.org_id, bulk.bulk_id, "ops")
    for live in await scene.store.find(None, LiveBulks()):
        await desk.advance(live)
    bulk = await desk.seen(bulk)
    assert (bulk.state, bulk.taken, bulk.finished_at) == (BulkState.CANCELLED, 0, scene.now)
    assert await scene.store.find(None, LiveBulks()) == []


async def test_two_processes_that_take_the_same_step_retry_each_letter_once(
    scene: Scene, desk: Desk, other_store: Store
) -> None:
    ids = await dead_letters(scene, 120)
    bulk = await desk.begin()
    other = Desk(scene, other_store)
    for _ in range(9):
        scene.wait(1)
        read = await desk.seen(bulk)
        await asyncio.gather(desk.advance(read), other.advance(read))
        await work(scene)
    bulk = await desk.seen(bulk)
    assert (bulk.taken, bulk.refused) == (120, 0)
    for one in ids:
        history = await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=one))
        assert sum(line.note.startswith("retried") for line in history) == 1


async def test_a_step_that_lost_the_race_does_nothing(scene: Scene, desk: Desk) -> None:
    (letter,) = await dead_letters(scene, 1)
    bulk = await desk.begin()
    act = Action(kind=ActionKind.RETRY, org_id=scene.org_id, delivery_ids=(letter,), actor="ops", at=scene.now)
    assert await scene.store.step_bulk(bulk, bulk.version + 1, act) is None
    assert (await scene.delivery(letter)).state is _S.DEAD


async def test_a_rate_limit_spreads_an_operation_over_time(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 50)
    bulk = await desk.begin(rate_per_second=8)
    for _ in range(20):
        scene.wait(SECOND // 10)
        await desk.advance(await desk.seen(bulk))
    assert 10 <= (await desk.seen(bulk)).taken <= 18, "two seconds at eight a second"


async def test_a_rate_limit_holds_for_all_processes_together(scene: Scene, desk: Desk, other_store: Store) -> None:
    await dead_letters(scene, 50)
    bulk = await desk.begin(rate_per_second=8)
    desks = [desk, Desk(scene, other_store)]
    for number in range(40):
        scene.wait(SECOND // 20)
        await desks[number % 2].advance(await desk.seen(bulk))
    assert 10 <= (await desk.seen(bulk)).taken <= 18, "two seconds at eight a second"


async def test_what_a_limited_operation_revives_is_not_forced_either(scene: Scene, desk: Desk) -> None:
    ids = await dead_letters(scene, 50)
    bulk = await desk.step(await desk.begin(rate_per_second=40), 3)
    assert bulk.taken == 11, "a probe and a quarter of a second's worth"
    assert sum([(await scene.delivery(one)).forced for one in ids]) == 1


async def test_the_cause_of_a_canary_that_fails_is_left_as_it_is_and_the_others_go_on(scene: Scene, desk: Desk) -> None:
    bad = await dead_letters(scene, 10, "no such table")
    good = await dead_letters(scene, 10, "no such path")
    bulk = await desk.step(await desk.begin(canary=True))
    assert (bulk.taken, len(bulk.canaries or ())) == (2, 2)
    assert (await desk.step(bulk, 3)).taken == 2, "nothing else goes before the canaries are back"
    for claim in await scene.store.claim([], scene.now, scene.now + SECOND, "w1", 10):
        await (scene.deliver(claim) if claim.delivery_id in good else scene.kill(claim))
    bulk = await desk.step(bulk, 4)
    await scene.deliver(*await scene.store.claim([], scene.now, scene.now + SECOND, "w1", 10))
    await scene.deliver(*await claims_of(scene))
    bulk = await desk.step(bulk, 2)
    assert (bulk.state, bulk.succeeded, bulk.failed, bulk.taken) == (BulkState.FINISHED, 10, 1, 11)
    assert bulk.note == "1 of 2 causes were not retried because their canary failed"
    assert {(await scene.delivery(one)).state for one in bad} == {_S.DEAD}


async def test_when_no_canary_comes_back_nothing_else_is_tried(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 10)
    bulk = await desk.step(await desk.begin(canary=True))
    await scene.kill(*await scene.store.claim([], scene.now, scene.now + SECOND, "w1", 10))
    bulk = await desk.step(bulk, 3)
    assert (bulk.state, bulk.taken, bulk.failed) == (BulkState.FINISHED, 1, 1)


@pytest.mark.parametrize(
    ("kind", "state"), [(BulkKind.RESOLVE, _S.RESOLVED), (BulkKind.DELETE, _S.DEAD)], ids=["resolve", "delete"]
)
async def test_dead_letters_can_be_resolved_and_deleted_in_bulk(
    scene: Scene, desk: Desk, kind: BulkKind, state: DeliveryState
) -> None:
    ids = await dead_letters(scene, 130)
    bulk = await desk.step(await desk.begin(kind), 7)
    assert (bulk.state, bulk.succeeded, bulk.total) == (BulkState.FINISHED, 130, 130)
    assert {(await scene.delivery(one)).state for one in ids} == {state}
    assert (await scene.store.count(scene.org_id, DeadLetterFilter())).value == 0


async def test_the_retry_queue_is_retried_in_bulk_and_what_fails_again_is_not_taken_twice(
    scene: Scene, desk: Desk
) -> None:
    await scene.accept(4)
    await scene.fail(*await claims_of(scene))
    scene.wait(1)
    bulk = await desk.begin(selection=Selection(queue=RetryQueueFilter()))
    await desk.step(bulk)
    (probe,) = await scene.store.claim([], scene.now, scene.now + SECOND, "w1", 10)
    scene.wait(1)
    await scene.fail(probe)
    bulk = await desk.step(bulk, 3)
    assert bulk.taken == 4
    assert (await scene.delivery(probe.delivery_id)).due_at == scene.now - 3 + 60 * SECOND, "left to its own time"


async def test_the_retry_queue_is_skipped_in_bulk(scene: Scene, desk: Desk) -> None:
    await scene.accept(4)
    await scene.fail(*await claims_of(scene))
    bulk = await desk.step(await desk.begin(BulkKind.SKIP, Selection(queue=RetryQueueFilter())), 3)
    assert (bulk.state, bulk.succeeded) == (BulkState.FINISHED, 4)
    assert await scene.counts() == {_S.DEAD: 4}


async def test_a_selection_by_id_tells_which_could_not_be_acted_upon(scene: Scene, desk: Desk) -> None:
    letters = await dead_letters(scene, 2)
    delivered = await scene.in_state(_S.DELIVERED)
    chosen = Selection(delivery_ids=(*letters, delivered, new_id()))
    bulk = await desk.step(await desk.begin(BulkKind.RESOLVE, chosen), 3)
    assert (bulk.taken, bulk.refused, bulk.total) == (2, 2, 4)


async def test_what_has_left_the_list_that_it_was_chosen_in_is_refused(scene: Scene, desk: Desk) -> None:
    revived, dead = await dead_letters(scene, 2)
    await scene.act(ActionKind.RETRY, revived, forced=False, revive_at=scene.now + 600 * SECOND)
    chosen = Selection(delivery_ids=(revived, dead), states=DEAD_STATES)
    bulk = await desk.step(await desk.begin(selection=chosen), 2)
    assert (bulk.taken, bulk.refused) == (1, 1)
    assert not (await scene.delivery(revived)).forced, "it waits for its own time"
    await scene.act(ActionKind.SKIP, revived)
    chosen = Selection(delivery_ids=(revived,), states=WAITING_STATES)
    bulk = await desk.step(await desk.begin(selection=chosen), 2)
    assert (bulk.taken, bulk.refused, bulk.state) == (0, 1, BulkState.FINISHED)
    assert (await scene.delivery(revived)).state is _S.DEAD


async def test_a_preview_of_chosen_deliveries_leaves_out_what_has_left_their_list(scene: Scene, desk: Desk) -> None:
    letters = await dead_letters(scene, 4)
    await scene.act(ActionKind.RETRY, letters[0])
    await scene.act(ActionKind.DELETE, letters[1])
    dead = await desk.preview(scene.org_id, Selection(delivery_ids=tuple(letters), states=DEAD_STATES))
    waiting = await desk.preview(scene.org_id, Selection(delivery_ids=tuple(letters), states=WAITING_STATES))
    assert (dead.count.value, dead.by_endpoint) == (2, {scene.endpoint.endpoint_id: 2})
    assert waiting.count.value == 1


async def test_a_preview_says_whether_it_tells_of_all_endpoints(
    scene: Scene, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_module, "_PREVIEWED_MAX", 2)
    await dead_letters(scene, 2)
    assert (await desk.preview(scene.org_id, Selection(letters=DeadLetterFilter()))).whole
    await dead_letters(scene, 1)
    preview = await desk.preview(scene.org_id, Selection(letters=DeadLetterFilter()))
    assert (preview.whole, preview.count, sum(preview.by_endpoint.values())) == (False, Count(3, exact=True), 2)
    typed = await desk.preview(scene.org_id, Selection(letters=DeadLetterFilter(event_type="*")))
    assert (typed.whole, typed.count) == (False, Count(2, exact=False))


async def test_an_operation_that_is_begun_twice_with_one_id_is_one(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 2)
    wanted = new_id()
    begun = await asyncio.gather(*(desk.begin(BulkKind.RESOLVE, bulk_id=wanted) for _ in range(2)))
    later = await desk.begin(BulkKind.DELETE, bulk_id=wanted)
    assert {one.bulk_id for one in (*begun, later)} == {wanted}
    assert later.kind is BulkKind.RESOLVE
    assert len((await scene.store.page(scene.org_id, BulkFilter(), None, 10)).items) == 1
    lines = (await scene.store.page(scene.org_id, AuditFilter())).items
    assert [line.action for line in lines if line.action.endswith(".start")] == ["bulk.resolve.start"]


async def test_a_preview_counts_by_endpoint_and_changes_nothing(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 3)
    preview = await desk.preview(scene.org_id, Selection(letters=DeadLetterFilter()))
    assert (preview.count.value, preview.by_endpoint) == (3, {scene.endpoint.endpoint_id: 3})
    assert await scene.counts() == {_S.DEAD: 3}


async def test_every_step_and_every_turn_of_an_operation_is_audited(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 2)
    bulk = await desk.begin(BulkKind.RESOLVE, reason="wrong tenant")
    await desk.pause(scene.org_id, bulk.bulk_id, "ops")
    await desk.resume(scene.org_id, bulk.bulk_id, "ops")
    await desk.step(bulk, 2)
    lines = (await scene.store.page(scene.org_id, AuditFilter())).items
    expected = ["bulk.resolve.end", "resolve", "bulk.resolve.resume", "bulk.resolve.pause", "bulk.resolve.start"]
    assert [line.action for line in lines][:5] == expected


async def test_operations_are_listed_newest_first_and_belong_to_one_organization(scene: Scene, desk: Desk) -> None:
    begun = [await desk.begin() for _ in range(3)]
    first = await scene.store.page(scene.org_id, BulkFilter(), None, 2)
    rest = await scene.store.page(scene.org_id, BulkFilter(), first.next, 2)
    assert [one.bulk_id for one in (*first.items, *rest.items)] == [one.bulk_id for one in reversed(begun)]
    assert rest.next is None
    with pytest.raises(NotFound):
        await scene.store.get(Bulk, new_id(), begun[0].bulk_id)


async def test_an_impossible_rate_and_a_canary_without_dead_letters_are_refused(desk: Desk) -> None:
    with pytest.raises(InvalidInput, match="rate_per_second"):
        await desk.begin(rate_per_second=0.0)
    with pytest.raises(InvalidInput, match="canary"):
        await desk.begin(selection=Selection(queue=RetryQueueFilter()), canary=True)
