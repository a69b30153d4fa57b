"""R8.1: a deleted event leaves every list and loses its sender's data; its history and audit entries stay."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from doorstep.clock import DAY
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import ActionKind, AuditEntry
from doorstep.model.claim import Moved
from doorstep.model.delivery import DeliveryPayload, DeliveryState
from doorstep.model.event import EventStatus, EventView
from doorstep.model.inbox import InboxResult
from doorstep.model.listing import (
    AuditFilter,
    CauseGroups,
    DeadLetterFilter,
    DeliveryAttempts,
    DeliveryHistory,
    EventFilter,
    InboxFilter,
    Page,
    RetryQueueFilter,
)
from doorstep.stores.store import Retention, Store
from tests.contract.places import SqlPlace
from tests.contract.scene import Scene
from tests.support.builders import a_submission, an_org, new_id
from tests.support.shortcuts import acknowledge, put

SECRET = b'"' + b"the sender's own words " * 100 + b'"'


async def delete(scene: Scene, event_id: UUID) -> Moved:
    return await scene.store.delete_event(scene.org_id, event_id, "ops", scene.now)


async def with_every_ending(scene: Scene) -> tuple[UUID, dict[str, UUID]]:
    """Create an event with four deliveries: waiting, waiting for a retry, dead, and delivered."""
    endpoints = [scene.endpoint, *[await scene.add_endpoint() for _ in range(3)]]
    made = a_submission(scene.org_id, [one.endpoint_id for one in endpoints], due_at=scene.now, payload=SECRET)
    await scene.submit(made)
    for name, endpoint in zip(("delivered", "dead", "retrying"), endpoints, strict=False):
        scene.endpoint = endpoint
        claim = await scene.claim_one()
        await {"delivered": scene.deliver, "dead": scene.kill, "retrying": scene.fail}[name](claim)
    names = ("delivered", "dead", "retrying", "waiting")
    return made.event.event_id, dict(zip(names, (owed.delivery_id for owed in made.deliveries), strict=True))


async def test_what_waits_is_cancelled_dead_letters_are_deleted_and_the_rest_stays(scene: Scene) -> None:
    event_id, ids = await with_every_ending(scene)
    scene.wait(1)
    moved = await delete(scene, event_id)

    left = {name: await scene.delivery(uid) for name, uid in ids.items()}
    states = {name: (one.state, one.deleted) for name, one in left.items()}
    assert states == {
        "delivered": (DeliveryState.DELIVERED, False),
        "dead": (DeliveryState.DEAD, True),
        "retrying": (DeliveryState.CANCELLED, False),
        "waiting": (DeliveryState.CANCELLED, False),
    }
    assert {move.delivery_id for move in moved.moves} == {ids["retrying"], ids["waiting"]}
    assert [(one.event_id, one.old_status, one.new_status) for one in moved.changes] == [
        (event_id, EventStatus.QUEUED, EventStatus.FAILED)
    ]
    assert await scene.claim() == []


async def test_it_is_unknown_from_then_on_and_in_no_list(scene: Scene) -> None:
    event_id, _ = await with_every_ending(scene)
    await delete(scene, event_id)
    store, org_id = scene.store, scene.org_id
    for call in (
        store.get(EventView, org_id, event_id),
        delete(scene, event_id),
    ):
        with pytest.raises(NotFound):
            await call
    assert (await acknowledge(store, org_id, event_id, scene.now)).results == {event_id: InboxResult.NOT_FOUND}
    pages: list[Page[Any]] = [
        await store.page(org_id, EventFilter()),
        await store.page(org_id, EventFilter(status=EventStatus.FAILED)),
        await store.page(org_id, InboxFilter(status=EventStatus.RECEIVED)),
        await store.page(org_id, InboxFilter(status=EventStatus.FAILED)),
        await store.page(org_id, RetryQueueFilter()),
        await store.page(org_id, DeadLetterFilter()),
        await store.page(org_id, CauseGroups(filter=DeadLetterFilter())),
    ]
    assert [page.items for page in pages] == [()] * len(pages)
    assert (await store.count(org_id, InboxFilter(status=EventStatus.FAILED))).value == 0


async def test_attempts_and_history_of_its_deliveries_can_still_be_read(scene: Scene) -> None:
    event_id, ids = await with_every_ending(scene)
    before = [len(await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=uid))) for uid in ids.values()]
    await delete(scene, event_id)
    assert (
        [len(await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=uid))) for uid in ids.values()]
        == before
        == [1, 1, 1, 0]
    )
    newest = (await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=ids["waiting"])))[-1]
    assert (newest.old_state, newest.new_state, newest.note) == ("pending", "cancelled", "event deleted by ops")


async def test_nothing_that_the_sender_or_an_editor_gave_is_left_in_the_database(sql_place: SqlPlace) -> None:
    store = await sql_place.open()
    scene = await Scene(store).prepare()
    event_id, ids = await with_every_ending(scene)
    await scene.act(ActionKind.RETRY, ids["dead"], payload=SECRET)
    await delete(scene, event_id)
    for table in ("doorstep_events", "doorstep_deliveries", "doorstep_payloads"):
        rows = await sql_place.execute(f"SELECT payload FROM {table} WHERE payload IS NOT NULL")
        assert [row for row in rows if row[0]] == [], table
    for uid in ids.values():
        with pytest.raises(NotFound):
            await store.get(DeliveryPayload, scene.org_id, uid)
        assert not (await scene.delivery(uid)).edited
    await store.close()


async def test_while_a_delivery_is_in_progress_it_cannot_be_deleted_and_nothing_changes(scene: Scene) -> None:
    (made,) = await scene.accept()
    claim = await scene.claim_one()
    with pytest.raises(Conflict):
        await delete(scene, made.event.event_id)
    assert (await scene.delivery(claim.delivery_id)).state is DeliveryState.IN_PROGRESS
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == ()
    await scene.deliver(claim)
    assert await delete(scene, made.event.event_id) == Moved()


@pytest.mark.parametrize("acknowledged", [True, False])
async def test_an_event_of_the_inbox_leaves_it_and_is_cleaned_away_in_time(scene: Scene, acknowledged: bool) -> None:
    made = a_submission(scene.org_id)
    await scene.submit(made)
    if acknowledged:
        await acknowledge(scene.store, scene.org_id, made.event.event_id, scene.now)
    assert await delete(scene, made.event.event_id) == Moved()
    assert (await scene.store.page(scene.org_id, InboxFilter(status=EventStatus.RECEIVED))).items == ()
    scene.wait(DAY)
    assert (await scene.store.clean(Retention(settled_before=scene.now), scene.now, 10)).events == 1


async def test_a_deleted_event_is_cleaned_away_with_its_deliveries(scene: Scene) -> None:
    event_id, ids = await with_every_ending(scene)
    await delete(scene, event_id)
    scene.wait(DAY)
    cleaned = await scene.store.clean(Retention(settled_before=scene.now), scene.now, 10)
    assert (cleaned.deliveries, cleaned.events) == (4, 1)
    with pytest.raises(NotFound):
        await scene.delivery(ids["dead"])


async def test_the_deletion_is_audited_once_with_what_became_of_its_deliveries(scene: Scene) -> None:
    event_id, _ = await with_every_ending(scene)
    await scene.store.delete_event(scene.org_id, event_id, "ops", scene.now, "asked by the customer")
    (line,) = (await scene.store.page(scene.org_id, AuditFilter())).items
    result = "2 cancelled, 1 dead letters deleted"
    assert line == AuditEntry(
        at=scene.now,
        org_id=scene.org_id,
        actor="ops",
        action="event.delete",
        subjects=(str(event_id),),
        result=result,
        reason="asked by the customer",
    )


async def test_unknown_and_foreign_events_are_not_found(scene: Scene) -> None:
    (made,) = await scene.accept()
    other = an_org()
    await put(scene.store, other)
    for org_id, event_id in (
        (scene.org_id, new_id()),
        (other.org_id, made.event.event_id),
        (new_id(), made.event.event_id),
    ):
        with pytest.raises(NotFound):
            await scene.store.delete_event(org_id, event_id, "ops", scene.now)
    assert await scene.status(made.event.event_id) is EventStatus.RECEIVED


async def test_of_many_who_delete_an_event_at_once_one_does(scene: Scene, other_store: Store) -> None:
    event_id, _ = await with_every_ending(scene)
    calls = [store.delete_event(scene.org_id, event_id, "ops", scene.now) for store in (scene.store, other_store) * 4]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["Moved", *["NotFound"] * 7]
    assert len((await scene.store.page(scene.org_id, AuditFilter())).items) == 1


async def test_what_is_claimed_while_its_event_is_deleted_is_either_tried_or_cancelled(
    scene: Scene, other_store: Store
) -> None:
    for _ in range(10):
        (made,) = await scene.accept()
        uid = made.deliveries[0].delivery_id
        claims, deleted = await asyncio.gather(
            scene.claim(),
            other_store.delete_event(scene.org_id, made.event.event_id, "ops", scene.now),
            return_exceptions=True,
        )
        assert isinstance(claims, list)
        assert isinstance(deleted, Conflict) is bool(claims)
        expected = DeliveryState.IN_PROGRESS if claims else DeliveryState.CANCELLED
        assert (await scene.delivery(uid)).state is expected
