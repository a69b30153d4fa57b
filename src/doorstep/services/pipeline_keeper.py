"""The PipelineKeeper: ends entities whose stage nobody will try any more, archives those that nobody touched, and
removes those that were complete or archived for as long as they are kept.

It is told at once what dies in its own process. What dies elsewhere, or while nobody listened, it finds by going
through the running entities, a window at a time, over and over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from doorstep.clock import DAY, SECOND, Clock, Instant, seconds
from doorstep.errors import StoreError
from doorstep.model.delivery import DeliveryState
from doorstep.model.entity import Entity
from doorstep.path.tuning import Tuning
from doorstep.pipelines import moves
from doorstep.pipelines.carriers import Carriers
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.writing import keep
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

    def __init__(
        self, pipelines: Sequence[Pipeline], store: Store, clock: Clock, tuning: Tuning, telemetry: Telemetry
    ) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._retention: Instant = round(tuning.entity_retention_days * DAY)
        self._carriers = Carriers(store)
        self._walks = [_Walk(pipeline) for pipeline in pipelines]
        self._begun = False
        self.wake = asyncio.Event()

    def hear(self, facts: Sequence[Fact]) -> None:
        """A delivery ended without success: look whether an entity waits for it."""
        ended = [one.event_id for one in facts if isinstance(one, DeliveryTransition) and one.new_state in _ENDED]
        if ended:
            for walk in self._walks:
                walk.heard += ended[: _HEARD_MAX - len(walk.heard)]
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
            await self._give_up(pipeline, await self._store.expecting(pipeline.org_id, pipeline.name, heard))
            del walk.heard[: len(heard)]
        if self._clock.now() < walk.due_at:
            return
        more_to_do = await self._archive(pipeline) | await self._clean(walk)
        endpoint_ids = await self._carriers.endpoints_of(pipeline.org_id, pipeline.name)
        page = await self._store.adrift(pipeline.org_id, pipeline.name, endpoint_ids, walk.cursor, _WINDOW)
        await self._give_up(pipeline, page.items)
        soon = more_to_do or page.next is not None
        walk.cursor = page.next
        walk.due_at = self._clock.now() + seconds(_WINDOW_PAUSE_SECONDS if soon else _SWEEP_EVERY_SECONDS)

    async def _give_up(self, pipeline: Pipeline, entities: Sequence[Entity]) -> None:
        """If someone else was faster, the next look sees what is left to do."""
        for entity in entities:
            with self._telling(entity):
                if trouble := await self._carriers.trouble_of(entity):
                    turn = moves.given_up(pipeline.plan, entity, trouble, self._clock.now())
                    await keep(self._store, self._telemetry, turn)

    async def _archive(self, pipeline: Pipeline) -> bool:
        now = self._clock.now()
        found = await self._store.untouched(pipeline.org_id, pipeline.name, pipeline.dead_before(now), _WINDOW)
        for entity in found:
            with self._telling(entity):
                await keep(self._store, self._telemetry, moves.archived(pipeline.plan, entity, now))
        return len(found) == _WINDOW

    async def _clean(self, walk: _Walk) -> bool:
        """One window of the complete and one of the archived ones; whether there is more of either."""
        pipeline, before = walk.pipeline, self._clock.now() - self._retention
        for status, cursor in walk.cleaned_to.items():
            removed, walk.cleaned_to[status] = await self._store.clean_entities(
                pipeline.org_id, pipeline.name, status, before, cursor, _WINDOW
            )
            if removed:
                self._notice("info", "entities were removed", pipeline, status=status, entities=removed)
        return any(walk.cleaned_to.values())

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
                "error": f"{type(error).__name__}: {error}",
            }
            message = "an entity could not be moved on"
            self._telemetry.emit(Notice(at=self._clock.now(), level="error", message=message, fields=fields))

    def _tell_missing(self) -> None:
        self._begun = True
        for walk in self._walks:
            if missing := list(walk.pipeline.missing):
                message = "a pipeline has stages without a function in this process; other workers must have them"
                self._notice("warning", message, walk.pipeline, stages=missing)

    def _notice(self, level: str, message: str, pipeline: Pipeline, **fields: object) -> None:
        named: dict[str, object] = {"pipeline": pipeline.name, **fields}
        self._telemetry.emit(Notice(at=self._clock.now(), level=level, message=message, fields=named))


class _Walk:
    """How far the walks through a pipeline's entities have come, and the events heard of that it may wait for."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.heard: list[UUID] = []
        self.cursor: str | None = None
        self.cleaned_to: dict[str, str | None] = {pipeline.plan.last: None, pipeline.plan.archived: None}
        self.due_at: Instant = 0
