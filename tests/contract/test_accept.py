"""Promise 1, R5.1: an accepted event is stored with all its deliveries, or not at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.errors import NotFound, StaleRouting
from doorstep.model.delivery import DeliveryState, NewDelivery
from doorstep.model.event import EventStatus, EventView, Receipt, Submission, Verdict
from doorstep.model.listing import EventDeliveries
from doorstep.stores.store import Store
from tests.contract.scene import Scene
from tests.support.builders import a_submission, an_endpoint, an_event, an_org, new_id
from tests.support.shortcuts import put, routing_versions


async def test_an_accepted_event_has_one_delivery_for_each_endpoint_it_was_fanned_out_to(scene: Scene) -> None:
    other = await scene.add_endpoint()
    (submission,) = await scene.accept(endpoints=[scene.endpoint, other])

    deliveries = await scene.store.find(scene.org_id, EventDeliveries(event_id=submission.event.event_id))

    assert [one.delivery_id for one in deliveries] == [one.delivery_id for one in submission.deliveries]
    assert [one.endpoint_id for one in deliveries] == [scene.endpoint.endpoint_id, other.endpoint_id]
    assert {one.state for one in deliveries} == {DeliveryState.PENDING}


async def test_an_accepted_event_reads_back_as_it_was_given(scene: Scene) -> None:
    event = an_event(
        scene.org_id,
        payload=b'{"exact":  "bytes"}',
        deliver_at=scene.now + SECOND,
        expires_at=scene.now + 9 * SECOND,
        metadata=b'{"a": 1}',
    )
    await scene.submit(Submission(event, ()))

    view = await scene.store.get(EventView, scene.org_id, event.event_id)

    assert view.event == event
    assert (view.status, view.deliveries, view.retry_attempts) == (EventStatus.RECEIVED, 0, 0)
    assert (view.last_retry_at, view.failed_at, view.next_retry_at) == (None, None, None)


async def test_a_new_delivery_is_waiting_at_its_due_time_and_untried(scene: Scene) -> None:
    (submission,) = await scene.accept(due_at=scene.now + 7, retries_max=5)
    delivery = await scene.delivery(submission.deliveries[0].delivery_id)

    assert (delivery.state, delivery.due_at, delivery.retries_max) == (DeliveryState.PENDING, scene.now + 7, 5)
    assert (delivery.attempt, delivery.retry_attempts, delivery.forced) == (0, 0, False)
    assert delivery.created_at == submission.event.created_at
    assert delivery.event_type == submission.event.event_type
    assert delivery.next_retry_at is None


async def test_receipts_come_in_the_order_of_the_submissions(scene: Scene) -> None:
    made = [a_submission(scene.org_id, [scene.endpoint.endpoint_id] * n) for n in (1, 0, 1)]

    receipts = await scene.submit(*made)

    assert receipts == [
        Receipt(Verdict.ACCEPTED, one.event.event_id, one.event.created_at, len(one.deliveries)) for one in made
    ]


async def test_accepting_nothing_is_no_error(scene: Scene) -> None:
    assert await scene.submit() == []


async def test_a_failure_in_the_middle_of_a_batch_keeps_nothing_of_the_batch(scene: Scene) -> None:
    good = a_submission(scene.org_id, [scene.endpoint.endpoint_id], key="k")
    bad = Submission(an_event(scene.org_id), (NewDelivery(new_id(), new_id(), scene.now, 3),))

    with pytest.raises(NotFound):
        await scene.submit(good, bad, a_submission(scene.org_id))

    assert await scene.counts() == {}
    with pytest.raises(NotFound):
        await scene.store.get(EventView, scene.org_id, good.event.event_id)
    assert [one.verdict for one in await scene.submit(good)] == [Verdict.ACCEPTED], "the key was not used up"


async def test_an_event_of_an_unknown_organization_is_refused(scene: Scene) -> None:
    with pytest.raises(NotFound):
        await scene.submit(a_submission(new_id()))


async def test_an_event_cannot_be_fanned_out_to_another_organizations_endpoint(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    foreign = an_endpoint(other.org_id)
    await put(scene.store, foreign, 0)

    with pytest.raises(NotFound):
        await scene.submit(a_submission(scene.org_id, [scene.endpoint.endpoint_id, foreign.endpoint_id]))

    assert await scene.counts() == {}


async def test_a_fan_out_computed_from_old_endpoints_is_refused_and_keeps_nothing(scene: Scene) -> None:
    version = await routing_versions(scene.store)
    await scene.add_endpoint()

    with pytest.raises(StaleRouting):
        await scene.store.accept([a_submission(scene.org_id, [scene.endpoint.endpoint_id])], version, scene.now)

    assert await scene.counts() == {}


async def test_a_fan_out_computed_from_endpoints_another_process_changed_is_refused(
    scene: Scene, other_store: Store
) -> None:
    version = await routing_versions(scene.store)
    await scene.submit(a_submission(scene.org_id, [scene.endpoint.endpoint_id]))
    await put(other_store, an_endpoint(scene.org_id), 0)

    with pytest.raises(StaleRouting):
        await scene.store.accept([a_submission(scene.org_id, [scene.endpoint.endpoint_id])], version, scene.now)


async def test_repeating_an_accept_whose_answer_was_lost_adds_nothing(scene: Scene) -> None:
    submission = a_submission(scene.org_id, [scene.endpoint.endpoint_id])
    first = await scene.submit(submission)

    (again,) = await scene.submit(submission)
    assert not first[0].known and again == replace(first[0], known=True)
    assert await scene.counts() == {DeliveryState.PENDING: 1}


async def test_the_same_event_twice_in_one_call_is_kept_once(scene: Scene) -> None:
    submission = a_submission(scene.org_id, [scene.endpoint.endpoint_id])
    first, second = await scene.submit(submission, submission)
    assert not first.known and second == replace(first, known=True)
    assert await scene.counts() == {DeliveryState.PENDING: 1}


async def test_an_event_accepted_by_one_store_is_seen_by_another(scene: Scene, other_store: Store) -> None:
    (submission,) = await scene.accept()
    view = await other_store.get(EventView, scene.org_id, submission.event.event_id)
    assert view.event == submission.event
