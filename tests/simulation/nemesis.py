"""The nemesis: uses the seed to plan which faults occur and when."""

from __future__ import annotations

from random import Random

from doorstep.model.action import ActionKind
from tests.simulation.scenario import TUNING, Scenario
from tests.simulation.world import World

_ACTS = (ActionKind.RETRY, ActionKind.RETRY, ActionKind.SKIP, ActionKind.RESOLVE, ActionKind.CANCEL, ActionKind.DELETE)


def disturb(world: World) -> None:
    """Set the timers for all faults of the chaos phase."""
    random, scenario = world.random("nemesis"), world.scenario
    plans = (
        (scenario.kills, lambda: world.kill_worker(_slot(world, random), random.uniform(0, 2))),
        (scenario.freezes, lambda: world.freeze_worker(_slot(world, random), _freeze_seconds(random))),
        (scenario.stops, lambda: world.stop_worker(_slot(world, random))),
        (scenario.client_kills, lambda: world.kill_client(random.randrange(scenario.clients))),
        (scenario.acts, lambda: _act(world, random)),
        (scenario.endpoint_acts, lambda: _act_on_endpoint(world, random)),
    )
    for count, strike in plans:
        for _ in range(count):
            world.loop.call_later(_moment(scenario, random), strike)


def _moment(scenario: Scenario, random: Random) -> float:
    """A random moment, usually one at which there is work to disturb."""
    if scenario.moments and random.random() < 0.7:
        return random.choice(scenario.moments) + random.uniform(0, 0.3)
    return random.uniform(0, scenario.chaos_seconds)


def _slot(world: World, random: Random) -> int:
    return random.randrange(world.scenario.workers)


def _freeze_seconds(random: Random) -> float:
    """A pause that is harmless, or one that ends about when another worker takes over."""
    return random.uniform(0.5, 4) if random.random() < 0.3 else TUNING.lease_seconds + random.uniform(-0.5, 3)


def _act(world: World, random: Random) -> None:
    """Let an operator act on one or more deliveries in any state; the store may refuse."""
    seen = list(world.server.journal.known)
    if seen:
        chosen = random.sample(seen, min(len(seen), random.choice((1, 2, 12))))
        org_id = world.server.journal.known[chosen[0]].org_id
        kind = random.choice(_ACTS)
        world.trace.note("operator", f"tries to {kind}", len(chosen))
        world.operator.does(world.operator.deliveries.act, kind, org_id, chosen, "ops")


def _act_on_endpoint(world: World, random: Random) -> None:
    store, operator = world.server.store, world.operator
    endpoint = store._tables.endpoints[random.choice(world.endpoint_ids)]
    ids = (endpoint.org_id, endpoint.endpoint_id, "ops")
    verb = random.choice(("pause", "pause", "resume", "delete"))
    world.trace.note("operator", f"tries to {verb}", endpoint.name)
    operator.does(getattr(operator.endpoints, verb), *ids)
