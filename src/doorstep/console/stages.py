"""What the statuses of a pipeline mean to people, whatever their program calls them: words, colours, numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from doorstep.model.listing import Count
from doorstep.pipelines.plan import Gate, Plan

_UNKNOWN = "no longer declared"
_TONES = {
    "begins here": "queued",
    "stage": "running",
    "waits for a person": "held",
    "ends here": "delivered",
    "to be tried again": "failed",
    "given up": "failed",
    "given up long ago": "quiet",
    _UNKNOWN: "quiet",
}
"""The colour of each meaning, as badges and bars are called."""


class StatusCount(NamedTuple):
    """One status of a pipeline, and how many entities have it."""

    status: str
    meaning: str
    number: Count

    @property
    def tone(self) -> str:
        return _TONES[self.meaning]


class StatusCounts(NamedTuple):
    way: list[StatusCount]
    """The statuses of a good life, in order."""
    aside: list[StatusCount]
    """Those beside it: failures, and what the declaration does not know."""


def status_counts(plan: Plan, counts: Mapping[str, Count]) -> StatusCounts:
    known = _meanings(plan)
    every = [StatusCount(status, known.get(status, _UNKNOWN), count) for status, count in counts.items()]
    way = {plan.first, plan.last, *(step.name for step in plan.steps)}
    return StatusCounts([one for one in every if one.status in way], [one for one in every if one.status not in way])


def tone_of(plan: Plan, status: str) -> str:
    return _TONES[_meanings(plan).get(status, _UNKNOWN)]


def _meanings(plan: Plan) -> dict[str, str]:
    """What each status of the declaration means."""
    return {
        plan.first: "begins here",
        **{step.name: "waits for a person" if isinstance(step, Gate) else "stage" for step in plan.steps},
        plan.last: "ends here",
        **{stage.failed: "to be tried again" for stage in plan.stages},
        plan.dead: "given up",
        plan.archived: "given up long ago",
    }
