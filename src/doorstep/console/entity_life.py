"""The life of an entity, to scale: one stretch for each status that it had, in order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from doorstep.clock import Instant
from doorstep.console.scale import Bar, Mark, Scale, wide
from doorstep.console.stages import tone_of
from doorstep.console.words import exactly, lasting
from doorstep.model.entity import EntityChange
from doorstep.pipelines.plan import Plan


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
