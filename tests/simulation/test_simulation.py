"""Every promise holds for every seed, and a seed always produces the same story, so a failing seed can be replayed.

TORTURE=1 runs forty times as many seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.simulation.checker import check
from tests.simulation.run import simulate, verdict
from tests.support.patience import PATIENCE_SECONDS

_BLOCK = 50
_BLOCKS = 800 if os.environ.get("TORTURE") else 20
_QUICK_BLOCKS = 4
"""The number of blocks that `make test` runs; `make test-all` runs all of them."""


def _blocks() -> Iterator[object]:
    for number in range(_BLOCKS):
        yield pytest.param(number * _BLOCK, marks=[pytest.mark.full] if number >= _QUICK_BLOCKS else [])


@pytest.mark.parametrize("first", list(_blocks()))
def test_every_promise_holds_whatever_goes_wrong(first: int) -> None:
    problems = [verdict(simulate(seed)) for seed in range(first, first + _BLOCK)]
    assert not any(problems), "\n".join(filter(None, problems))


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_tells_the_same_story_twice(seed: int) -> None:
    assert list(simulate(seed).trace.lines()) == list(simulate(seed).trace.lines())


def test_a_story_does_not_depend_on_the_order_of_hashes() -> None:
    stories = {_told_by_another_process(hash_seed) for hash_seed in ("1", "2")}
    assert len(stories) == 1
    assert len(stories.pop().splitlines()) > 100


def test_different_seeds_tell_different_stories() -> None:
    assert len({"\n".join(simulate(seed).trace.lines()) for seed in range(5)}) == 5


def test_the_seeds_cover_what_the_promises_are_about() -> None:
    """A simulation without faults proves nothing, so a few seeds together must show every kind of fault and outcome."""
    seen: set[str] = set()
    for seed in range(2 * _BLOCK):
        story = simulate(seed)
        assert not check(story)
        seen |= {one.kind for one in story.disturbances}
        seen |= {f"{step.verb} refused as late" if step.late else step.verb for step in story.steps}
        seen |= {str(life.delivery.state) for life in story.lives.values()}
        seen |= {str(step.settlement.outcome.code) for step in story.steps if step.settlement}
        seen |= {"blocked" for step in story.steps if step.after and step.after.blocked}
    wanted = {
        "killed",
        "frozen",
        "stopped",
        "poisoned",
        "release",
        "act",
        "dead_letter_waiting",
        "settle refused as late",
    }
    wanted |= {"delivered", "dead", "resolved", "cancelled", "blocked", "expire"}
    assert wanted | {"WORKER_LOST", "TIMEOUT", "RATE_LIMIT", "GONE", "ABORTED", "EXPIRED"} <= seen


def _told_by_another_process(hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", "--seed", "3", "--trace"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    told = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    ).stdout
    return told.rpartition("\n1 seeds")[0]
