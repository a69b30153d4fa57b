"""The cleaners: they expire, remove and archive deliveries, entities and channel messages, in small batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from uuid import UUID

from msgspec.structs import asdict

from doorstep.clock import DAY, SECOND, Clock, Instant, seconds, to_iso
from doorstep.engine import facts
from doorstep.engine.directory import Tuning
from doorstep.model.action import ActionKind
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.attempt import Code
from doorstep.model.claim import Moved
from doorstep.model.entity import ENDED, Phase
from doorstep.model.listing import DeadLetterFilter
from doorstep.operations.deliveries import DeliveryActions
from doorstep.pipelines.pipeline import Pipeline
from doorstep.policy.classification import EXPIRED_WHILE_WAITING
from doorstep.stores.protocol.entities import EntityStore
from doorstep.stores.protocol.house import Cleaned, HouseStore
from doorstep.stores.protocol.lists import ListStore
from doorstep.telemetry.facts import Notice, Telemetry

_EVERY_SECONDS = 60.0
_BATCH_MAX = 500
_BATCH_PAUSE_SECONDS = 0.05
"""Between batches, so that cleaning a backlog takes a small share of the store's time."""
_SWEEP_EVERY_SECONDS = 3_600.0
"""How often everything that ever expired is looked at again: a try that was under way then may have been handed back.
In between only what expired since the last look is, because what was delivered in time stays until it is cleaned."""


class Cleaner:
    name = "cleaner"

    def __init__(self, store: HouseStore, clock: Clock, tuning: Tuning, telemetry: Telemetry) -> None:
        self._store = store
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry
        self._looked_until: Instant = 0
        self._sweep_at: Instant = 0
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """One batch of each kind; soon again while there is more."""
        now = self._clock.now()
        expired = await self._expire(now)
        archived = await self._store.archive(_ago(now, self._tuning.archive_after_days), now, _BATCH_MAX)
        self._telemetry.emit_all(facts.moved(archived, now))
        cleaned = await self._clean(now)
        if expired.moves or archived.moves or cleaned.total:
            self._tell(len(expired.moves), len(archived.moves), cleaned)
            return _BATCH_PAUSE_SECONDS
        return _EVERY_SECONDS

    async def _expire(self, now: Instant) -> Moved:
        """End what expired while it was held: nobody claims it, so nobody else would notice."""
        since = 0 if now >= self._sweep_at else self._looked_until
        expired = await self._store.expire(Code.EXPIRED, EXPIRED_WHILE_WAITING, since, now, _BATCH_MAX)
        self._telemetry.emit_all(facts.moved(expired, now))
        if not expired.moves:
            self._looked_until = now
            if not since:
                self._sweep_at = now + seconds(_SWEEP_EVERY_SECONDS)
        return expired

    async def _clean(self, now: Instant) -> Cleaned:
        return await self._store.clean(
            _ago(now, self._tuning.retention_days),
            now,
            _BATCH_MAX,
            inbox_before=_ago(now, self._tuning.inbox_retention_days),
            audit_before=_ago(now, self._tuning.audit_retention_days),
        )

    def _tell(self, expired: int, archived: int, cleaned: Cleaned) -> None:
        counts: dict[str, object] = {"expired": expired, "archived": archived, **asdict(cleaned)}
        at = to_iso(self._clock.now())
        self._telemetry.emit(Notice(at=at, level="info", message="cleaned", fields=counts))
        if cleaned.inbox_events:  # nobody ever had them: that is worth a look
            message = "events were removed from the inbox that nobody had acknowledged"
            lost: dict[str, object] = {"events": cleaned.inbox_events}
            self._telemetry.emit(Notice(at=at, level="warning", message=message, fields=lost))


def _ago(now: Instant, days: float) -> Instant:
    return now - round(days * DAY)


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


_MESSAGES_EVERY_SECONDS = 3_600.0


class MessageCleaner:
    name = "message cleaner"

    def __init__(self, store: ListStore, delivery_actions: DeliveryActions, clock: Clock, tuning: Tuning) -> None:
        self._store = store
        self._delivery_actions = delivery_actions
        self._clock = clock
        self._tuning = tuning
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Delete a batch of what would be archived; the Cleaner removes it once it is past its retention."""
        before = self._clock.now() - round(self._tuning.archive_after_days * DAY)
        letters = await self._store.dead_letters(
            OPERATIONS_ORG, DeadLetterFilter(archived=True, archived_before=before), limit=_BATCH_MAX
        )
        if not letters.items:
            return _MESSAGES_EVERY_SECONDS
        ids = [letter.delivery_id for letter in letters.items]
        await self._delivery_actions.act(ActionKind.DELETE, OPERATIONS_ORG, ids, self.name, "died long ago")
        return _BATCH_PAUSE_SECONDS
