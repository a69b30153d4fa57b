"""Lanes: what a worker sees of the queue before it claims."""

from __future__ import annotations

from doorstep.model.claim import Lane
from doorstep.model.endpoint import Circuit, CircuitState, EndpointState
from tests.contract.scene import Scene


async def test_each_endpoint_with_waiting_deliveries_has_one_lane_that_begins_at_its_first_due_time(
    scene: Scene,
) -> None:
    slow = await scene.add_endpoint()
    await scene.add_endpoint(name="idle")
    for due_in in (30, 10, 20):
        await scene.accept(due_at=scene.now + due_in)
    await scene.accept(endpoints=[slow], due_at=scene.now + 5)

    lanes = await scene.store.due_lanes(scene.now)

    assert lanes == [
        Lane(slow.endpoint_id, scene.org_id, scene.now + 5),
        Lane(scene.endpoint.endpoint_id, scene.org_id, scene.now + 10),
    ]


async def test_deliveries_in_progress_and_settled_ones_are_in_no_lane(scene: Scene) -> None:
    await scene.accept(2)
    await scene.deliver(await scene.claim_one())
    await scene.claim_one()
    assert await scene.store.due_lanes(scene.now) == []


async def test_a_lane_carries_the_circuit_once_there_is_one(scene: Scene) -> None:
    await scene.accept()
    circuit = Circuit(endpoint_id=scene.endpoint.endpoint_id, state=CircuitState.OPEN, failures=5, until=scene.now + 9)
    await scene.store.put_circuit(circuit, 0)

    (lane,) = await scene.store.due_lanes(scene.now)

    assert lane.circuit == await scene.store.get(Circuit, None, scene.endpoint.endpoint_id)
    assert lane.circuit is not None and lane.circuit.state is CircuitState.OPEN


async def test_held_endpoints_keep_their_lanes(scene: Scene) -> None:
    """Whether to claim from a lane is the worker's decision, so the store lists every lane."""
    await scene.accept()
    for state in EndpointState:
        held = await scene.change_endpoint(state=state)
        assert [lane.endpoint_id for lane in await scene.store.due_lanes(scene.now)] == [held.endpoint_id]
