"""The EntityCleaner: removes the entities of pipelines that have been kept long enough, bit by bit.

Of a pipeline that this program declares, those that are at their end. Of one that no worker has declared for as long,
all of them: nobody is left who could tell a gate from an end, or would carry one on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from uuid import UUID

from doorstep.clock import DAY, SECOND, Clock, Instant, to_iso
from doorstep.model.entity import ENDED, Phase
from doorstep.path.tuning import Tuning
from doorstep.pipelines.pipeline import Pipeline
from doorstep.stores.protocol.entities import EntityStore
from doorstep.telemetry.facts import Notice, Telemetry

_EVERY_SECONDS = 60.0
_WINDOW = 500
_WINDOW_PAUSE_SECONDS = 0.1
_DECLARED_EVERY: Instant = 3_600 * SECOND
_UNDECLARED_DAYS_MIN = 30
"""However short entities are kept: a program that is switched off for a while finds those that were on their way."""

Name = tuple[UUID, str]
"""Of a pipeline: its organization, and what its entities are called."""


class EntityCleaner:
    name = "entity cleaner"

    def __init__(
        self, pipelines: Sequence[Pipeline], store: EntityStore, clock: Clock, tuning: Tuning, telemetry: Telemetry
    ) -> None:
        self._own: dict[Name, Pipeline] = {(one.org_id, one.name): one for one in pipelines}
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._retention: Instant = round(tuning.entity_retention_days * DAY)
        self._cursors: dict[tuple[Name, str], str] = {}
        """How far each status of a pipeline has been walked through, where there is more of it."""
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """A window of each status that has an end; soon again while there is more."""
        declared = await self._declare()
        cursors, self._cursors = self._cursors, {}  # one of a status that nobody has any more is of no use
        for name, phases in self._cleanable(declared):
            await self._clean(name, phases, cursors)
        return _WINDOW_PAUSE_SECONDS if self._cursors else _EVERY_SECONDS

    async def _declare(self) -> dict[Name, Instant]:
        """Say which pipelines this program has, unless somebody said so lately; when each was last declared, by anyone."""
        known = await self._store.declared_pipelines()
        now = self._clock.now()
        stale = [name for name in self._own if known.get(name, 0) <= now - min(_DECLARED_EVERY, self._retention // 4)]
        if stale:
            await self._store.declare_pipelines(stale, now)
        return known | dict.fromkeys(self._own, now)

    def _cleanable(self, declared: dict[Name, Instant]) -> Iterator[tuple[Name, frozenset[Phase]]]:
        long_ago = self._clock.now() - max(self._retention, _UNDECLARED_DAYS_MIN * DAY)
        for name, declared_at in declared.items():
            if name in self._own:
                yield name, ENDED
            elif declared_at < long_ago:
                yield name, frozenset(Phase)

    async def _clean(self, name: Name, phases: frozenset[Phase], cursors: dict[tuple[Name, str], str]) -> None:
        before = self._clock.now() - self._retention
        for status in await self._store.entity_statuses(*name):
            if name in self._own and not _is_end(self._own[name], status):
                continue
            place = (name, status)
            removed, cursor = await self._store.clean_entities(
                *name, status, phases, before, cursors.get(place), _WINDOW
            )
            if cursor is not None:
                self._cursors[place] = cursor
            if removed:
                self._tell(name, status, removed)

    def _tell(self, name: Name, status: str, removed: int) -> None:
        fields: dict[str, object] = {"pipeline": name[1], "status": status, "entities": removed}
        if name not in self._own:
            fields["declared"] = False
        message = "entities were removed"
        self._telemetry.emit(Notice(at=to_iso(self._clock.now()), level="info", message=message, fields=fields))


def _is_end(pipeline: Pipeline, status: str) -> bool:
    """One that the declaration does not have (any more) leads nowhere either, unless it is on its way or dead."""
    return status in (pipeline.plan.last, pipeline.plan.archived) or status not in pipeline.plan.phases
