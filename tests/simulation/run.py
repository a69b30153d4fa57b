"""Runs a seed and checks the result."""

from __future__ import annotations

from tests.simulation.checker import check
from tests.simulation.nemesis import disturb
from tests.simulation.scenario import draw
from tests.simulation.story import Story
from tests.simulation.world import World

_TOLD_MAX = 5


def simulate(seed: int) -> Story:
    """The story of a seed, which is the same every time."""
    return World(seed, draw(seed)).play(disturb)


def verdict(story: Story) -> str | None:
    """None if every promise was kept; otherwise the broken promises and the command that replays the run."""
    broken = check(story)
    if not broken:
        return None
    lines = [f"seed {story.seed} breaks promises; see it again: python -m tests.simulation --seed {story.seed} --trace"]
    for promise, breaches in broken.items():
        lines += [f"  {promise.replace('_', ' ')}:", *(f"    - {breach}" for breach in breaches[:_TOLD_MAX])]
    return "\n".join(lines)
