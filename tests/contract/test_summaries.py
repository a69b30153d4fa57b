"""R8.2: the status of many events in one call."""

from __future__ import annotations

from uuid import UUID

from doorstep.model.event import EventSummary, EventView
from tests.contract.scene import SOON, Scene
from tests.support.builders import a_submission, an_org, new_id
from tests.support.shortcuts import put


async def test_a_summary_says_of_each_event_what_the_event_itself_says(scene: Scene) -> None:
    ids = [await _retried(scene), await _failed(scene), await _waiting(scene), await _in_the_inbox(scene)]
    summaries = {summary.event_id: summary for summary in await scene.store.get_many(EventSummary, scene.org_id, ids)}
    assert list(summaries) and set(summaries) == set(ids)
    for event_id in ids:
        assert summaries[event_id] == _summary_of(await scene.store.get(EventView, scene.org_id, event_id))


async def test_an_event_asked_for_twice_is_given_once_and_one_that_is_not_there_is_left_out(scene: Scene) -> None:
    there = await _waiting(scene)
    found = await scene.store.get_many(EventSummary, scene.org_id, [there, new_id(), there])
    assert [summary.event_id for summary in found] == [there]
    assert await scene.store.get_many(EventSummary, scene.org_id, []) == []


async def test_the_events_of_another_organization_are_not_there(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    event_id = await _waiting(scene)
    assert await scene.store.get_many(EventSummary, other.org_id, [event_id]) == []
    assert await scene.store.get_many(EventSummary, new_id(), [event_id]) == []


async def test_a_deleted_event_is_not_there(scene: Scene) -> None:
    event_id = await _in_the_inbox(scene)
    await scene.store.delete_event(scene.org_id, event_id, "ops", scene.now)
    assert await scene.store.get_many(EventSummary, scene.org_id, [event_id]) == []


async def test_a_thousand_events_can_be_asked_for_at_once(scene: Scene) -> None:
    ids = [submission.event.event_id for submission in await scene.accept(1_000)]
    assert {summary.event_id for summary in await scene.store.get_many(EventSummary, scene.org_id, ids)} == set(ids)


def _summary_of(view: EventView) -> EventSummary:
    event = view.event
    return EventSummary(
        event_id=event.event_id,
        event_type=event.event_type,
        created_at=event.created_at,
        correlation_id=event.correlation_id,
        status=view.status,
        deliveries=view.deliveries,
        retry_attempts=view.retry_attempts,
        last_retry_at=view.last_retry_at,
        failed_at=view.failed_at,
        next_retry_at=view.next_retry_at,
    )


async def _waiting(scene: Scene) -> UUID:
    (submission,) = await scene.accept(due_at=scene.now + 10 * SOON)
    return submission.event.event_id


async def _in_the_inbox(scene: Scene) -> UUID:
    submission = a_submission(scene.org_id)
    await scene.submit(submission)
    return submission.event.event_id


async def _retried(scene: Scene) -> UUID:
    """An event that failed twice and is due again."""
    (submission,) = await scene.accept()
    for _ in range(2):
        await scene.fail(await scene.claim_one())
        scene.now += SOON
    return submission.event.event_id


async def _failed(scene: Scene) -> UUID:
    (submission,) = await scene.accept(due_at=scene.now - 1)
    (claim,) = [claim for claim in await scene.claim() if claim.event_id == submission.event.event_id]
    await scene.kill(claim)
    return submission.event.event_id
