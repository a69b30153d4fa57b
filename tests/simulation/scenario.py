"""What a seed determines: how many endpoints, workers and events there are, and how many faults occur."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from doorstep.engine.directory import Tuning
from doorstep.model.endpoint import CircuitRules, RetryPolicy
from doorstep.policy.retry import BUILT_IN
from tests.simulation.network import OUTAGES, PERSONALITIES

_DRAWN = tuple(name for name in PERSONALITIES if name != "failing")
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
    retry_on_recovery: bool = False


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
    served: bool = False
    """Whether the workers accept the events, like `doorstep serve`, and claim deliveries while they do."""
    poison: bool = False
    outage: str | None = None
    """The personality of all receivers from `outage_at` until everything is healed."""
    outage_at: float = 0
    quiet_seconds: int = 150
    """How long to wait after healing until nothing is open."""


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
    shape = shape._replace(served=Random(f"served {seed}").random() < 0.5)  # leaves the other draws as they are
    return shape if calm else _disturbed(shape, random)


def _draw_endpoint(random: Random) -> EndpointPlan:
    return EndpointPlan(
        random.choice(("ok", "ok", "slow", *_DRAWN)),
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


def draw_outage(seed: int) -> Scenario:
    """Draw an outage of all receivers, of two seconds to four minutes, with the default policy and circuit. In half of
    the seeds, other faults occur too, before and during the outage."""
    random = Random(f"outage {seed}")
    outage_at, seconds = random.uniform(3, 8), 2 * 120 ** random.random()
    plan = EndpointPlan(delays=BUILT_IN["standard"].delays, circuit=CircuitRules(), retry_on_recovery=True)
    shape = Scenario(
        endpoints=(plan,) * random.randint(1, 3),
        workers=random.randint(1, 3),
        events=random.choice((20, 40)),
        chaos_seconds=outage_at + seconds,
        outage=random.choice(OUTAGES),
        outage_at=outage_at,
    )
    disturbed = random.random() < 0.5
    return (
        shape._replace(store_fault_rate=random.choice((0, 0.05)), kills=2, freezes=1, stops=1) if disturbed else shape
    )
