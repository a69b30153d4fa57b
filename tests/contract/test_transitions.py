"""R1.1, R1.2, R1.3, R2.1: the code and the database itself refuse every transition that the tables do not allow."""

from __future__ import annotations

from itertools import product

import pytest

from doorstep.model.action import ACTS_ON, ActionKind
from doorstep.model.delivery import OPEN_STATES, TRANSITIONS, DeliveryState
from doorstep.model.event import EVENT_TRANSITIONS, EventStatus, Submission
from doorstep.stores.sql.schema import deliveries, events
from tests.contract.places import Refused, SqlPlace
from tests.contract.scene import Scene
from tests.support.builders import an_event

PAIRS = list(product(DeliveryState, DeliveryState))
REWRITABLE = {(DeliveryState.PENDING, DeliveryState.PENDING)}


@pytest.mark.parametrize("kind", ActionKind)
async def test_an_act_is_refused_in_every_state_that_does_not_allow_it_and_changes_nothing(
    scene: Scene, kind: ActionKind
) -> None:
    for state in DeliveryState:
        delivery_id = await scene.in_state(state)
        before = await scene.delivery(delivery_id)
        result = await scene.act(kind, delivery_id)
        if state in ACTS_ON[kind]:
            assert (result.done, result.refused) == ((delivery_id,), {}), state
        else:
            assert (result.done, result.refused) == ((), {delivery_id: state})
            assert await scene.delivery(delivery_id) == before


@pytest.mark.parametrize("state", [state for state in DeliveryState if state is not DeliveryState.PENDING])
async def test_only_waiting_deliveries_are_claimed_or_buried(scene: Scene, state: DeliveryState) -> None:
    delivery_id = await scene.in_state(state)
    before = await scene.delivery(delivery_id)
    assert await scene.claim() == []
    assert (
        await scene.store.dead_letter_waiting(scene.endpoint.endpoint_id, "X", "x", scene.now, 10)
    ).delivery_ids == ()
    assert await scene.delivery(delivery_id) == before


async def test_the_database_itself_allows_exactly_the_transitions_of_the_table(
    sql_scene: Scene, sql_place: SqlPlace
) -> None:
    for source, target in PAIRS:
        delivery_id = await sql_scene.in_state(source)
        due_at = str(sql_scene.now) if target in OPEN_STATES else "NULL"
        statement = (
            f"UPDATE {deliveries} SET state = '{target}', due_at = {due_at}, settled_at = {sql_scene.now}"
            f" WHERE uid = {sql_place.literal(delivery_id)}"
        )
        allowed = (source, target) in TRANSITIONS or (source, target) in REWRITABLE
        assert await _accepts(sql_place, statement) is allowed, (source, target)
        state = (await sql_scene.delivery(delivery_id)).state
        assert state is (target if allowed else source)


async def test_the_database_itself_allows_exactly_the_status_changes_of_the_table(
    sql_scene: Scene, sql_place: SqlPlace
) -> None:
    for source, target in product(EventStatus, EventStatus):
        event = an_event(sql_scene.org_id)
        await sql_scene.submit(Submission(event, ()))
        where = f"WHERE uid = {sql_place.literal(event.event_id)}"
        if source is not EventStatus.RECEIVED:
            assert await _accepts(sql_place, f"UPDATE {events} SET status = '{source}' {where}")
        allowed = source is target or (source, target) in EVENT_TRANSITIONS
        assert await _accepts(sql_place, f"UPDATE {events} SET status = '{target}' {where}") is allowed, (
            source,
            target,
        )


@pytest.mark.parametrize("wrong", ["", "PENDING", "sent", "done"])
async def test_the_database_refuses_a_state_or_status_outside_the_list(
    sql_scene: Scene, sql_place: SqlPlace, wrong: str
) -> None:
    await sql_scene.in_state(DeliveryState.PENDING)
    assert not await _accepts(sql_place, f"UPDATE {deliveries} SET state = '{wrong}'")
    assert not await _accepts(sql_place, f"UPDATE {events} SET status = '{wrong}'")


async def test_the_database_refuses_more_retries_than_the_maximum(sql_scene: Scene, sql_place: SqlPlace) -> None:
    await sql_scene.in_state(DeliveryState.PENDING)
    assert await _accepts(sql_place, f"UPDATE {deliveries} SET retry_attempts = retries_max")
    assert not await _accepts(sql_place, f"UPDATE {deliveries} SET retry_attempts = retries_max + 1")
    assert not await _accepts(sql_place, f"UPDATE {deliveries} SET retry_attempts = -1")


async def test_the_database_refuses_an_open_delivery_without_a_due_time_and_a_settled_one_with_it(
    sql_scene: Scene, sql_place: SqlPlace
) -> None:
    await sql_scene.in_state(DeliveryState.PENDING)
    assert not await _accepts(sql_place, f"UPDATE {deliveries} SET due_at = NULL")
    assert not await _accepts(sql_place, f"UPDATE {deliveries} SET state = 'dead'")


async def _accepts(place: SqlPlace, statement: str) -> bool:
    try:
        await place.execute(statement)
    except Refused:
        return False
    return True
