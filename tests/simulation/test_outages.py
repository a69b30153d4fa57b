"""R6.4 in the simulation: when the receivers are back, everything owed is tried again within 1 s and a quarter of the
outage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from doorstep.clock import SECOND
from doorstep.model.endpoint import CircuitState
from tests.simulation import sabotage
from tests.simulation.checker import check
from tests.simulation.nemesis import disturb
from tests.simulation.recovery_rules import judged_endpoints, owed_at_the_end, recovery_seconds, recovery_seconds_max
from tests.simulation.scenario import Scenario, draw_outage
from tests.simulation.story import Story
from tests.simulation.world import World

_SEEDS = 30
_PROMISE = "everything_owed_is_tried_again_soon_after_an_outage"
_HOUR = 3_600
_PROBES_MAX = 40


def _long_outage(seconds: float, kind: str) -> Story:
    """A calm installation with one endpoint, whose receiver is down for this long. Most events are sent when the outage
    begins, so that the circuit opens early."""
    scenario = Scenario(
        draw_outage(0).endpoints[:1],
        events=60,
        moments=(5.1, 6.0, 7.0, 5 + seconds / 2),
        chaos_seconds=5 + seconds,
        outage=kind,
        outage_at=5,
        quiet_seconds=400,
    )
    return World(1, scenario).play(disturb)


def test_every_promise_holds_through_outages() -> None:
    judged = 0
    for seed in range(_SEEDS):
        story = World(seed, draw_outage(seed)).play(disturb)
        assert not check(story), f"outage {seed}: {check(story)}"
        judged += any(owed_at_the_end(story, endpoint) for endpoint in judged_endpoints(story))
    print(f"the rule of recovery was applied to {judged} of {_SEEDS} outages")
    assert judged >= _SEEDS // 5


@pytest.mark.parametrize("kind", ["failing", "hanging"])
def test_after_ten_minutes_everything_owed_is_tried_within_a_second_and_a_quarter_of_that(kind: str) -> None:
    story = _long_outage(600, kind)
    (endpoint,) = story.endpoints.values()
    owed, took = len(owed_at_the_end(story, endpoint)), recovery_seconds(story, endpoint)
    print(
        f"10 minutes {kind}: the last of {owed} after {took:.1f} s; at most {recovery_seconds_max(story, endpoint):.1f}"
    )
    assert not check(story)
    assert owed >= 10
    assert took <= recovery_seconds_max(story, endpoint) <= 1 + 150 + 1 + 1.5 + 0.1 * 60


def test_in_the_first_hour_of_an_outage_the_receiver_is_probed_at_most_forty_times() -> None:
    story = _long_outage(_HOUR + 10, "failing")
    opened_at = min(at for at, fact in story.transitions if fact.new_state == CircuitState.OPEN)
    probes = [at for at, fact in story.transitions if fact.new_state == CircuitState.HALF_OPEN]
    first_hour = [at for at in probes if at <= opened_at + _HOUR * SECOND]
    print(f"{len(first_hour)} probes in the first hour")
    assert 30 <= len(first_hour) <= _PROBES_MAX


@pytest.mark.full
@pytest.mark.parametrize(
    "make",
    [
        lambda seed: World(seed, draw_outage(seed), make_worker=sabotage.pauses_for_minutes),
        lambda seed: World(seed, draw_outage(seed), store=sabotage.KeepsRetriesWhereTheyAre()),
    ],
    ids=["pauses_for_minutes", "KeepsRetriesWhereTheyAre"],
)
def test_a_slow_recovery_is_found_out(make: Callable[[int], World]) -> None:
    assert any(_PROMISE in check(make(seed).play(disturb)) for seed in range(_SEEDS)), f"not found by {_SEEDS} seeds"
