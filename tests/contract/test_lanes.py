"""Lanes: what a worker sees of the queue before it claims."""

from __future__ import annotations

from doorstep.model.claim import Lane, Settlement
from doorstep.model.endpoint import Circuit, CircuitState, EndpointState
from doorstep.model.rollup import HOUR
from tests.contract.scene import Scene
from tests.support.builders import failure


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


async def test_of_lanes_without_a_due_delivery_a_worker_gets_those_that_are_due_first(scene: Scene) -> None:
    others = [await scene.add_endpoint() for _ in range(5)]
    for number, endpoint in enumerate(others, 1):
        await scene.accept(endpoints=[endpoint], due_at=scene.now + number)
    await scene.accept()
    due, *later = [scene.endpoint.endpoint_id, *(one.endpoint_id for one in others)]
    for later_max, expected in ((0, []), (2, later[:2]), (9, later)):
        near = await scene.store.due_lanes(scene.now, later_max)
        assert [lane.endpoint_id for lane in near] == [due, *expected]
    assert [lane.endpoint_id for lane in await scene.store.due_lanes(scene.now + 3, 1)] == [due, *later[:4]]


async def test_a_worker_does_not_get_the_due_lanes_of_endpoints_that_are_held(scene: Scene) -> None:
    await scene.accept()
    for state in EndpointState:
        held = await scene.change_endpoint(state=state)
        expected = [] if state in (EndpointState.PAUSED, EndpointState.DISABLED) else [held.endpoint_id]
        assert [lane.endpoint_id for lane in await scene.store.due_lanes(scene.now, 9)] == expected, state


async def test_a_lane_with_deliveries_that_wait_for_a_recovery_is_never_left_out(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    retry = Settlement.retry(claim, failure(scene.now), scene.now + HOUR, 3, on_recovery=True)
    await scene.store.settle([retry], scene.now)
    assert await scene.store.due_lanes(scene.now, 0) == [], "its circuit has never opened"
    circuit = Circuit(
        endpoint_id=scene.endpoint.endpoint_id, state=CircuitState.OPEN, changed_at=scene.now, until=scene.now
    )
    await scene.store.put_circuit(circuit, 0)
    assert [lane.endpoint_id for lane in await scene.store.due_lanes(scene.now, 0)] == [scene.endpoint.endpoint_id]


async def test_held_endpoints_keep_their_lanes(scene: Scene) -> None:
    """Whether to claim from a lane is the worker's decision, so the store lists every lane."""
    await scene.accept()
    for state in EndpointState:
        held = await scene.change_endpoint(state=state)
        assert [lane.endpoint_id for lane in await scene.store.due_lanes(scene.now)] == [held.endpoint_id]
