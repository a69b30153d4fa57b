"""R7.3: every bulk operation ends, counts each delivery once, and is cleaned away after its retention time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from string import ascii_lowercase
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.errors import InvalidInput, Overloaded
from doorstep.model.action import Action, ActionKind, AuditEntry
from doorstep.model.bulk import BulkFilter, BulkKind, BulkResults, BulkState, LiveBulks, Selection
from doorstep.model.claim import Claim, Quota, Settlement
from doorstep.model.delivery import cause_of
from doorstep.model.endpoint import EndpointState
from doorstep.model.listing import AuditFilter, Count, DeadLetterFilter, EventFilter, RetryQueueFilter
from doorstep.operations import bulk as path_bulk
from doorstep.stores.store import Delete, Put, Retention, Store
from tests.contract.desk import Desk, claims_of, dead_letters
from tests.contract.scene import SOON, Scene
from tests.support.builders import an_org, new_id, refusal
from tests.support.shortcuts import put


async def forced(scene: Scene) -> list[Claim]:
    return await scene.store.claim([], scene.now, scene.now + SECOND, "w1", 300)


# -- each delivery once ------------------------------------------------------------------------------------


async def test_what_is_overdue_behind_a_circuit_is_retried_once_and_the_operation_ends(
    scene: Scene, desk: Desk
) -> None:
    await scene.accept(4)
    await scene.fail(*await claims_of(scene))
    scene.wait(2 * SOON)
    bulk = await desk.step(await desk.begin(selection=Selection(queue=RetryQueueFilter())), 5)
    assert (bulk.taken, bulk.all_taken) == (4, True)
    await scene.deliver(*await forced(scene), *await claims_of(scene))
    bulk = await desk.step(bulk, 2)
    assert (bulk.state, bulk.progress) == (BulkState.FINISHED, "4/4 succeeded, 0 failed")


async def test_a_delivery_that_is_named_twice_counts_once(scene: Scene, desk: Desk) -> None:
    one, other = await dead_letters(scene, 2)
    bulk = await desk.step(await desk.begin(selection=Selection(delivery_ids=(one, other, one))), 3)
    assert (bulk.total, bulk.taken, bulk.refused) == (2, 2, 0)
    await scene.deliver(*await forced(scene), *await claims_of(scene))
    assert (await desk.step(bulk, 2)).progress == "2/2 succeeded, 0 failed"


async def test_a_step_that_retries_a_delivery_again_does_not_count_it_again(scene: Scene, desk: Desk) -> None:
    letters = await dead_letters(scene, 1)
    bulk = await desk.step(await desk.begin())
    again = Action(kind=ActionKind.RETRY, org_id=scene.org_id, delivery_ids=tuple(letters), actor="ops", at=scene.now)
    step = await scene.store.step_bulk(bulk, bulk.version, again)
    assert step is not None
    assert step.bulk.taken == 1


# -- waiting -----------------------------------------------------------------------------------------------


async def test_a_cancelled_operation_ends_at_once_although_what_it_took_is_held(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 3)
    bulk = await desk.step(await desk.begin(), 3)
    assert bulk.in_flight == 3
    await desk.cancel(scene.org_id, bulk.bulk_id, "ops")
    bulk = await desk.step(bulk)
    assert (bulk.state, bulk.finished_at, bulk.in_flight) == (BulkState.CANCELLED, scene.now, 3)
    assert bulk.note == "cancelled by ops; 3 still had no result"
    assert await scene.store.find(None, LiveBulks()) == []


async def test_an_operation_that_waits_for_results_writes_nothing_until_there_is_one(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 3)
    bulk = await desk.step(await desk.begin(), 3)
    assert (bulk.all_taken, bulk.in_flight) == (True, 3)
    waiting = await desk.step(bulk, 5)
    assert waiting.version == bulk.version
    assert await scene.store.count(scene.org_id, BulkResults(bulk_id=bulk.bulk_id), 1) == Count(0, exact=True)
    await scene.deliver(*await forced(scene))
    assert (await scene.store.count(scene.org_id, BulkResults(bulk_id=bulk.bulk_id), 1)).value == 1
    assert (await desk.step(bulk, 5)).version == bulk.version + 1
    await desk.pause(scene.org_id, bulk.bulk_id, "ops")
    paused = await desk.seen(bulk)
    assert (await desk.step(bulk, 5)).version == paused.version


async def test_cancelled_operations_leave_room_for_others_before_their_end_is_written(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 1)
    for _ in range(100):
        await desk.cancel(scene.org_id, (await desk.begin()).bulk_id, "ops")
    assert (await desk.begin()).state is BulkState.RUNNING


async def test_one_that_is_under_way_still_is_resumed_although_there_are_a_hundred(scene: Scene, desk: Desk) -> None:
    await dead_letters(scene, 2)
    bulk = await desk.step(await desk.begin())
    await desk.pause(scene.org_id, bulk.bulk_id, "ops")
    for _ in range(99):
        await desk.begin()
    assert (await desk.resume(scene.org_id, bulk.bulk_id, "ops")).state is BulkState.RUNNING


# -- canaries ----------------------------------------------------------------------------------------------


async def many_causes(scene: Scene, count: int) -> None:
    """Create dead letters of the scene's endpoint, each with a different cause."""
    await scene.accept(count)
    words = ("".join(letters) for letters in product(ascii_lowercase, repeat=3))
    died = [replace(refusal(scene.now), reason=next(words)) for _ in range(count)]
    await scene.settle(*map(Settlement.dead, await scene.claim(count), died))


def last_reason(endpoint_id: UUID, code: str) -> str:
    """A reason whose cause sorts after nearly all other causes."""
    words = ("".join(letters) for letters in product(ascii_lowercase, repeat=4))
    return max((next(words) for _ in range(5_000)), key=lambda word: cause_of(endpoint_id, code, word))


async def test_the_only_cause_of_an_endpoint_has_its_canary_however_many_causes_the_others_have(
    scene: Scene, desk: Desk
) -> None:
    await many_causes(scene, 300)
    other = await scene.add_endpoint()
    await scene.accept(2, [other])
    claims = await scene.store.claim([Quota(other.endpoint_id, 9)], scene.now, scene.now + SECOND, "w1")
    died = refusal(scene.now)
    died = replace(died, reason=last_reason(other.endpoint_id, died.code or ""))
    await scene.settle(*(Settlement.dead(claim, died) for claim in claims))
    chosen = Selection(letters=DeadLetterFilter(endpoint_id=other.endpoint_id))
    bulk = await desk.step(await desk.begin(selection=chosen, canary=True))
    assert (bulk.taken, bulk.all_taken) == (1, False)


async def test_a_canary_that_was_delivered_and_cleaned_away_meanwhile_counts_as_delivered(
    scene: Scene, desk: Desk
) -> None:
    await dead_letters(scene, 3)
    bulk = await desk.step(await desk.begin(canary=True))
    await scene.deliver(*await forced(scene))
    scene.wait(1)
    await scene.store.clean(Retention(settled_before=scene.now), scene.now, 10)
    assert (await desk.step(bulk, 3)).taken == 3


# -- replays -----------------------------------------------------------------------------------------------


async def test_a_replay_whose_endpoint_is_deleted_is_paused_and_says_why(scene: Scene, desk: Desk) -> None:
    await scene.accept(2)
    scene.wait(1)
    selection = Selection(events=EventFilter())
    bulk = await desk.begin(BulkKind.REPLAY, selection, endpoint_id=scene.endpoint.endpoint_id)
    await scene.change_endpoint(state=EndpointState.DELETED)
    bulk = await desk.step(bulk)
    assert (bulk.state, bulk.taken) == (BulkState.PAUSED, 0)
    assert str(scene.endpoint.endpoint_id) in bulk.note
    assert await scene.store.find(None, LiveBulks()) == []


# -- cleaning ----------------------------------------------------------------------------------------------


async def finished(scene: Scene, desk: Desk, letters: int) -> UUID:
    """Run a bulk retry of `letters` dead letters to its end."""
    await dead_letters(scene, letters)
    bulk = await desk.step(await desk.begin(), 3)
    await scene.deliver(*await forced(scene), *await claims_of(scene))
    bulk = await desk.step(bulk, 2)
    assert bulk.finished_at == scene.now
    scene.wait(1)
    return bulk.bulk_id


async def test_an_operation_that_ended_goes_when_nothing_that_it_remembers_is_left(scene: Scene, desk: Desk) -> None:
    await finished(scene, desk, 5)
    before = scene.now
    young = await finished(scene, desk, 2)
    running = await desk.begin()
    cleaned = [await scene.store.clean(Retention(settled_before=before), scene.now, 2) for _ in range(4)]
    assert [one.bulk_items for one in cleaned] == [2, 2, 1, 0]
    assert [one.bulks for one in cleaned] == [0, 0, 1, 0]
    left = {one.bulk_id for one in (await scene.store.page(scene.org_id, BulkFilter(), None, 10)).items}
    assert left == {young, running.bulk_id}


async def test_a_page_of_operations_goes_on_where_it_ended_although_older_ones_are_cleaned_away(
    scene: Scene, desk: Desk
) -> None:
    await finished(scene, desk, 1)
    before = scene.now
    begun = [(await desk.begin()).bulk_id for _ in range(3)]
    first = await scene.store.page(scene.org_id, BulkFilter(), None, 1)
    await scene.store.clean(Retention(settled_before=before), scene.now, 10)
    rest = await scene.store.page(scene.org_id, BulkFilter(), first.next, 10)
    assert [one.bulk_id for one in (*first.items, *rest.items)] == begun[::-1]


# -- audit -------------------------------------------------------------------------------------------------


class Unwritten:
    """A store that refuses an audit entry on its own: each entry must come with the change that it describes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def write(self, changes: Sequence[Put | Delete], entry: AuditEntry | None = None) -> bool:
        assert changes, "a process that dies here would have done something unseen"
        return await self._store.write(changes, entry)


async def test_an_operation_is_started_steered_and_ended_together_with_its_audit_line(scene: Scene) -> None:
    desk = Desk(scene, cast(Store, Unwritten(scene.store)))
    await dead_letters(scene, 1)
    bulk = await desk.begin(BulkKind.RESOLVE)
    await desk.pause(scene.org_id, bulk.bulk_id, "ops")
    await desk.resume(scene.org_id, bulk.bulk_id, "ops")
    await desk.step(bulk, 2)
    lines = (await scene.store.page(scene.org_id, AuditFilter())).items
    assert [line.action.removeprefix("bulk.resolve.") for line in lines] == [
        "end",
        "resolve",
        "resume",
        "pause",
        "start",
    ]
    assert lines[0].result == "finished: 1/1 succeeded, 0 failed"


# -- bounds ------------------------------------------------------------------------------------------------


async def test_an_organization_that_has_a_hundred_operations_under_way_must_wait_or_cancel_one(
    scene: Scene, desk: Desk
) -> None:
    await dead_letters(scene, 1)
    first, *_ = [await desk.begin() for _ in range(100)]
    with pytest.raises(Overloaded, match="at most 100 live bulk operations.*cancel one"):
        await desk.begin()
    await desk.cancel(scene.org_id, first.bulk_id, "ops")
    await desk.step(first)
    assert (await desk.begin()).state is BulkState.RUNNING


async def test_the_operations_of_others_do_not_count(scene: Scene, desk: Desk) -> None:
    other = an_org()
    await put(scene.store, other)
    for _ in range(100):
        await desk.begin()
    assert await desk.start(BulkKind.RETRY, other.org_id, Selection(letters=DeadLetterFilter()), "ops")


async def test_a_total_beyond_what_is_counted_is_a_floor_and_says_so(
    scene: Scene, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_bulk, "_COUNTED_MAX", 3)
    await dead_letters(scene, 5)
    bulk = await desk.begin()
    assert (bulk.total, bulk.total_exact) == (3, False)
    bulk = await desk.step(bulk, 3)
    assert (bulk.taken, bulk.all_taken) == (5, True)


async def test_more_deliveries_than_can_be_under_way_at_once_cannot_be_named_one_by_one(desk: Desk) -> None:
    with pytest.raises(InvalidInput, match="1,000.*use a filter"):
        await desk.begin(selection=Selection(delivery_ids=tuple(new_id() for _ in range(1_001))))
