"""R11: storage engines. tests/contract covers each store method; this file tests each store as a whole."""

from __future__ import annotations

from itertools import pairwise

import asyncpg

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.action import ActionKind
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import CircuitRules
from tests.contract.conftest import KINDS
from tests.support.loop_receiver import Answer, Receiver
from tests.support.scene import Scene

_S = DeliveryState


# -- R11.1 -------------------------------------------------------------------------------------------------


def test_the_contract_suite_runs_on_every_store() -> None:
    names = [kind if isinstance(kind, str) else kind.values[0] for kind in KINDS]
    assert names == ["reference", "memory", "sqlite", "postgres", "dynamodb"]


async def test_one_story_is_told_alike_by_every_store_and_switching_is_one_url(
    receiver: Receiver, sqlite_url: str, postgres_url: str
) -> None:
    stories = [await _story(Scene(url, receiver)) for url in ("memory://", sqlite_url, postgres_url)]
    assert stories[0] == stories[1] == stories[2]
    assert len(stories[0]) == 5


async def _story(scene: Scene) -> list[object]:
    """Let events succeed, be retried, die, be resolved and be held; return everything that people see, as text."""
    scene.receiver.answer = lambda request: Answer(_STATUS[request.path].pop(0), body=b"noted")
    await scene.open()
    try:
        told = []
        for path, statuses in _SCRIPT.items():
            _STATUS[path] = list(statuses)
            endpoint = await scene.endpoint(path, policy=[0.0, 0.0], circuit=CircuitRules())
            (delivery,) = await scene.send_to(endpoint)
            told.append(await _seen(scene, await _ended(scene, delivery)))
        return told
    finally:
        await scene.close()


_STATUS: dict[str, list[int]] = {}
_SCRIPT = {"/good": [200], "/retried": [503, 429, 204], "/dead": [503, 503, 503], "/refused": [404], "/gone": [410]}


async def _ended(scene: Scene, delivery: Delivery) -> Delivery:
    ended = await scene.until_state(delivery, _S.DELIVERED, _S.DEAD)
    if ended.code == "NOT_FOUND":
        await scene.act(ActionKind.RESOLVE, ended)
    return await scene.delivery(delivery)


async def _seen(scene: Scene, delivery: Delivery) -> object:
    attempts = await scene.attempts(delivery)
    history = await scene.history(delivery)
    event = await scene.doorstep.components.reader.event(DEFAULT_ORG, delivery.event_id)
    assert all(sooner.at <= later.at for sooner, later in pairwise(history))
    return (
        (event.status, event.retry_attempts, event.deliveries),
        (delivery.state, delivery.attempt, delivery.code, delivery.reason, delivery.response_code, delivery.remark),
        [(row.number, row.response_code, row.response_body, row.code, row.reason, row.late) for row in attempts],
        [(line.old_state, line.new_state, line.attempt, line.note.partition(" by ")[0]) for line in history],
    )


async def test_what_was_accepted_is_still_there_after_a_restart_and_is_delivered(scene: Scene) -> None:
    endpoint = await scene.endpoint()
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    (delivery,) = await scene.send_to(endpoint)
    await scene.close()
    await scene.open()
    assert (await scene.delivery(delivery)).state is _S.PENDING
    await scene.doorstep.components.endpoints.resume(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    await scene.until_state(delivery, _S.DELIVERED)


# -- R11.2 -------------------------------------------------------------------------------------------------


async def test_on_postgresql_there_are_partial_indexes_for_due_and_for_dead_rows(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        rows = await connection.fetch("SELECT indexdef FROM pg_indexes WHERE tablename = 'doorstep_deliveries'")
    finally:
        await connection.close()
    partial = [row[0].partition(" WHERE ")[2] for row in rows]
    assert any("pending" in where for where in partial)
    assert any("in_progress" in where for where in partial)
    assert any("dead" in where for where in partial)


async def test_on_postgresql_a_query_that_forgets_its_organization_sees_nothing_of_a_running_engine(
    receiver: Receiver, postgres_url: str
) -> None:
    scene = Scene(postgres_url, receiver)
    await scene.open()
    connection = await asyncpg.connect(postgres_url)
    try:
        (delivery,) = await scene.send_to(await scene.endpoint())
        await scene.until_state(delivery, _S.DELIVERED)
        for table in ("events", "deliveries", "attempts", "history", "endpoints", "keys"):
            assert await connection.fetch(f"SELECT * FROM doorstep_{table}") == [], table
    finally:
        await connection.close()
        await scene.close()
