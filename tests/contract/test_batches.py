"""R9.3: batches are found by status, whatever else is stored, and a resubmission is an audited action of its own."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.errors import InvalidInput
from doorstep.model.action import ActionKind
from doorstep.model.batch import STATES, BatchFilter, BatchStatus
from doorstep.model.delivery import DEAD_STATES, DeliveryState
from doorstep.model.event import Submission
from doorstep.model.listing import AuditFilter
from doorstep.stores.limits import EXAMINED_MAX
from tests.contract.scene import Scene
from tests.contract.wanted import all_of, pages_of
from tests.support.builders import a_submission, an_org
from tests.support.shortcuts import put

EVERY = BatchFilter()


def as_batch(submission: Submission) -> Submission:
    (delivery,) = submission.deliveries
    return replace(submission, deliveries=(replace(delivery, batch=True),))


async def submit(scene: Scene, count: int = 1, **event: object) -> list[UUID]:
    """Submit new batches and return their delivery ids."""
    made = [as_batch(a_submission(scene.org_id, [scene.endpoint.endpoint_id], **event)) for _ in range(count)]  # type: ignore[arg-type]
    await scene.submit(*made)
    return [one.deliveries[0].delivery_id for one in made]


async def listed(scene: Scene, wanted: BatchFilter = EVERY) -> list[UUID]:
    return [one.delivery_id for one in await all_of(scene.store.page, scene.org_id, wanted, limit=2)]


async def test_batches_are_listed_newest_first_and_nothing_else_is(scene: Scene) -> None:
    first = await submit(scene)
    await scene.accept(3)
    others = await submit(scene, 4)
    assert await listed(scene) == [*reversed(others), *first]


@pytest.mark.parametrize("state", DeliveryState)
async def test_each_state_is_found_under_its_status_and_under_no_other(scene: Scene, state: DeliveryState) -> None:
    (batch,) = await submit(scene)
    await getattr(scene, f"_to_{state}")(batch)
    found = {status for status in BatchStatus if await listed(scene, BatchFilter(status=status))}
    assert found == {status for status, states in STATES.items() if state in states}


async def test_several_states_of_one_status_come_in_one_order(scene: Scene) -> None:
    batches = await submit(scene, 6)
    for batch in batches[::2]:
        await scene.act(ActionKind.SKIP, batch)
    for batch in batches[1::2]:
        await scene.act(ActionKind.CANCEL, batch)
    assert await listed(scene, BatchFilter(status=BatchStatus.FAILED)) == batches[::-1]


async def test_an_event_type_can_be_asked_for_by_name_or_by_its_beginning(scene: Scene) -> None:
    (sms,) = await submit(scene, event_type="sms.batch")
    (mms,) = await submit(scene, event_type="mms.batch")
    assert await listed(scene, BatchFilter(event_type="sms.batch")) == [sms]
    assert await listed(scene, BatchFilter(event_type="mms.*")) == [mms]


async def test_the_batch_delivery_says_that_it_is_one_and_others_do_not(scene: Scene) -> None:
    (batch,) = await submit(scene)
    (ordinary,) = await scene.accept()
    assert (await scene.delivery(batch)).batch is True
    assert (await scene.delivery(ordinary.deliveries[0].delivery_id)).batch is False


async def test_a_call_that_is_repeated_after_a_lost_answer_adds_no_batch(scene: Scene) -> None:
    made = as_batch(a_submission(scene.org_id, [scene.endpoint.endpoint_id]))
    await scene.submit(made)
    await scene.submit(made)
    assert len(await listed(scene)) == 1


async def test_a_deleted_dead_letter_and_a_deleted_event_are_in_no_list(scene: Scene) -> None:
    letter, confirmed = await submit(scene, 2)
    await scene._to_delivered(confirmed)
    await scene.act(ActionKind.SKIP, letter)
    assert len(await listed(scene)) == 2
    await scene.act(ActionKind.DELETE, letter)
    event_id = (await scene.delivery(confirmed)).event_id
    await scene.store.delete_event(scene.org_id, event_id, "ops", scene.now)
    assert await listed(scene) == []


async def test_another_organization_has_none_of_them(scene: Scene) -> None:
    await submit(scene)
    other = an_org()
    await put(scene.store, other)
    assert await all_of(scene.store.page, other.org_id, EVERY, limit=2) == []


async def test_a_cursor_of_another_list_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidInput):
        await scene.store.page(scene.org_id, EVERY, "nonsense", 2)


async def test_a_page_looks_at_so_many_batches_and_no_more(sql_scene: Scene) -> None:
    scene = sql_scene
    await submit(scene, 1, event_type="rare.batch")
    for _ in range(0, EXAMINED_MAX, 500):
        await submit(scene, 500)
    rare = BatchFilter(event_type="rare.batch")
    pages = await pages_of(scene.store.page, scene.org_id, rare, limit=50)
    assert [len(page) for page in pages] == [0, 1]


# -- resubmission ------------------------------------------------------------------------------------------


async def test_what_waits_is_left_alone_by_an_act_on_dead_letters_only(scene: Scene) -> None:
    waiting, dead = await submit(scene, 2)
    await scene.act(ActionKind.SKIP, dead)
    result = await scene.act(ActionKind.RETRY, waiting, dead, only_in=DEAD_STATES, revive_at=scene.now)
    assert result.done == (dead,)
    assert result.refused == {waiting: DeliveryState.PENDING}
    assert (await scene.delivery(dead)).due_at == scene.now
    assert not (await scene.delivery(waiting)).forced


async def test_an_act_is_audited_under_the_name_and_the_subject_that_it_was_given(scene: Scene) -> None:
    (dead,) = await submit(scene)
    await scene.act(ActionKind.SKIP, dead)
    await scene.act(ActionKind.RETRY, dead, reason="again", audited_as=("batch.resubmit", "batch-1"))
    (line,) = (await scene.store.page(scene.org_id, AuditFilter(action="batch.resubmit"))).items
    assert (line.subjects, line.result, line.reason) == (("batch-1",), "1 done, 0 refused", "again")
