"""The pipelines of the program around: their stages with how many entities are where, and the lists behind them."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response

from doorstep.console.page import Pages
from doorstep.console.places import place_of_entity
from doorstep.console.stages import StatusCounts, status_counts, tone_of
from doorstep.console.visit import Visit
from doorstep.errors import NotFound
from doorstep.model.entity import Entity
from doorstep.pipelines.pipeline import Pipeline
from doorstep.stores.bounds import COUNT_MAX

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
async def show_all(visit: Visit) -> Response:
    own = [one for one in visit.doorstep.pipelines.values() if one.org_id == visit.org_id]
    limit = min(COUNT_MAX, _COUNTED_MAX // max(1, len(own)))
    return visit.page(
        "pipelines.html",
        rows=[(one, await _counts(one, limit)) for one in own],
        elsewhere=await _elsewhere(visit, {one.name for one in own}),
    )


@PAGES.get("/{pipeline}")
async def show(visit: Visit) -> Response:
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


def named(visit: Visit) -> Pipeline:
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


async def _elsewhere(visit: Visit, own: set[str]) -> list[str]:
    """Pipelines that some worker has, and the program of this server does not."""
    declared = await visit.doorstep.components.store.declared_pipelines()
    return sorted(name for org_id, name in declared if org_id == visit.org_id and name not in own)
