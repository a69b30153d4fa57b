"""The PipelineKeeper: ends entities whose stage nobody will try any more, says of others that their stage failed where
that could not say so itself, and archives those that nobody touched.

It is told at once what fails and dies in its own process. What dies elsewhere, or while nobody listened, it finds by going
through the running entities, a window at a time, over and over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeGuard
from uuid import UUID

from doorstep.clock import SECOND, Clock, Instant, seconds, to_iso
from doorstep.errors import StoreError
from doorstep.model.delivery import DeliveryState
from doorstep.model.entity import Entity
from doorstep.pipelines import moves
from doorstep.pipelines.carriers import Carriers
from doorstep.pipelines.moves import Turn
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Plan
from doorstep.pipelines.stage_handler import keep
from doorstep.stores.store import Store
from doorstep.telemetry.facts import DeliveryFailure, DeliveryTransition, Fact, Notice, Telemetry
from doorstep.telemetry.redaction import safe_message

_SWEEP_EVERY_SECONDS = 10.0
"""Between two walks through the running entities of a pipeline."""
_WINDOW = 500
_WINDOW_PAUSE_SECONDS = 0.1
_HEARD_MAX = 10_000
"""More deaths than this at once are left to the walk."""
_ENDED = frozenset({DeliveryState.DEAD.value, DeliveryState.CANCELLED.value})


class PipelineReconciler:
    name = "pipeline keeper"

    def __init__(self, pipelines: Sequence[Pipeline], store: Store, clock: Clock, telemetry: Telemetry) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._carriers = Carriers(store)
        self._walks = [_Walk(pipeline) for pipeline in pipelines]
        self._begun = False
        self.wake = asyncio.Event()

    def hear(self, facts: Sequence[Fact]) -> None:
        """A delivery ended without success, or a try of it in silence: look whether an entity waits for it."""
        told = [one.event_id for one in facts if _is_of_interest(one, self._carriers.untold)]
        if told:
            for walk in self._walks:
                walk.heard += told[: _HEARD_MAX - len(walk.heard)]
            self.wake.set()

    async def run_once(self) -> float | None:
        """For each pipeline what was heard of; and when its walk is due, one window of it and one batch to archive.

        A pipeline that fails holds up no other, and forgets nothing that it heard.
        """
        if not self._begun:
            self._tell_missing()
        troubles: list[Exception] = []
        for walk in self._walks:
            try:
                await self._look_after(walk)
            except Exception as error:  # noqa: BLE001  raised below, when the others have had their turn
                troubles.append(error)
        if troubles:
            raise troubles[0]
        next_at = min((walk.due_at for walk in self._walks), default=None)
        return None if next_at is None else max(0.0, (next_at - self._clock.now()) / SECOND)

    async def _look_after(self, walk: _Walk) -> None:
        pipeline = walk.pipeline
        if heard := list(walk.heard):
            await self._look_into(pipeline, await self._store.expecting(pipeline.org_id, pipeline.name, heard))
            del walk.heard[: len(heard)]
        if self._clock.now() < walk.due_at:
            return
        more_to_do = await self._archive(pipeline)
        endpoint_ids = await self._carriers.endpoints_of(pipeline.org_id, pipeline.name)
        page = await self._store.adrift(pipeline.org_id, pipeline.name, endpoint_ids, walk.cursor, _WINDOW)
        await self._look_into(pipeline, page.items)
        soon = more_to_do or page.next is not None
        walk.cursor = page.next
        walk.due_at = self._clock.now() + seconds(_WINDOW_PAUSE_SECONDS if soon else _SWEEP_EVERY_SECONDS)

    async def _look_into(self, pipeline: Pipeline, entities: Sequence[Entity]) -> None:
        """If someone else was faster, the next look sees what is left to do."""
        for entity in entities:
            with self._telling(entity):
                if turn := await self._turn_of(pipeline.plan, entity):
                    await keep(self._store, self._telemetry, turn)

    async def _turn_of(self, plan: Plan, entity: Entity) -> Turn | None:
        """What has become of it, if its stage could not say so: given up, or failed and to be tried again.

        The entity was read before its delivery: a try that begins from here on changes it, and is not written over.
        """
        trouble, setback = await self._carriers.fate_of(entity)
        if trouble is not None:
            return moves.given_up(plan, entity, trouble, self._clock.now())
        stage = next((one for one in plan.stages if one.name == entity.status), None)
        if stage is not None and setback is not None:
            return moves.failed(plan, entity, stage, setback, self._clock.now())
        return None

    async def _archive(self, pipeline: Pipeline) -> bool:
        now = self._clock.now()
        found = await self._store.untouched(pipeline.org_id, pipeline.name, pipeline.dead_before(now), _WINDOW)
        for entity in found:
            with self._telling(entity):
                await keep(self._store, self._telemetry, moves.archived(pipeline.plan, entity, now))
        return len(found) == _WINDOW

    @contextmanager
    def _telling(self, entity: Entity) -> Iterator[None]:
        """What is wrong with one entity is told, and holds up no other. A store that fails does so for all."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the others must go on
            fields: dict[str, object] = {
                "pipeline": entity.pipeline,
                "entity_id": entity.entity_id,
                "status": entity.status,
                "error": safe_message(error),
            }
            message = "an entity could not be moved on"
            self._telemetry.emit(Notice(at=to_iso(self._clock.now()), level="error", message=message, fields=fields))

    def _tell_missing(self) -> None:
        self._begun = True
        for walk in self._walks:
            if missing := list(walk.pipeline.missing):
                message = "a pipeline has stages without a function in this process; other workers must have them"
                fields: dict[str, object] = {"pipeline": walk.pipeline.name, "stages": missing}
                self._telemetry.emit(
                    Notice(at=to_iso(self._clock.now()), level="warning", message=message, fields=fields)
                )


def _is_of_interest(fact: Fact, untold: Collection[str]) -> TypeGuard[DeliveryTransition | DeliveryFailure]:
    """To look for every failure would cost each a read."""
    if isinstance(fact, DeliveryTransition):
        return fact.new_state in _ENDED
    return isinstance(fact, DeliveryFailure) and fact.next_retry_at is not None and fact.error["code"] in untold


class _Walk:
    """How far the walks through a pipeline's entities have come, and the events heard of that it may wait for."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.heard: list[UUID] = []
        self.cursor: str | None = None
        self.due_at: Instant = 0
