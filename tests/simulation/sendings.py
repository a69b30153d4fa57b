"""The events that the clients send, and the times at which they send them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.engine.accept import Draft
from doorstep.testing.sandbox import BEGINNING
from tests.simulation.network import POISON
from tests.simulation.scenario import Scenario

if TYPE_CHECKING:
    from tests.simulation.world import World


_ORDERING_KEYS = (None, None, "a", "b")


def plan_sendings(world: World) -> None:
    """Set the timers of all sendings. An event with an idempotency key is sent twice, whatever the first answer was."""
    random, ordering, scenario = world.random("clients"), world.random("ordering"), world.scenario
    for slot in range(scenario.clients):
        for number in range(scenario.events):
            draft = replace(
                _draft(random, world.orgs, f"{slot}-{number}"), ordering_key=ordering.choice(_ORDERING_KEYS)
            )
            at = _moment(scenario, random)
            world.loop.call_later(at, world.send, slot, draft)
            if draft.idempotency_key is not None:
                world.loop.call_later(at + random.uniform(0, 1), world.send, slot, draft)
    if scenario.poison:
        world.loop.call_later(1, world.send, 0, _draft(random, world.orgs, "poison", POISON))


def _moment(scenario: Scenario, random: Random) -> float:
    if scenario.moments:
        return random.choice(scenario.moments)
    return random.uniform(0, scenario.chaos_seconds * 0.8)


def _draft(random: Random, orgs: Sequence[UUID], name: str, opening: bytes = b'{"name"') -> Draft:
    """An event that can be recognized by its unique payload."""
    chance = random.random()
    return Draft(
        org_id=random.choice(orgs),
        event_type=random.choice(("order.paid", "user.created")),
        payload=opening + b': "%s"}' % name.encode(),
        correlation_id=name,
        deliver_at=BEGINNING + random.randint(0, 6 * SECOND) if chance < 0.1 else None,
        expires_at=BEGINNING + random.randint(7 * SECOND, 12 * SECOND) if chance > 0.9 else None,
        idempotency_key=f"key {name}" if 0.4 < chance < 0.6 else None,
    )
