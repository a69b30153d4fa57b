"""The PipelineKeeper: ends entities whose stage nobody will try any more, and archives those that nobody touched.

It is told at once what dies in its own process. What dies elsewhere, or while nobody listened, it finds by going
through the running entities, a window at a time, over and over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.model.delivery import DeliveryState
from doorstep.model.entity import Entity
from doorstep.pipelines import moves
from doorstep.pipelines.carriers import Carriers
from doorstep.pipelines.host import keep
from doorstep.pipelines.moves import Turn
from doorstep.pipelines.pipeline import Pipeline
from doorstep.stores.store import Store
from doorstep.telemetry import DeliveryTransition, Fact, Notice, Telemetry

_SWEEP_EVERY_SECONDS = 10.0
"""Between two walks through the running entities of a pipeline."""
_WINDOW = 500
_WINDOW_PAUSE_SECONDS = 0.1
_HEARD_MAX = 10_000
"""More deaths than this at once are left to the walk."""
_ENDED = frozenset({DeliveryState.DEAD.value, DeliveryState.CANCELLED.value})


class PipelineKeeper:
    name = "pipeline keeper"

    def __init__(self, pipelines: Sequence[Pipeline], store: Store, clock: Clock, telemetry: Telemetry) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._carriers = Carriers(store)
        self._walks = [_Walk(pipeline) for pipeline in pipelines]
        self._heard: list[UUID] = []
        self._begun = False
        self.wake = asyncio.Event()

    def hear(self, facts: Sequence[Fact]) -> None:
        """A delivery ended without success: look whether an entity waits for it."""
        ended = [one.event_id for one in facts if isinstance(one, DeliveryTransition) and one.new_state in _ENDED]
        if ended:
            self._heard += ended[: _HEARD_MAX - len(self._heard)]
            self.wake.set()

    async def run_once(self) -> float | None:
        """For each pipeline what was heard of; and when its walk is due, one window of it and one batch to archive."""
        if not self._begun:
            self._tell_missing()
        heard, self._heard = self._heard, []
        for walk in self._walks:
            await self._look_after(walk, heard)
        next_at = min((walk.due_at for walk in self._walks), default=None)
        return None if next_at is None else max(0.0, (next_at - self._clock.now()) / SECOND)

    async def _look_after(self, walk: _Walk, heard: Sequence[UUID]) -> None:
        pipeline = walk.pipeline
        if heard:
            await self._give_up(pipeline, await self._store.expecting(pipeline.org_id, pipeline.name, heard))
        if self._clock.now() < walk.due_at:
            return
        more_to_archive = await self._archive(pipeline)
        endpoint_ids = await self._carriers.endpoints_of(pipeline.org_id, pipeline.name)
        page = await self._store.adrift(pipeline.org_id, pipeline.name, endpoint_ids, walk.cursor, _WINDOW)
        await self._give_up(pipeline, page.items)
        soon = more_to_archive or page.next is not None
        walk.cursor = page.next
        walk.due_at = self._clock.now() + seconds(_WINDOW_PAUSE_SECONDS if soon else _SWEEP_EVERY_SECONDS)

    async def _give_up(self, pipeline: Pipeline, entities: Sequence[Entity]) -> None:
        for entity in entities:
            trouble = await self._carriers.trouble_of(entity)
            if trouble is not None:
                await self._keep(moves.given_up(pipeline.plan, entity, trouble, self._clock.now()))

    async def _archive(self, pipeline: Pipeline) -> bool:
        now = self._clock.now()
        found = await self._store.untouched(pipeline.org_id, pipeline.name, pipeline.dead_before(now), _WINDOW)
        for entity in found:
            await self._keep(moves.archived(pipeline.plan, entity, now))
        return len(found) == _WINDOW

    async def _keep(self, turn: Turn) -> None:
        """If someone else was faster, the next look sees what is left to do."""
        await keep(self._store, self._telemetry, turn)

    def _tell_missing(self) -> None:
        self._begun = True
        for walk in self._walks:
            if missing := list(walk.pipeline.missing):
                message = "a pipeline has stages without a function in this process; other workers must have them"
                fields: dict[str, object] = {"pipeline": walk.pipeline.name, "stages": missing}
                self._telemetry.emit(Notice(at=self._clock.now(), level="warning", message=message, fields=fields))


class _Walk:
    """How far the walk through a pipeline's running entities has come."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.cursor: str | None = None
        self.due_at: Instant = 0
