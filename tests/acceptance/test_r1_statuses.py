"""R1: the statuses that people see."""

from __future__ import annotations

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import DAY, SECOND
from doorstep.errors import Conflict
from doorstep.model.action import ActionKind
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.event import EventStatus
from doorstep.model.listing import AuditFilter
from doorstep.telemetry.facts import DeliveryTransition
from tests.support.loop_receiver import Answer
from tests.support.scene import Scene, until
from tests.support.shortcuts import acknowledge

_S = DeliveryState
WEEK_SECONDS = 7 * DAY // SECOND


# -- R1.1 --------------------------------------------------------------------------------------------------


def test_an_event_has_one_of_four_statuses_and_a_delivery_one_of_seven_states() -> None:
    assert {status.value for status in EventStatus} == {"received", "queued", "delivered", "failed"}
    states = {"pending", "in_progress", "delivered", "dead", "resolved", "archived", "cancelled"}
    assert {state.value for state in DeliveryState} == states


async def test_an_event_is_received_until_it_is_picked_up_then_queued_and_in_the_end_delivered(scene: Scene) -> None:
    endpoint = await scene.endpoint()
    scene.receiver.hold.clear()
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    sent = await scene.send()
    assert await scene.status(sent) is EventStatus.RECEIVED
    await scene.doorstep.components.endpoints.resume(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    await scene.until_received(1)
    assert await scene.status(sent) is EventStatus.QUEUED
    assert (await scene.delivery(sent)).state is _S.IN_PROGRESS
    scene.receiver.hold.set()
    await scene.until_state(sent, _S.DELIVERED)
    assert await scene.status(sent) is EventStatus.DELIVERED


async def test_an_event_is_delivered_only_when_each_of_its_deliveries_is(scene: Scene) -> None:
    await scene.endpoint("/healthy")
    await scene.endpoint("/failing", policy=[60.0])
    scene.receiver.answer = lambda request: Answer(503 if request.path == "/failing" else 200)
    sent = await scene.send()
    first, second = await scene.deliveries(sent)
    await scene.until_state(first, _S.DELIVERED)
    failed = await scene.until_tried(second)
    assert await scene.status(sent) is EventStatus.QUEUED
    scene.receiver.says(200)
    scene.leap_to(failed.due_at or 0)
    await scene.until_state(second, _S.DELIVERED)
    assert await scene.status(sent) is EventStatus.DELIVERED


async def test_an_event_is_failed_when_nothing_is_left_to_try_and_one_delivery_is_dead(scene: Scene) -> None:
    await scene.endpoint("/healthy")
    await scene.endpoint("/refusing")
    scene.receiver.answer = lambda request: Answer(400 if request.path == "/refusing" else 200)
    sent = await scene.send()
    first, second = await scene.deliveries(sent)
    await scene.until_state(first, _S.DELIVERED)
    await scene.until_state(second, _S.DEAD)
    view = await scene.doorstep.components.reader.event(DEFAULT_ORG, sent.event_id)
    assert view.status is EventStatus.FAILED
    assert view.failed_at is not None


async def test_an_event_that_no_endpoint_takes_is_delivered_when_the_inbox_consumer_acknowledges_it(
    scene: Scene,
) -> None:
    sent = await scene.send()
    assert (sent.deliveries, await scene.status(sent)) == (0, EventStatus.RECEIVED)
    await acknowledge(scene.doorstep.components.store, DEFAULT_ORG, sent.event_id, scene.clock.now())
    assert await scene.status(sent) is EventStatus.DELIVERED


async def test_an_event_that_endpoints_take_cannot_be_acknowledged(scene: Scene) -> None:
    await scene.endpoint()
    sent = await scene.send()
    with pytest.raises(Conflict):
        await scene.doorstep.components.inbox.acknowledge(DEFAULT_ORG, sent.event_id, "consumer")


# -- R1.2, R1.3 --------------------------------------------------------------------------------------------


async def test_delivered_is_final_whatever_an_operator_says(scene: Scene) -> None:
    (delivery,) = await scene.send_to(await scene.endpoint())
    done = await scene.until_state(delivery, _S.DELIVERED)
    for kind in ActionKind:
        result = await scene.act(kind, delivery)
        assert (result.done, result.refused) == ((), {delivery.delivery_id: _S.DELIVERED})
    assert await scene.delivery(delivery) == done
    assert len(scene.receiver.requests) == 1


async def test_a_dead_letter_is_left_alone_by_the_machine(scene: Scene) -> None:
    scene.receiver.says(404, 200)
    (delivery,) = await scene.send_to(await scene.endpoint())
    dead = await scene.until_state(delivery, _S.DEAD)
    scene.leap(WEEK_SECONDS - 60)
    await scene.nothing_more_arrives()
    assert await scene.delivery(delivery) == dead


@pytest.mark.parametrize(
    ("kind", "state"), [(ActionKind.RETRY, _S.PENDING), (ActionKind.RESOLVE, _S.RESOLVED), (ActionKind.DELETE, _S.DEAD)]
)
async def test_only_an_operator_changes_a_dead_letter_and_each_act_is_audited(
    scene: Scene, kind: ActionKind, state: DeliveryState
) -> None:
    scene.receiver.says(404)
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_state(delivery, _S.DEAD)
    result = await scene.act(kind, delivery, actor="ada")
    changed = await scene.delivery(delivery)
    assert (result.done, changed.state, changed.deleted) == (
        (delivery.delivery_id,),
        state,
        kind is ActionKind.DELETE,
    )
    line, made = (await scene.doorstep.components.store.page(DEFAULT_ORG, AuditFilter())).items
    assert made.action == "endpoint.create"
    assert (line.actor, line.action, line.subjects, line.result) == (
        "ada",
        kind,
        (str(delivery.delivery_id),),
        "1 done, 0 refused",
    )


async def test_an_act_that_is_refused_is_audited_too(scene: Scene) -> None:
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_state(delivery, _S.DELIVERED)
    await scene.act(ActionKind.RETRY, delivery)
    line, made = (await scene.doorstep.components.store.page(DEFAULT_ORG, AuditFilter())).items
    assert made.action == "endpoint.create"
    assert line.result == "0 done, 1 refused"


# -- R1.4 --------------------------------------------------------------------------------------------------


async def test_the_whole_life_of_a_delivery_can_be_read_back_in_order(scene: Scene) -> None:
    delivery = await _eventful_life(scene)
    history = await scene.history(delivery)
    assert [(line.old_state, line.new_state, line.attempt) for line in history] == [
        (None, _S.PENDING, 0),
        (_S.PENDING, _S.IN_PROGRESS, 1),
        (_S.IN_PROGRESS, _S.PENDING, 1),
        (_S.PENDING, _S.IN_PROGRESS, 2),
        (_S.IN_PROGRESS, _S.DEAD, 2),
        (_S.DEAD, _S.PENDING, 2),
        (_S.PENDING, _S.IN_PROGRESS, 3),
        (_S.IN_PROGRESS, _S.DELIVERED, 3),
    ]
    assert [line.at for line in history] == sorted(line.at for line in history)
    assert "retry 1 of 1" in history[2].note
    assert history[4].note == "dead: SERVICE_UNAVAILABLE"
    assert history[5].note == "retried by ops"


async def test_every_transition_of_a_delivery_writes_one_line_in_the_log(scene: Scene) -> None:
    delivery = await _eventful_life(scene)
    assert _logged(scene, delivery) == await _written(scene, delivery)


async def test_what_operators_and_the_cleaner_do_to_a_delivery_is_in_the_log_line_by_line(scene: Scene) -> None:
    endpoint = await scene.endpoint()
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    skipped, cancelled, archived, buried = await scene.send_to(endpoint, 4)
    await scene.act(ActionKind.SKIP, skipped, archived)
    await scene.act(ActionKind.RESOLVE, skipped)
    await scene.act(ActionKind.CANCEL, cancelled)
    await scene.doorstep.components.endpoints.delete(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    for delivery in (skipped, cancelled, archived, buried):
        assert _logged(scene, delivery) == await _written(scene, delivery)
    scene.leap(WEEK_SECONDS + 60)
    await scene.close()
    await scene.open()
    await until(lambda: (_S.DEAD, _S.ARCHIVED) in _logged(scene, archived))
    assert _logged(scene, archived) == await _written(scene, archived)


def _logged(scene: Scene, delivery: Delivery) -> list[tuple[str, str]]:
    facts = scene.heard(DeliveryTransition)
    return [(fact.old_state, fact.new_state) for fact in facts if fact.delivery_id == delivery.delivery_id]


async def _written(scene: Scene, delivery: Delivery) -> list[tuple[DeliveryState | None, DeliveryState]]:
    return [(line.old_state, line.new_state) for line in (await scene.history(delivery))[1:]]


async def test_every_status_of_an_event_is_in_the_log_once_in_order_and_under_one_correlation_id(
    scene: Scene,
) -> None:
    delivery = await _eventful_life(scene)
    lines = [line for line in scene.log() if line["event"] == "status_transition"]
    assert [(line["old_status"], line["new_status"]) for line in lines] == [
        (None, "received"),
        ("received", "queued"),
        ("queued", "failed"),
        ("failed", "queued"),
        ("queued", "delivered"),
    ]
    assert {line["correlation_id"] for line in lines} == {"request-7"}
    assert {line["event_id"] for line in lines} == {str(delivery.event_id)}


async def _eventful_life(scene: Scene) -> Delivery:
    """A delivery that fails, is retried, dies, is retried by an operator, and is delivered."""
    scene.receiver.says(503, 503, 200)
    await scene.endpoint(policy=[0.0])
    sent = await scene.send(correlation_id="request-7")
    dead = await scene.until_state(sent, _S.DEAD)
    await scene.act(ActionKind.RETRY, dead)
    scene.leap(5)
    return await scene.until_state(dead, _S.DELIVERED)
