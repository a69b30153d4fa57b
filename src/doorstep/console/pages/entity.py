"""One entity of a pipeline: where it stands and why, its way there to scale, and what can be done about it."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from doorstep.console.confirming import Confirmation, confirmed
from doorstep.console.drawing import pretty
from doorstep.console.entity_life import life_of
from doorstep.console.page import Pages
from doorstep.console.pages.pipelines import named
from doorstep.console.places import place_of_entity
from doorstep.console.stages import tone_of
from doorstep.console.visit import HOME, Visit
from doorstep.errors import NotFound
from doorstep.model.entity import Entity, Phase
from doorstep.model.event import EventView
from doorstep.pipelines.pipeline import Pipeline

PAGES = Pages("/pipelines/{pipeline}/{entity_id}")
_CHANGES_SHOWN = 200
_DELETE = Confirmation(
    "Delete",
    "Its data and its history are erased, whatever its status. What a stage of it still does changes nothing.",
)
_DATA_CHARACTERS_MAX = 64 * 1024


@PAGES.get()
async def show(visit: Visit) -> Response:
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


@PAGES.post("/retry")
async def retry(visit: Visit) -> Response:
    pipeline, entity_id = _named(visit)
    await pipeline.retry(entity_id, visit.actor)
    return visit.done(f"{pipeline.name} {entity_id} goes through again from the start.")


@PAGES.post("/gates/{gate}/approve")
async def approve(visit: Visit) -> Response:
    """The gate is in the path: what is decided about is what was seen, not a gate further on."""
    pipeline, entity_id = _named(visit)
    await pipeline.approve(entity_id, visit.actor, gate=visit.text("gate"))
    return visit.done(f"{pipeline.name} {entity_id} was approved.")


async def _asking_to_reject(visit: Visit) -> tuple[str, Confirmation]:
    dead = named(visit).plan.dead.replace("_", " ")
    return await _about(visit, Confirmation("Reject", f"Its status becomes {dead}. It can still be retried."))


@confirmed(PAGES, "/gates/{gate}/reject", _asking_to_reject)
async def reject(visit: Visit, reason: str) -> Response:
    pipeline, entity_id = _named(visit)
    await pipeline.reject(entity_id, visit.actor, reason, gate=visit.text("gate"))
    return visit.done(f"{pipeline.name} {entity_id} was rejected.")


async def _asking_to_delete(visit: Visit) -> tuple[str, Confirmation]:
    return await _about(visit, _DELETE)


@confirmed(PAGES, "/delete", _asking_to_delete)
async def delete(visit: Visit, reason: str) -> Response:
    pipeline, entity_id = _named(visit)
    await pipeline.delete(entity_id, visit.actor, reason)
    return visit.done(f"{pipeline.name} {entity_id} was deleted.", f"{HOME}/pipelines/{pipeline.name}")


async def _about(visit: Visit, question: Confirmation) -> tuple[str, Confirmation]:
    pipeline, entity_id = _named(visit)
    entity = await pipeline.entity(entity_id)
    return f"{question.act} {pipeline.name} {entity.entity_id}?", question


def _named(visit: Visit) -> tuple[Pipeline, str]:
    return named(visit), visit.text("entity_id")


async def _event(visit: Visit, entity: Entity) -> EventView | None:
    """The event of its present stage; None where there is none, or it was deleted."""
    try:
        return (
            None
            if entity.event_id is None
            else await visit.doorstep.components.reader.event(visit.org_id, entity.event_id)
        )
    except NotFound:
        return None
