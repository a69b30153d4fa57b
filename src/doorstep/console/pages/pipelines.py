"""Pipelines with their entities, and the page of one entity."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from starlette.responses import Response

from doorstep.console.audit_subjects import place_of_entity
from doorstep.console.confirm import Confirmation, confirmed
from doorstep.console.entities import StatusCounts, life_of, status_counts, tone_of
from doorstep.console.formatting import pretty
from doorstep.console.page import Pages
from doorstep.console.request import HOME, PageRequest
from doorstep.errors import NotFound
from doorstep.model.entity import Entity, Phase
from doorstep.model.event import EventView
from doorstep.pipelines.pipeline import Pipeline
from doorstep.stores.limits import COUNT_MAX

PAGES = Pages("/pipelines")
_LIMIT = 50
_COUNTED_MAX = 30_000
"""Entities of one status that are counted, of all pipelines of a page together: so many take some 100 ms."""


class Line(NamedTuple):
    """One entity of a list."""

    entity: Entity
    tone: str
    retryable: bool
    place: str


@PAGES.get()
async def show_all(visit: PageRequest) -> Response:
    own = [one for one in visit.doorstep.pipelines.values() if one.org_id == visit.org_id]
    limit = min(COUNT_MAX, _COUNTED_MAX // max(1, len(own)))
    return visit.page(
        "pipelines.html",
        rows=[(one, await _counts(one, limit)) for one in own],
        elsewhere=await _elsewhere(visit, {one.name for one in own}),
    )


@PAGES.get("/{pipeline}")
async def show(visit: PageRequest) -> Response:
    pipeline, query = named(visit), visit.query
    page = await pipeline.list(
        query.text("status"), archived=query.flag("archived"), cursor=query.text("cursor"), limit=_LIMIT
    )
    return visit.page(
        "pipeline.html",
        pipeline=pipeline,
        counts=await _counts(pipeline, COUNT_MAX),
        lines=[_line(pipeline, one) for one in page.items],
        next=page.next,
    )


def named(visit: PageRequest) -> Pipeline:
    """The pipeline in the path. That of another organization is unknown here."""
    name = visit.text("pipeline")
    found = visit.doorstep.pipelines.get(name)
    if found is None or found.org_id != visit.org_id:
        raise NotFound(f"no pipeline {name}")
    return found


async def _counts(pipeline: Pipeline, limit: int) -> StatusCounts:
    return status_counts(pipeline.plan, await pipeline.counts(limit))


def _line(pipeline: Pipeline, entity: Entity) -> Line:
    plan = pipeline.plan
    place = place_of_entity(pipeline.name, entity.entity_id)
    return Line(entity, tone_of(plan, entity.status), plan.can_retry(entity.status), place)


async def _elsewhere(visit: PageRequest, own: set[str]) -> list[str]:
    """Pipelines that some worker has, and the program of this server does not."""
    declared = await visit.doorstep.components.store.declared_pipelines()
    return sorted(name for org_id, name in declared if org_id == visit.org_id and name not in own)


ENTITY_PAGES = Pages("/pipelines/{pipeline}/{entity_id}")
_CHANGES_SHOWN = 200
_DELETE = Confirmation(
    "Delete",
    "Its data and its history are erased, whatever its status. What a stage of it still does changes nothing.",
)
_DATA_CHARACTERS_MAX = 64 * 1024


@ENTITY_PAGES.get()
async def show_entity(visit: PageRequest) -> Response:
    pipeline, entity_id = _named(visit)
    plan = pipeline.plan
    entity, history = await pipeline.entity(entity_id), await pipeline.history(entity_id)
    return visit.page(
        "entity.html",
        pipeline=pipeline,
        entity=entity,
        tone=tone_of(plan, entity.status),
        declared=entity.status in plan.phases,
        data=pretty(msgspec.json.encode(entity.data)),
        data_characters_max=_DATA_CHARACTERS_MAX,
        event=await _event(visit, entity),
        life=life_of(plan, history[-_CHANGES_SHOWN:], visit.now),
        changes_before=max(0, len(history) - _CHANGES_SHOWN),
        place=place_of_entity(pipeline.name, entity_id),
        at_gate=entity.status in plan.gates,
        retryable=plan.can_retry(entity.status),
        seconds=2 if entity.phase is Phase.RUNNING else 10,
    )


@ENTITY_PAGES.post("/retry")
async def retry(visit: PageRequest) -> Response:
    pipeline, entity_id = _named(visit)
    await pipeline.retry(entity_id, visit.actor)
    return visit.done(f"{pipeline.name} {entity_id} goes through again from the start.")


@ENTITY_PAGES.post("/gates/{gate}/approve")
async def approve(visit: PageRequest) -> Response:
    """The gate is in the path: what is decided about is what was seen, not a gate further on."""
    pipeline, entity_id = _named(visit)
    await pipeline.approve(entity_id, visit.actor, gate=visit.text("gate"))
    return visit.done(f"{pipeline.name} {entity_id} was approved.")


async def _asking_to_reject(visit: PageRequest) -> tuple[str, Confirmation]:
    dead = named(visit).plan.dead.replace("_", " ")
    return await _about(visit, Confirmation("Reject", f"Its status becomes {dead}. It can still be retried."))


@confirmed(ENTITY_PAGES, "/gates/{gate}/reject", _asking_to_reject)
async def reject(visit: PageRequest, reason: str) -> Response:
    pipeline, entity_id = _named(visit)
    await pipeline.reject(entity_id, visit.actor, reason, gate=visit.text("gate"))
    return visit.done(f"{pipeline.name} {entity_id} was rejected.")


async def _asking_to_delete(visit: PageRequest) -> tuple[str, Confirmation]:
    return await _about(visit, _DELETE)


@confirmed(ENTITY_PAGES, "/delete", _asking_to_delete)
async def delete(visit: PageRequest, reason: str) -> Response:
    pipeline, entity_id = _named(visit)
    await pipeline.delete(entity_id, visit.actor, reason)
    return visit.done(f"{pipeline.name} {entity_id} was deleted.", f"{HOME}/pipelines/{pipeline.name}")


async def _about(visit: PageRequest, question: Confirmation) -> tuple[str, Confirmation]:
    pipeline, entity_id = _named(visit)
    entity = await pipeline.entity(entity_id)
    return f"{question.act} {pipeline.name} {entity.entity_id}?", question


def _named(visit: PageRequest) -> tuple[Pipeline, str]:
    return named(visit), visit.text("entity_id")


async def _event(visit: PageRequest, entity: Entity) -> EventView | None:
    """The event of its present stage; None where there is none, or it was deleted."""
    try:
        return (
            None
            if entity.event_id is None
            else await visit.doorstep.components.reader.event(visit.org_id, entity.event_id)
        )
    except NotFound:
        return None
