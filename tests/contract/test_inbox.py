"""R1.1, R8.3: events without an endpoint wait until a consumer acknowledges them. Consumers share them by leases."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import UUID

import pytest

from doorstep.clock import SECOND, Instant
from doorstep.errors import NotFound
from doorstep.model.claim import StatusChange
from doorstep.model.event import EventStatus, EventView
from doorstep.model.inbox import InboxAnswer, InboxAnswered, InboxResult
from doorstep.model.listing import AuditFilter, InboxFilter
from doorstep.stores.limits import INBOX_BYTES_MAX
from tests.contract.scene import Scene
from tests.support.builders import a_submission, an_org, new_id
from tests.support.shortcuts import acknowledge, put

RESULT = InboxResult
LEASE = 30 * SECOND


async def waiting(scene: Scene, count: int = 1, **fields: object) -> list[UUID]:
    """Accept events for the inbox, one microsecond apart, and return their ids."""
    made = [a_submission(scene.org_id, created_at=scene.now + n, **fields) for n in range(count)]
    await scene.submit(*made)
    scene.now += count
    return [one.event.event_id for one in made]


async def lease(
    scene: Scene, limit: int = 100, *types: str, holder: str = "a", span: Instant = LEASE
) -> list[EventView]:
    return await scene.store.lease_inbox(scene.org_id, types, limit, holder, scene.now, scene.now + span)


def ids_of(views: list[EventView]) -> list[UUID]:
    return [view.event.event_id for view in views]


async def answer(scene: Scene, *answers: InboxAnswer) -> InboxAnswered:
    return await scene.store.answer_inbox(scene.org_id, answers, "a", scene.now)


# -- acknowledgement ---------------------------------------------------------------------------------------


async def test_an_acknowledged_event_is_delivered(scene: Scene) -> None:
    (event_id,) = await waiting(scene)
    answered = await acknowledge(scene.store, scene.org_id, event_id, scene.now)
    received, delivered = EventStatus.RECEIVED, EventStatus.DELIVERED
    assert answered.changes == (StatusChange(event_id, scene.org_id, "request-1", received, delivered),)
    assert answered.results == {event_id: RESULT.ACKNOWLEDGED}
    assert await scene.status(event_id) is delivered


async def test_acknowledging_again_changes_nothing(scene: Scene) -> None:
    (event_id,) = await waiting(scene)
    await acknowledge(scene.store, scene.org_id, event_id, scene.now)
    again = await acknowledge(scene.store, scene.org_id, event_id, scene.now + 1)
    assert again == InboxAnswered({event_id: RESULT.ACKNOWLEDGED})


async def test_an_event_that_endpoints_take_can_neither_be_leased_nor_acknowledged(scene: Scene) -> None:
    (submission,) = await scene.accept()
    event_id = submission.event.event_id
    assert await lease(scene) == []
    for one in (InboxAnswer(event_id), InboxAnswer(event_id, visible_at=scene.now)):
        assert (await answer(scene, one)).results == {event_id: RESULT.NOT_IN_INBOX}
    assert await scene.status(event_id) is EventStatus.RECEIVED


async def test_unknown_events_and_those_of_another_organization_are_not_found(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    (event_id,) = await waiting(scene)
    for org_id, one in ((scene.org_id, new_id()), (other.org_id, event_id)):
        assert (await acknowledge(scene.store, org_id, one, scene.now)).results == {one: RESULT.NOT_FOUND}
    assert await scene.store.lease_inbox(other.org_id, (), 9, "a", scene.now, scene.now + LEASE) == []


async def test_an_unknown_organization_is_not_found(scene: Scene) -> None:
    stranger = new_id()
    with pytest.raises(NotFound):
        await scene.store.lease_inbox(stranger, (), 9, "a", scene.now, scene.now + LEASE)
    with pytest.raises(NotFound):
        await acknowledge(scene.store, stranger, new_id(), scene.now)


async def test_each_answer_of_a_batch_has_its_own_result(scene: Scene) -> None:
    first, second, third = await waiting(scene, 3)
    await lease(scene, 2)
    stranger = new_id()
    answered = await answer(
        scene, InboxAnswer(third), InboxAnswer(first, 1), InboxAnswer(stranger), InboxAnswer(second, 2)
    )
    assert answered.results == {
        third: RESULT.ACKNOWLEDGED,
        first: RESULT.ACKNOWLEDGED,
        stranger: RESULT.NOT_FOUND,
        second: RESULT.NEWER_LEASE,
    }
    assert [change.event_id for change in answered.changes] == [third, first]
    entries = (await scene.store.page(scene.org_id, AuditFilter())).items
    assert [(one.action, one.subjects, one.actor) for one in entries] == [
        ("event.acknowledge", (str(third), str(first)), "a")
    ]


# -- leases ------------------------------------------------------------------------------------------------


async def test_leased_events_are_hidden_from_other_leases_and_stay_received_and_listed(scene: Scene) -> None:
    ids = await waiting(scene, 3)
    leased = await lease(scene, 2)
    assert ids_of(leased) == ids[:2]
    assert [(one.receive_count, one.leased_by, one.visible_at) for one in leased] == [(1, "a", scene.now + LEASE)] * 2
    assert ids_of(await lease(scene, holder="b")) == ids[2:]
    assert ids_of(await lease(scene)) == []
    page = await scene.store.page(scene.org_id, InboxFilter())
    assert [(one.event.event_id, one.leased_by) for one in page.items] == list(zip(ids, "aab", strict=True))
    assert [await scene.status(one) for one in ids] == [EventStatus.RECEIVED] * 3


async def test_an_event_comes_back_exactly_when_its_lease_ends_and_is_counted(scene: Scene) -> None:
    (event_id,) = await waiting(scene)
    await lease(scene)
    scene.wait(LEASE - 1)
    assert await lease(scene, holder="b") == []
    scene.wait(1)
    (again,) = await lease(scene, holder="b")
    assert (again.event.event_id, again.receive_count, again.leased_by) == (event_id, 2, "b")


async def test_a_late_answer_is_refused_once_somebody_else_holds_the_event(scene: Scene) -> None:
    (event_id,) = await waiting(scene)
    await lease(scene)
    scene.wait(LEASE)
    await lease(scene, holder="b")
    for late in (InboxAnswer(event_id, 1), InboxAnswer(event_id, 1, scene.now)):
        assert (await answer(scene, late)).results == {event_id: RESULT.NEWER_LEASE}
    assert (await scene.store.get(EventView, scene.org_id, event_id)).leased_by == "b"
    assert (await answer(scene, InboxAnswer(event_id, 2))).results == {event_id: RESULT.ACKNOWLEDGED}
    assert (await answer(scene, InboxAnswer(event_id, 1))).results == {event_id: RESULT.NEWER_LEASE}


async def test_a_late_acknowledgement_counts_while_nobody_else_has_leased_the_event(scene: Scene) -> None:
    (event_id,) = await waiting(scene)
    await lease(scene)
    scene.wait(LEASE)
    assert (await answer(scene, InboxAnswer(event_id, 1))).results == {event_id: RESULT.ACKNOWLEDGED}


async def test_a_nack_brings_the_event_back_at_once_or_after_its_delay(scene: Scene) -> None:
    now_id, later_id = await waiting(scene, 2)
    await lease(scene)
    await answer(scene, InboxAnswer(now_id, 1, scene.now), InboxAnswer(later_id, 1, scene.now + SECOND))
    (back,) = await lease(scene)
    assert (back.event.event_id, back.receive_count) == (now_id, 2)
    later = await scene.store.get(EventView, scene.org_id, later_id)
    assert (later.leased_by, later.visible_at) == (None, scene.now + SECOND)
    scene.wait(SECOND)
    assert ids_of(await lease(scene)) == [later_id]


async def test_a_nack_after_the_acknowledgement_is_refused(scene: Scene) -> None:
    (event_id,) = await waiting(scene)
    await lease(scene)
    await answer(scene, InboxAnswer(event_id, 1))
    assert (await answer(scene, InboxAnswer(event_id, 1, scene.now))).results == {event_id: RESULT.ALREADY_ACKNOWLEDGED}
    assert await scene.status(event_id) is EventStatus.DELIVERED


async def test_acknowledged_and_deleted_events_are_never_leased(scene: Scene) -> None:
    done, deleted, left = await waiting(scene, 3)
    await acknowledge(scene.store, scene.org_id, done, scene.now)
    await scene.store.delete_event(scene.org_id, deleted, "ops", scene.now)
    assert ids_of(await lease(scene)) == [left]


async def test_events_come_in_the_order_in_which_they_became_available(scene: Scene) -> None:
    first, second = await waiting(scene, 2)
    await lease(scene, 1)
    (newer,) = await waiting(scene)
    await answer(scene, InboxAnswer(first, 1, scene.now))
    assert ids_of(await lease(scene)) == [second, newer, first]


async def test_an_event_is_not_leased_before_its_time_of_delivery(scene: Scene) -> None:
    (event_id,) = await waiting(scene, deliver_at=scene.now + SECOND)
    assert await lease(scene) == []
    scene.wait(SECOND)
    assert ids_of(await lease(scene)) == [event_id]


async def test_leases_of_certain_types_leave_the_others(scene: Scene) -> None:
    made = [(await waiting(scene, event_type=name))[0] for name in ("a", "b", "c", "a")]
    assert ids_of(await lease(scene, 2, "a", "b", "a", "missing")) == made[:2]
    assert ids_of(await lease(scene, 9, "b")) == []
    assert ids_of(await lease(scene, 9, "a")) == made[3:]
    assert ids_of(await lease(scene)) == made[2:3]


async def test_a_lease_ends_at_the_event_that_fills_it(scene: Scene) -> None:
    ids = await waiting(scene, 3, payload=b'"' + b"x" * (INBOX_BYTES_MAX // 2) + b'"')
    assert ids_of(await lease(scene)) == ids[:2]
    assert ids_of(await lease(scene)) == ids[2:]


async def test_concurrent_consumers_never_get_the_same_event(scene: Scene) -> None:
    ids = await waiting(scene, 200)
    views = await asyncio.gather(*(lease(scene, 10, holder=f"c{n}") for n in range(16)))
    taken = Counter(one for leased in views for one in ids_of(leased))
    while left := await lease(scene, 50):  # rows that another transaction had locked were skipped
        taken.update(ids_of(left))
    assert taken == Counter(ids), "each once"
