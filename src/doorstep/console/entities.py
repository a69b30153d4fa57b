"""The life of an entity, to scale: one stretch for each status that it had, in order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from doorstep.clock import Instant
from doorstep.console.formatting import exactly, lasting
from doorstep.console.timeline import Bar, Mark, Scale, wide
from doorstep.model.entity import EntityChange
from doorstep.model.listing import Count
from doorstep.pipelines.plan import Gate, Plan


class Stretch(NamedTuple):
    """From one change of its status to the next."""

    change: EntityChange
    tone: str
    bar: Bar
    lasted: Instant | None
    """None for the status that it ended with."""


class Life(NamedTuple):
    stretches: tuple[Stretch, ...]
    marks: tuple[Mark, ...]


def life_of(plan: Plan, history: Sequence[EntityChange], now: Instant) -> Life:
    """Until now, unless it has come to an end: what is complete or dead does not stretch the rest away."""
    if not history:
        return Life((), ())
    last = history[-1]
    over = last.new_status in (plan.last, plan.dead, plan.archived)
    end = last.at if over else max(now, last.at)
    scale = Scale(history[0].at, max(end, history[0].at + 1_000))
    ends: list[Instant | None] = [*(line.at for line in history[1:]), None if over else end]
    lines = zip(history, ends, strict=True)
    return Life(tuple(_stretch(plan, scale, line, until) for line, until in lines), scale.marks())


def _stretch(plan: Plan, scale: Scale, change: EntityChange, until: Instant | None) -> Stretch:
    lasted = None if until is None else until - change.at
    tone, status = tone_of(plan, change.new_status), change.new_status.replace("_", " ")
    title = (
        f"{status}\nfrom {exactly(change.at)}"
        if lasted is None
        else f"{status}: {lasting(lasted)}\nfrom {exactly(change.at)}"
    )
    bar = wide(scale.bar(change.at, change.at if until is None else until, tone, title))
    return Stretch(change, tone, bar, lasted)


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
