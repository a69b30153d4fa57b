"""Checks what became of a pipeline's entities when its workers died."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from doorstep import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.listing import AuditFilter
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Plan
from doorstep.schemas.pipelines import Entity, EntityChange

_ACTS = {"entity.approve": "approved by", "entity.reject": "rejected by", "entity.retry": "retried by"}
"""For each audit action, the first words of the matching history entry."""


class Life(NamedTuple):
    """One entity with all its evidence."""

    entity: Entity
    lines: Sequence[EntityChange]
    audited: Counter[str]
    """How often each action is in the audit log."""
    effects: Counter[str]
    """How often each stage did its work."""

    @property
    def done(self) -> list[str]:
        """The stages that succeeded, in order."""
        return [line.reason.removesuffix(" done") for line in self.lines if line.reason.endswith(" done")]


async def lives_of(doorstep: Doorstep, pipeline: Pipeline, effects: Path) -> list[Life]:
    audited: dict[str, Counter[str]] = {}
    async for act, entity_id in _acts(doorstep):
        audited.setdefault(entity_id, Counter())[act] += 1
    worked: dict[str, Counter[str]] = {}
    for stage, entity_id in (line.split() for line in effects.read_text().splitlines()):
        worked.setdefault(entity_id, Counter())[stage] += 1
    return [
        Life(
            one,
            await pipeline.history(one.entity_id),
            audited.get(one.entity_id, Counter()),
            worked.get(one.entity_id, Counter()),
        )
        async for one in all_entities(pipeline)
    ]


async def all_entities(pipeline: Pipeline) -> AsyncIterator[Entity]:
    cursor = None
    while True:
        page = await pipeline.list(archived=True, cursor=cursor, limit=200)
        for one in page.items:
            yield one
        if (cursor := page.next) is None:
            return


async def _acts(doorstep: Doorstep) -> AsyncIterator[tuple[str, str]]:
    for act in _ACTS:
        cursor = None
        while True:
            page = await doorstep.components.store.page(DEFAULT_ORG, AuditFilter(action=act), cursor, 200)
            for line in page.items:
                yield act, line.subjects[1]
            if (cursor := page.next) is None:
                break


def faults(plan: Plan, lives: Sequence[Life], expected: int) -> list[str]:
    """Everything that must not happen. A pure function, so a test can prove that it finds faults."""
    found = [] if len(lives) == expected else [f"{len(lives)} of {expected} entities are there"]
    for life in lives:
        found += [f"{life.entity.entity_id}: {fault}" for fault in (*_ends(plan, life), *_steps(plan, life))]
    return found


def _ends(plan: Plan, life: Life) -> Iterator[str]:
    entity = life.entity
    code = entity.metadata.get("error", {}).get("code")
    if entity.status == plan.dead and code == "LOST":
        yield "nothing carried it on"
    elif entity.status != plan.last:
        yield f"it ended as {entity.status} ({code})"
    elif entity.error_reason is not None or "error" in entity.metadata:
        yield f"it is complete, and has the error {code}"
    if entity.data.get("did", []) != life.done:
        yield f"its data say {entity.data}, its history {life.done}"


def _steps(plan: Plan, life: Life) -> Iterator[str]:
    """Check that the history is continuous and each step declared, and that actions and results match their records."""
    if life.lines[-1].new_status != life.entity.status:
        yield f"it is {life.entity.status}, and its history ends with {life.lines[-1].new_status}"
    for before, after in pairwise(life.lines):
        if after.old_status != before.new_status:
            yield f"after {before.new_status} came a step from {after.old_status}"
        if (after.old_status, after.new_status) not in plan.transitions:
            yield f"it went from {after.old_status} to {after.new_status}"
    for act, words in _ACTS.items():
        told = sum(line.reason.startswith(words) for line in life.lines)
        if told != life.audited[act]:
            yield f"{act} is {life.audited[act]} times in the audit log and {told} times in its history"
    yield from (f"{stage} left no effect" for stage in (Counter(life.done) - life.effects))
