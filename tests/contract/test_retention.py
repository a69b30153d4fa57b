"""R4.4, promise 9: old settled rows are removed in small batches; dead letters are kept and archived."""

from __future__ import annotations

import pytest

from doorstep.clock import DAY
from doorstep.errors import NotFound
from doorstep.model.action import ActionKind
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Circuit, CircuitState
from doorstep.model.event import EventStatus, EventView, Verdict
from doorstep.model.listing import AuditFilter, CircuitHistory, DeliveryAttempts, DeliveryHistory, EventDeliveries
from doorstep.stores.store import Cleaned, Retention
from tests.contract.places import Place
from tests.contract.scene import SOON, Scene
from tests.support.builders import a_submission
from tests.support.shortcuts import acknowledge

REMOVED = {DeliveryState.DELIVERED, DeliveryState.RESOLVED, DeliveryState.CANCELLED}


async def test_only_settled_deliveries_are_removed_and_dead_letters_stay(scene: Scene) -> None:
    by_state = {state: await scene.in_state(state) for state in DeliveryState if state is not DeliveryState.ARCHIVED}
    await scene.store.clean(Retention(settled_before=scene.now + 1), scene.now, 100)
    for state, delivery_id in by_state.items():
        if state in REMOVED:
            with pytest.raises(NotFound):
                await scene.delivery(delivery_id)
        else:
            assert (await scene.delivery(delivery_id)).state is state


async def test_archived_dead_letters_are_kept(scene: Scene) -> None:
    delivery_id = await scene.in_state(DeliveryState.ARCHIVED)
    assert (
        await scene.store.clean(Retention(settled_before=scene.now + 99 * DAY), scene.now + 99 * DAY, 100) == Cleaned()
    )
    assert (await scene.delivery(delivery_id)).state is DeliveryState.ARCHIVED


@pytest.mark.parametrize("state", [DeliveryState.DEAD, DeliveryState.ARCHIVED])
async def test_dead_letters_can_be_removed_with_their_attempts_history_event_and_count(
    scene: Scene, state: DeliveryState
) -> None:
    delivery_id = await scene.in_state(state)
    delivery = await scene.delivery(delivery_id)
    attempts = await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=delivery_id))
    assert delivery.settled_at is not None
    for too_early in (0, delivery.settled_at):
        assert await scene.store.clean(Retention(dead_before=too_early), scene.now, 100) == Cleaned()
    cleaned = await scene.store.clean(Retention(dead_before=delivery.settled_at + 1), scene.now, 100)
    assert cleaned == Cleaned(dead_letters=1, attempts=len(attempts), events=1)
    assert await scene.counts() == {}
    for reading in (
        scene.store.find(scene.org_id, DeliveryHistory(delivery_id=delivery_id)),
        scene.store.get(EventView, scene.org_id, delivery.event_id),
    ):
        with pytest.raises(NotFound):
            await reading
    figures = (await scene.store.figures(scene.org_id, [None, scene.endpoint.endpoint_id])).values()
    assert all(one.now_dead == one.now_archived == one.now_failed == 0 and one.dead == 1 for one in figures)


async def test_only_dead_letters_are_removed_as_dead_letters_and_few_at_a_time(scene: Scene) -> None:
    by_state = {state: await scene.in_state(state) for state in DeliveryState}
    extra = await scene.in_state(DeliveryState.DEAD)
    deleted = await scene.in_state(DeliveryState.DEAD)
    await scene.act(ActionKind.DELETE, deleted)
    retention, removed = Retention(dead_before=scene.now + 1), list[int]()
    while (cleaned := await scene.store.clean(retention, scene.now, 2)).total:
        removed.append(cleaned.dead_letters)
    assert removed == [2, 1]
    gone = {by_state.pop(DeliveryState.DEAD), by_state.pop(DeliveryState.ARCHIVED), extra}
    for delivery_id in gone:
        with pytest.raises(NotFound):
            await scene.delivery(delivery_id)
    for state, delivery_id in by_state.items():
        assert (await scene.delivery(delivery_id)).state is state
    assert (await scene.delivery(deleted)).deleted


async def test_an_event_stays_when_its_dead_letter_is_removed_beside_a_waiting_delivery(scene: Scene) -> None:
    other = await scene.add_endpoint()
    (submission,) = await scene.accept(endpoints=[scene.endpoint, other])
    await scene.kill(await scene.claim_one())
    assert (await scene.store.clean(Retention(dead_before=scene.now + 1), scene.now, 100)).events == 0
    assert await scene.status(submission.event.event_id) is EventStatus.QUEUED
    scene.endpoint = other
    await scene.deliver(await scene.claim_one())
    assert await scene.status(submission.event.event_id) is EventStatus.FAILED, "it did not reach every endpoint"


async def test_cleaning_removes_the_attempts_history_and_event_and_counts_them(scene: Scene) -> None:
    (submission,) = await scene.accept()
    await scene.fail(await scene.claim_one())
    scene.wait(SOON)
    claim = await scene.claim_one()
    await scene.deliver(claim)

    assert await scene.store.clean(Retention(settled_before=scene.now), scene.now, 100) == Cleaned(), (
        "settled at, not before"
    )
    assert await scene.store.clean(Retention(settled_before=scene.now + 1), scene.now, 100) == Cleaned(
        deliveries=1, attempts=2, events=1
    )

    assert await scene.counts() == {}
    assert await scene.store.find(scene.org_id, EventDeliveries(event_id=submission.event.event_id)) == []
    for reading in (
        scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id)),
        scene.store.find(scene.org_id, DeliveryHistory(delivery_id=claim.delivery_id)),
        scene.store.get(Delivery, scene.org_id, claim.delivery_id),
    ):
        with pytest.raises(NotFound):
            await reading
    with pytest.raises(NotFound):
        await scene.store.get(EventView, scene.org_id, submission.event.event_id)


async def test_an_event_stays_while_any_of_its_deliveries_is_kept(scene: Scene) -> None:
    other = await scene.add_endpoint()
    (submission,) = await scene.accept(endpoints=[scene.endpoint, other])
    await scene.deliver(await scene.claim_one())
    assert await scene.store.clean(Retention(settled_before=scene.now + 1), scene.now, 100) == Cleaned(
        deliveries=1, attempts=1
    )
    view = await scene.store.get(EventView, scene.org_id, submission.event.event_id)
    assert view.deliveries == 2, "as many as were accepted"
    assert len(await scene.store.find(scene.org_id, EventDeliveries(event_id=submission.event.event_id))) == 1


async def test_cleaning_is_bounded_and_takes_the_oldest_first(scene: Scene) -> None:
    await scene.accept(3)
    claims = await scene.claim()
    for claim in reversed(claims):
        scene.wait(1)
        await scene.deliver(claim)
    cleaned = await scene.store.clean(Retention(settled_before=scene.now + 1), scene.now, 2)
    assert cleaned.deliveries == 2
    assert (await scene.delivery(claims[0].delivery_id)).state is DeliveryState.DELIVERED


async def test_a_deleted_dead_letter_is_removed_after_its_deletion_has_aged(scene: Scene) -> None:
    delivery_id = await scene.in_state(DeliveryState.DEAD)
    scene.wait(8 * DAY)
    await scene.act(ActionKind.DELETE, delivery_id)
    assert (await scene.store.clean(Retention(settled_before=scene.now), scene.now, 10)).deliveries == 0
    assert (await scene.store.clean(Retention(settled_before=scene.now + 1), scene.now + 1, 10)).deliveries == 1
    assert await scene.counts() == {}


async def test_acknowledged_events_are_removed_and_waiting_ones_are_not(scene: Scene) -> None:
    waiting, done = a_submission(scene.org_id), a_submission(scene.org_id)
    await scene.submit(waiting, done)
    scene.wait(9)
    await acknowledge(scene.store, scene.org_id, done.event.event_id, scene.now)
    assert (await scene.store.clean(Retention(settled_before=scene.now), scene.now, 100)).events == 0
    assert (await scene.store.clean(Retention(settled_before=scene.now + 1), scene.now, 100)).events == 1
    with pytest.raises(NotFound):
        await scene.store.get(EventView, scene.org_id, done.event.event_id)
    await scene.store.get(EventView, scene.org_id, waiting.event.event_id)


async def test_inbox_events_that_nobody_acknowledges_are_removed_in_the_end_oldest_first(scene: Scene) -> None:
    made = [a_submission(scene.org_id, created_at=scene.now + age) for age in (2, 0, 1)]
    await scene.submit(*made)
    await scene.accept()
    before = scene.now + 2
    cleaned = [await scene.store.clean(Retention(inbox_before=before), scene.now, 1) for _ in range(3)]
    assert cleaned == [Cleaned(inbox_events=1), Cleaned(inbox_events=1), Cleaned()], "accepted at, not before"
    with pytest.raises(NotFound):
        await scene.store.get(EventView, scene.org_id, made[1].event.event_id)
    await scene.store.get(EventView, scene.org_id, made[0].event.event_id)
    assert await scene.counts() == {DeliveryState.PENDING: 1}


async def test_an_acknowledged_event_is_kept_its_time_however_long_it_waited(scene: Scene) -> None:
    submission = a_submission(scene.org_id)
    await scene.submit(submission)
    scene.wait(99 * DAY)
    await acknowledge(scene.store, scene.org_id, submission.event.event_id, scene.now)
    assert (
        await scene.store.clean(Retention(settled_before=scene.now, inbox_before=scene.now), scene.now, 9) == Cleaned()
    )
    await scene.store.get(EventView, scene.org_id, submission.event.event_id)


async def test_audit_lines_are_removed_after_their_own_time_oldest_first(scene: Scene) -> None:
    delivery_ids = [await scene.in_state(DeliveryState.DEAD)]
    for _ in range(2):
        scene.wait(1)
        delivery_ids.append(await scene.in_state(DeliveryState.DEAD))
    assert await scene.store.clean(Retention(settled_before=scene.now), scene.now, 9) == Cleaned(), (
        "not with the deliveries"
    )
    cleaned = [await scene.store.clean(Retention(audit_before=scene.now), scene.now, 1) for _ in range(3)]
    assert cleaned == [Cleaned(audit_entries=1), Cleaned(audit_entries=1), Cleaned()]
    (left,) = (await scene.store.page(scene.org_id, AuditFilter())).items
    assert left.subjects == (str(delivery_ids[-1]),)


async def test_the_history_of_circuits_is_removed_but_for_the_newest_change_of_each(scene: Scene) -> None:
    other = await scene.add_endpoint()
    states = [CircuitState.OPEN, CircuitState.HALF_OPEN, CircuitState.CLOSED]
    for version, state in enumerate(states):
        for endpoint in (scene.endpoint, other):
            changed = Circuit(endpoint_id=endpoint.endpoint_id, state=state, changed_at=scene.now + version)
            assert await scene.store.put_circuit(changed, version)
    cleaned = [await scene.store.clean(Retention(settled_before=scene.now + at), scene.now, 3) for at in (0, 1, 99, 99)]
    assert [one.circuit_changes for one in cleaned] == [0, 2, 2, 0]
    for endpoint in (scene.endpoint, other):
        (newest,) = await scene.store.find(None, CircuitHistory(endpoint_id=endpoint.endpoint_id))
        assert newest.new_state is CircuitState.CLOSED
        assert (await scene.store.get(Circuit, None, endpoint.endpoint_id)).version == 3


async def test_idempotency_keys_are_removed_when_they_no_longer_count(scene: Scene, place: Place) -> None:
    if place.name == "dynamodb":
        pytest.skip("DynamoDB removes expired keys itself, some time later, without telling how many")
    await scene.submit(a_submission(scene.org_id, key="k"))
    assert (await scene.store.clean(Retention(), scene.now + DAY - 1, 100)).idempotency_keys == 0
    assert (await scene.store.clean(Retention(), scene.now + DAY, 100)).idempotency_keys == 1


async def test_a_repeated_request_gets_the_first_receipt_even_when_its_event_is_gone(scene: Scene) -> None:
    submission = a_submission(scene.org_id, [scene.endpoint.endpoint_id], key="k")
    (first,) = await scene.submit(submission)
    await scene.deliver(await scene.claim_one())
    await scene.store.clean(Retention(settled_before=scene.now + 1), scene.now, 100)
    (again,) = await scene.submit(a_submission(scene.org_id, [scene.endpoint.endpoint_id], key="k"))
    assert (again.verdict, again.event_id, again.deliveries) == (Verdict.REPEATED, first.event_id, 1)


async def test_dead_letters_that_nobody_touched_are_archived_oldest_first_and_bounded(scene: Scene) -> None:
    old = await scene.in_state(DeliveryState.DEAD)
    scene.wait(1)
    newer = await scene.in_state(DeliveryState.DEAD)
    scene.wait(1)
    young = await scene.in_state(DeliveryState.DEAD)

    assert len((await scene.store.archive(scene.now, scene.now, 1)).moves) == 1
    assert (await scene.delivery(old)).state is DeliveryState.ARCHIVED
    assert len((await scene.store.archive(scene.now, scene.now, 9)).moves) == 1
    assert (await scene.delivery(newer)).state is DeliveryState.ARCHIVED
    assert len((await scene.store.archive(scene.now, scene.now, 9)).moves) == 0
    assert (await scene.delivery(young)).state is DeliveryState.DEAD


async def test_archiving_keeps_when_and_why_a_dead_letter_died(scene: Scene) -> None:
    delivery_id = await scene.in_state(DeliveryState.DEAD)
    before = await scene.delivery(delivery_id)
    scene.wait(9)
    await scene.store.archive(scene.now, scene.now, 9)
    after = await scene.delivery(delivery_id)
    assert (after.settled_at, after.code, after.reason) == (before.settled_at, before.code, before.reason)


async def test_deleted_dead_letters_are_not_archived(scene: Scene) -> None:
    delivery_id = await scene.in_state(DeliveryState.DEAD)
    await scene.act(ActionKind.DELETE, delivery_id)
    assert len((await scene.store.archive(scene.now + 1, scene.now, 9)).moves) == 0
