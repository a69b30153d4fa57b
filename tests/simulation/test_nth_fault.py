"""Replays one fixed story with the n-th store operation failing, for n = 1, 2, 3 … until a run meets no fault."""

from __future__ import annotations

import pytest

from doorstep.model.action import ActionKind
from doorstep.model.endpoint import CircuitRules
from tests.simulation.checker import check
from tests.simulation.faults import Fault, NthFault
from tests.simulation.scenario import EndpointPlan, Scenario
from tests.simulation.story import Story
from tests.simulation.world import World

_VERBS = (
    "accept", "claim", "settle", "release", "expired", "act", "put_circuit", "write Endpoint", "dead_letter_waiting",
)  # fmt: skip

_STORY = Scenario(
    endpoints=(
        EndpointPlan("ok"),
        EndpointPlan("flaky", delays=(0.2, 0.2)),
        EndpointPlan("hanging", delays=(0.1,), circuit=CircuitRules(failures_max=2, open_seconds=1)),
    ),
    clients=1,
    events=24,
    moments=(0.5, 2.5),
    chaos_seconds=6,
)


@pytest.mark.parametrize("fault", [Fault.BEFORE, pytest.param(Fault.AFTER, marks=pytest.mark.full)])
@pytest.mark.parametrize("verb", _VERBS)
def test_no_promise_breaks_whichever_call_of_a_verb_fails(verb: str, fault: Fault) -> None:
    n = 0
    struck = True
    while struck:
        n += 1
        faults = NthFault(verb, n, fault)
        broken = check(_told_with(faults))
        assert not broken, f"call {n} of {verb}, failing {fault} it is kept: {broken}"
        struck = faults.struck
    print(f"{verb}, failing {fault} it is kept: {n - 1} calls, each failed once")
    assert n > 1, f"the story has no call of {verb}"


def _told_with(faults: NthFault) -> Story:
    return World(1, _STORY, faults=faults).play(_disturb)


def _disturb(world: World) -> None:
    """Make every store method necessary, with a kill, stops during work, operator actions and a deletion."""
    world.loop.call_later(0.75, world.stop_worker, 0)
    world.loop.call_later(2.7, world.kill_worker, 1, 1.0)
    world.loop.call_later(3.0, _retry_everything, world)
    for at in (3.1, 3.3):  # it holds surplus claims, and hands them back
        world.loop.call_later(at, world.stop_worker, 0)
    world.loop.call_later(4.0, _delete, world, 2)


def _retry_everything(world: World) -> None:
    operator, known = world.operator, world.server.journal.known
    for org_id in world.orgs:
        chosen = [delivery_id for delivery_id, delivery in known.items() if delivery.org_id == org_id]
        if chosen:
            operator.does(operator.deliveries.act, ActionKind.RETRY, org_id, chosen, "ops")


def _delete(world: World, number: int) -> None:
    operator = world.operator
    endpoint_id = world.endpoint_ids[number]
    org_id = world.server.store._tables.endpoints[endpoint_id].org_id
    operator.does(operator.endpoints.delete, org_id, endpoint_id, "ops")
