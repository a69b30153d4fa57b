"""One entity of a pipeline: where it stands and why, its way there to scale, and what can be done about it."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from doorstep.console.confirming import Confirmation, asked_for, reason_of
from doorstep.console.drawing import pretty
from doorstep.console.entity_life import life_of
from doorstep.console.page import ACT, Pages
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


@PAGES.get("/gates/{gate}/reject", ACT)
async def ask_reject(visit: Visit) -> Response:
    dead = named(visit).plan.dead.replace("_", " ")
    return await _asked(visit, Confirmation("Reject", f"Its status becomes {dead}. It can still be retried."))


@PAGES.post("/gates/{gate}/reject")
async def reject(visit: Visit) -> Response:
    pipeline, entity_id = _named(visit)
    reason = reason_of(visit.form, required=True)
    await pipeline.reject(entity_id, visit.actor, reason, gate=visit.text("gate"))
    return visit.done(f"{pipeline.name} {entity_id} was rejected.")


@PAGES.get("/delete", ACT)
async def ask_delete(visit: Visit) -> Response:
    return await _asked(visit, _DELETE)


@PAGES.post("/delete")
async def delete(visit: Visit) -> Response:
    pipeline, entity_id = _named(visit)
    await pipeline.delete(entity_id, visit.actor, reason_of(visit.form, required=True))
    return visit.done(f"{pipeline.name} {entity_id} was deleted.", f"{HOME}/pipelines/{pipeline.name}")


async def _asked(visit: Visit, question: Confirmation) -> Response:
    pipeline, entity_id = _named(visit)
    entity = await pipeline.entity(entity_id)
    return asked_for(visit, f"{question.act} {pipeline.name} {entity.entity_id}?", question)


def _named(visit: Visit) -> tuple[Pipeline, str]:
    return named(visit), visit.text("entity_id")


async def _event(visit: Visit, entity: Entity) -> EventView | None:
    """The event of its present stage; None where there is none, or it was deleted."""
    try:
        return None if entity.event_id is None else await visit.doorstep.event(visit.org_id, entity.event_id)
    except NotFound:
        return None
