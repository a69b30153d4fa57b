"""What a seed determines: how many endpoints, workers and events there are, and how many faults occur."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from doorstep.engine.directory import Tuning
from doorstep.model.endpoint import CircuitRules, RetryPolicy
from tests.simulation.network import PERSONALITIES

TUNING = Tuning(
    lease_seconds=6,
    timeout_seconds=1,
    slots=6,
    connections_per_endpoint=2,
    policy=RetryPolicy((0.5, 1)),
    grace_seconds=1,
    revive_after_seconds=0.5,
)


class EndpointPlan(NamedTuple):
    personality: str = "ok"
    delays: tuple[float, ...] | None = None
    concurrency_max: int | None = None
    rate_per_second: float | None = None
    circuit: CircuitRules = CircuitRules(failures_max=3, open_seconds=3)
    by_handler: bool = False


class Scenario(NamedTuple):
    endpoints: tuple[EndpointPlan, ...] = (EndpointPlan(),)
    workers: int = 2
    clients: int = 1
    events: int = 10
    """Events per client."""
    moments: tuple[float, ...] = ()
    """If given, all events arrive at these moments, so that workers claim more than they can attempt at once."""
    chaos_seconds: float = 10
    skew_seconds: float = 0
    store_fault_rate: float = 0
    kills: int = 0
    freezes: int = 0
    stops: int = 0
    acts: int = 0
    endpoint_acts: int = 0
    client_kills: int = 0
    poison: bool = False


def draw(seed: int) -> Scenario:
    """Draw a seed's scenario. One seed in ten has no faults, so behaviour that needs a fault must not occur."""
    random = Random(f"scenario {seed}")
    calm = random.random() < 0.1
    shape = Scenario(
        endpoints=tuple(_draw_endpoint(random) for _ in range(random.randint(1, 4))),
        workers=random.randint(1, 3),
        clients=random.randint(1, 2),
        events=random.choice((4, 12, 30)),
        moments=tuple(random.uniform(0, 5) for _ in range(random.choice((0, 1, 3)))),
        skew_seconds=random.choice((0, 0.2, 1)),
    )
    return shape if calm else _disturbed(shape, random)


def _draw_endpoint(random: Random) -> EndpointPlan:
    return EndpointPlan(
        random.choice(("ok", "ok", "slow", *PERSONALITIES)),
        random.choice((None, None, (), (0, 0), (0.3,), (0.2, 1, 2))),
        random.choice((None, None, None, None, 1, 3)),
        random.choice((None, None, None, None, 8.0)),
        CircuitRules(failures_max=random.choice((2, 5)), open_seconds=random.choice((1, 4))),
        random.random() < 0.2,
    )


def _disturbed(shape: Scenario, random: Random) -> Scenario:
    return shape._replace(
        store_fault_rate=random.choice((0, 0, 0.05, 0.2)),
        kills=random.choice((0, 1, 3)),
        freezes=random.choice((0, 1, 3)),
        stops=random.choice((0, 1, 2)),
        acts=random.choice((0, 4, 10)),
        endpoint_acts=random.choice((0, 0, 1, 3)),
        client_kills=random.choice((0, 0, 0, 1)),
        poison=random.random() < 0.1,
    )
