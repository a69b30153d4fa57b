"""R6.1: all workers share the circuits, and only one of several racing writers wins."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from doorstep.errors import NotFound
from doorstep.model.endpoint import Circuit, CircuitChange, CircuitState
from doorstep.model.listing import CircuitHistory
from doorstep.stores.store import Store
from tests.contract.scene import Scene
from tests.support.builders import new_id


def opened(scene: Scene) -> Circuit:
    return Circuit(
        endpoint_id=scene.endpoint.endpoint_id,
        state=CircuitState.OPEN,
        failures=5,
        failing_since=scene.now - 50,
        changed_at=scene.now,
        until=scene.now + 300,
    )


async def test_an_endpoint_that_never_failed_has_a_closed_circuit(scene: Scene) -> None:
    assert await scene.store.get(Circuit, None, scene.endpoint.endpoint_id) == Circuit(
        endpoint_id=scene.endpoint.endpoint_id
    )
    assert await scene.store.find(None, CircuitHistory(endpoint_id=scene.endpoint.endpoint_id)) == []


async def test_a_circuit_reads_back_with_the_next_version_on_every_store(scene: Scene, other_store: Store) -> None:
    assert await scene.store.put_circuit(opened(scene), 0)
    assert await other_store.get(Circuit, None, scene.endpoint.endpoint_id) == replace(opened(scene), version=1)


async def test_a_write_computed_from_an_old_version_is_refused_and_changes_nothing(scene: Scene) -> None:
    await scene.store.put_circuit(opened(scene), 0)
    for stale in (0, 2):
        assert not await scene.store.put_circuit(Circuit(endpoint_id=scene.endpoint.endpoint_id), stale)
    assert (await scene.store.get(Circuit, None, scene.endpoint.endpoint_id)).state is CircuitState.OPEN
    assert len(await scene.store.find(None, CircuitHistory(endpoint_id=scene.endpoint.endpoint_id))) == 1


async def test_of_concurrent_writers_of_one_version_one_wins(scene: Scene, other_store: Store) -> None:
    won = await asyncio.gather(
        *(store.put_circuit(opened(scene), 0, "five failures") for store in [scene.store, other_store] * 5)
    )
    assert sorted(won) == [False] * 9 + [True]
    assert len(await scene.store.find(None, CircuitHistory(endpoint_id=scene.endpoint.endpoint_id))) == 1


async def test_each_change_of_state_is_in_the_history_and_nothing_else(scene: Scene) -> None:
    failing = Circuit(endpoint_id=scene.endpoint.endpoint_id, failures=1, changed_at=scene.now)
    await scene.store.put_circuit(failing, 0, "not a change")
    await scene.store.put_circuit(opened(scene), 1, "five failures")
    await scene.store.put_circuit(
        replace(opened(scene), state=CircuitState.HALF_OPEN, changed_at=scene.now + 300), 2, "probe"
    )
    assert await scene.store.find(None, CircuitHistory(endpoint_id=scene.endpoint.endpoint_id)) == [
        CircuitChange(scene.now, CircuitState.CLOSED, CircuitState.OPEN, "five failures"),
        CircuitChange(scene.now + 300, CircuitState.OPEN, CircuitState.HALF_OPEN, "probe"),
    ]
    (newest,) = await scene.store.find(None, CircuitHistory(endpoint_id=scene.endpoint.endpoint_id, newest=1))
    assert newest.reason == "probe"


async def test_a_circuit_of_an_unknown_endpoint_is_refused(scene: Scene) -> None:
    with pytest.raises(NotFound):
        await scene.store.put_circuit(Circuit(endpoint_id=new_id()), 0)
