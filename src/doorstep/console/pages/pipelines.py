"""Pipelines and their entities, and the page of one entity with a timeline drawn to scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from doorstep.clock import Instant, from_datetime
from doorstep.console.confirm import Confirmation, confirmed
from doorstep.console.formatting import exactly, lasting, pretty
from doorstep.console.pages.audit import place_of_entity
from doorstep.console.pages.delivery import kept_event
from doorstep.console.request import HOME, PageRequest, Pages
from doorstep.console.timeline import Bar, Mark, Scale, wide
from doorstep.errors import NotFound
from doorstep.model.entity import Phase
from doorstep.model.listing import Count
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Gate, Plan
from doorstep.schemas.pipelines import EntityChange

PAGES = Pages("/pipelines")
_LIMIT = 50
_COUNTED_MAX = 30_000
"""The limit for counting the entities of each status, divided among the pipelines on the page. Counting this many takes
about 100 ms."""


@PAGES.get()
async def show_all(request: PageRequest) -> Response:
    own = [one for one in request.doorstep.registry.pipelines.values() if one.org_id == request.org_id]
    names = {one.name for one in own}
    limit = _COUNTED_MAX // max(3, len(own))  # at most 10,000 for each pipeline, as on the pipeline's own page
    return request.page(
        "pipelines.html",
        rows=[(one, status_counts(one.plan, await one.counts(limit))) for one in own],
        # declared by other programs, but not by this server
        elsewhere=[one for one in await request.reader.pipeline_names(request.org_id) if one not in names],
    )


@PAGES.get("/{pipeline}")
async def show(request: PageRequest) -> Response:
    pipeline, query = named(request), request.query
    plan = pipeline.plan
    page = await pipeline.list(
        query.text("status"), archived=query.flag("archived"), cursor=query.text("cursor"), limit=_LIMIT
    )
    return request.page(
        "pipeline.html",
        pipeline=pipeline,
        counts=status_counts(plan, await pipeline.counts()),
        rows=[(one, tone_of(plan, one.status), place_of_entity(pipeline.name, one.entity_id)) for one in page.items],
        next=page.next,
    )


def named(request: PageRequest) -> Pipeline:
    """The pipeline in the path; NotFound if it does not belong to this organization."""
    name = request.text("pipeline")
    found = request.doorstep.registry.pipelines.get(name)
    if found is None or found.org_id != request.org_id:
        raise NotFound(f"no pipeline {name}")
    return found


ENTITY_PAGES = Pages("/pipelines/{pipeline}/{entity_id}")
_CHANGES_SHOWN = 200
_DELETE = Confirmation(
    "Delete",
    "Its data and its history are erased, whatever its status. The result of a stage that is still running is ignored.",
)
_DATA_CHARACTERS_MAX = 64 * 1024


@ENTITY_PAGES.get()
async def show_entity(request: PageRequest) -> Response:
    pipeline, entity_id = _named(request)
    plan = pipeline.plan
    entity, history = await pipeline.entity(entity_id), await pipeline.history(entity_id)
    return request.page(
        "entity.html",
        pipeline=pipeline,
        entity=entity,
        tone=tone_of(plan, entity.status),
        declared=entity.status in plan.phases,
        data=pretty(msgspec.json.encode(entity.data)),
        data_characters_max=_DATA_CHARACTERS_MAX,
        event=await kept_event(request, entity.event_id) if entity.event_id else None,
        life=life_of(plan, history[-_CHANGES_SHOWN:], request.now),
        changes_before=max(0, len(history) - _CHANGES_SHOWN),
        place=place_of_entity(pipeline.name, entity_id),
        at_gate=entity.status in plan.gates,
        retryable=plan.can_retry(entity.status),
        seconds=2 if plan.phases.get(entity.status) is Phase.RUNNING else 10,
    )


@ENTITY_PAGES.post("/retry")
async def retry(request: PageRequest) -> Response:
    pipeline, entity_id = _named(request)
    await pipeline.retry(entity_id, request.actor)
    return request.done(f"{pipeline.name} {entity_id} starts again from its first stage.")


@ENTITY_PAGES.post("/gates/{gate}/approve")
async def approve(request: PageRequest) -> Response:
    """The path names the gate, so that the decision applies to the gate that the user saw and not to a later one."""
    pipeline, entity_id = _named(request)
    await pipeline.approve(entity_id, request.actor, gate=request.text("gate"))
    return request.done(f"{pipeline.name} {entity_id} was approved.")


async def _ask_reject(request: PageRequest) -> tuple[str, Confirmation]:
    dead = named(request).plan.dead.replace("_", " ")
    return await _question(request, Confirmation("Reject", f"Its status becomes {dead}. It can still be retried."))


@confirmed(ENTITY_PAGES, "/gates/{gate}/reject", _ask_reject)
async def reject(request: PageRequest, reason: str) -> Response:
    pipeline, entity_id = _named(request)
    await pipeline.reject(entity_id, request.actor, reason, gate=request.text("gate"))
    return request.done(f"{pipeline.name} {entity_id} was rejected.")


@confirmed(ENTITY_PAGES, "/delete", lambda request: _question(request, _DELETE))
async def delete(request: PageRequest, reason: str) -> Response:
    pipeline, entity_id = _named(request)
    await pipeline.delete(entity_id, request.actor, reason)
    return request.done(f"{pipeline.name} {entity_id} was deleted.", f"{HOME}/pipelines/{pipeline.name}")


async def _question(request: PageRequest, question: Confirmation) -> tuple[str, Confirmation]:
    pipeline, entity_id = _named(request)
    await pipeline.entity(entity_id)  # NotFound if there is none
    return f"{question.action} {pipeline.name} {entity_id}?", question


def _named(request: PageRequest) -> tuple[Pipeline, str]:
    return named(request), request.text("entity_id")


# -- the timeline of an entity, to scale -------------------------------------------------------------------


class Period(NamedTuple):
    """The time that an entity spent in one status."""

    change: EntityChange
    tone: str
    bar: Bar
    lasted: Instant | None
    """How long the entity was in the status; None for the final status."""


class Life(NamedTuple):
    periods: tuple[Period, ...]
    marks: tuple[Mark, ...]


def life_of(plan: Plan, history: Sequence[EntityChange], now: Instant) -> Life:
    """The timeline of an entity. If the entity has reached its final status, the timeline ends there, because showing
    the time since then would compress the rest. Otherwise it ends now."""
    if not history:
        return Life((), ())
    begins = [from_datetime(line.at) for line in history]
    over = history[-1].new_status in (plan.last, plan.dead, plan.archived)
    end = begins[-1] if over else max(now, begins[-1])
    scale = Scale(begins[0], max(end, begins[0] + 1_000))
    lines = zip(history, begins, [*begins[1:], None if over else end], strict=True)
    return Life(tuple(_period(plan, scale, *line) for line in lines), scale.marks())


def _period(plan: Plan, scale: Scale, change: EntityChange, at: Instant, until: Instant | None) -> Period:
    lasted = None if until is None else until - at
    tone, status = tone_of(plan, change.new_status), change.new_status.replace("_", " ")
    duration = "" if lasted is None else f": {lasting(lasted)}"
    title = f"{status}{duration}\nfrom {exactly(at)}"
    bar = wide(scale.bar(at, at if until is None else until, tone, title))
    return Period(change, tone, bar, lasted)


_UNKNOWN = "no longer declared"
_TONES = {
    "start": "queued",
    "stage": "running",
    "waits for approval": "held",
    "end": "delivered",
    "to be retried": "failed",
    "failed permanently": "failed",
    "failed permanently, archived": "quiet",
    _UNKNOWN: "quiet",
}
"""The CSS class of each meaning."""


class StatusCount(NamedTuple):
    """One status of a pipeline, and how many entities are in it."""

    status: str
    meaning: str
    number: Count

    @property
    def tone(self) -> str:
        return _TONES[self.meaning]


class StatusCounts(NamedTuple):
    path: list[StatusCount]
    """The statuses of a successful run, in order."""
    others: list[StatusCount]
    """Failures, and statuses that are no longer declared."""


def status_counts(plan: Plan, counts: Mapping[str, Count]) -> StatusCounts:
    known = _meanings(plan)
    every = [StatusCount(status, known.get(status, _UNKNOWN), count) for status, count in counts.items()]
    path = {plan.first, plan.last, *(step.name for step in plan.steps)}
    return StatusCounts([one for one in every if one.status in path], [one for one in every if one.status not in path])


def tone_of(plan: Plan, status: str) -> str:
    return _TONES[_meanings(plan).get(status, _UNKNOWN)]


def _meanings(plan: Plan) -> dict[str, str]:
    """The meaning of each declared status."""
    return {
        plan.first: "start",
        **{step.name: "waits for approval" if isinstance(step, Gate) else "stage" for step in plan.steps},
        plan.last: "end",
        **{stage.failed: "to be retried" for stage in plan.stages},
        plan.dead: "failed permanently",
        plan.archived: "failed permanently, archived",
    }
