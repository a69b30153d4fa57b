"""Periodic maintenance in small batches: removes old rows, aggregates counters, follows the store's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from msgspec.structs import asdict

from doorstep.clock import DAY, JUMP, SECOND, AnchoredClock, Clock, Instant, seconds
from doorstep.engine import facts
from doorstep.engine.directory import Tuning
from doorstep.model.action import ActionKind
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.attempt import Code
from doorstep.model.claim import Moved
from doorstep.model.entity import ENDED, EntityStatuses, Phase, PipelineDeclaration, PipelineDeclarations
from doorstep.model.listing import DeadLetterFilter, Orgs
from doorstep.model.rollup import MINUTE
from doorstep.operations.actions import DeliveryActions
from doorstep.pipelines.pipeline import Pipeline
from doorstep.policy.classification import EXPIRED_WHILE_WAITING
from doorstep.services.coordination import TaskLock
from doorstep.stores.store import Cleaned, Put, Retention, Store, Task
from doorstep.telemetry.facts import Telemetry

# -- events and deliveries ---------------------------------------------------------------------------------

_CLEAN_SECONDS = 60.0
_BATCH_MAX = 500
_BATCH_PAUSE_SECONDS = 0.05
"""The pause between batches, so that cleaning a backlog takes only a small share of the store's time."""
_FULL_SCAN_SECONDS = 3_600.0
"""How often all expired events are scanned. This finds deliveries that were in progress when their event expired and
that were released afterwards. The other scans cover only events that expired since the previous scan. Otherwise each
scan would also read the delivered events, which remain stored until their retention is over."""


class Cleaner:
    """Expires deliveries, archives dead letters, and removes events that are past their retention."""

    name = "cleaner"

    def __init__(
        self, store: Store, clock: Clock, tuning: Tuning, telemetry: Telemetry, wake_dispatcher: Callable[[], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry
        self._wake_dispatcher = wake_dispatcher
        self._scanned_until: Instant = 0
        self._full_scan_at: Instant = 0
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Process one batch of each kind. Runs again soon while there is more to do."""
        now = self._clock.now()
        expired = await self._expire(now)
        archived = await self._store.archive(_ago(now, self._tuning.archive_after_days), now, _BATCH_MAX)
        self._telemetry.emit_all(facts.moved(archived, now))
        cleaned = await self._clean(now)
        if expired.moves or archived.moves or cleaned.total:
            self._report(len(expired.moves), len(archived.moves), cleaned)
            return _BATCH_PAUSE_SECONDS
        return _CLEAN_SECONDS

    async def _expire(self, now: Instant) -> Moved:
        """Turn deliveries that expired while they were held into dead letters. No worker claims held deliveries, so
        nothing else would notice."""
        scans_part = self._scanned_until <= now < self._full_scan_at  # the clock may be set back
        since = self._scanned_until if scans_part else 0
        expired = await self._store.expire(Code.EXPIRED, EXPIRED_WHILE_WAITING, since, now, _BATCH_MAX)
        self._telemetry.emit_all(facts.moved(expired, now))
        if expired.moves:
            self._wake_dispatcher()  # the next deliveries of their ordering groups may be due
        else:
            self._scanned_until = now
            if not since:
                self._full_scan_at = now + seconds(_FULL_SCAN_SECONDS)
        return expired

    async def _clean(self, now: Instant) -> Cleaned:
        retention = Retention(
            settled_before=_ago(now, self._tuning.retention_days),
            dead_before=_ago(now, self._tuning.dead_retention_days) if self._tuning.dead_retention_days else 0,
            inbox_before=_ago(now, self._tuning.inbox_retention_days),
            audit_before=_ago(now, self._tuning.audit_retention_days),
        )
        return await self._store.clean(retention, now, _BATCH_MAX)

    def _report(self, expired: int, archived: int, cleaned: Cleaned) -> None:
        now = self._clock.now()
        removed = {name: count for name, count in asdict(cleaned).items() if name not in ("alerts", "workers")}
        removed["audit_lines"] = removed.pop("audit_entries")
        self._telemetry.note(now, "info", "cleaned", expired=expired, archived=archived, **removed)
        if cleaned.inbox_events:  # no consumer ever received them
            message = "events were removed from the inbox before anyone acknowledged them"
            self._telemetry.note(now, "warning", message, events=cleaned.inbox_events)


def _ago(now: Instant, days: float) -> Instant:
    return now - round(days * DAY)


# -- entities of pipelines ---------------------------------------------------------------------------------

_WINDOW = 500
_WINDOW_PAUSE_SECONDS = 0.1
_DECLARE_EVERY: Instant = 3_600 * SECOND
_UNDECLARED_DAYS_MIN = 30
"""The minimum time for which the entities of an undeclared pipeline are kept, even if their retention is shorter. A
program that was stopped for a while therefore still finds its unfinished entities."""

PipelineKey = tuple[UUID, str]
"""The organization and the name of a pipeline."""


class EntityCleaner:
    """Removes entities after their retention, if they have ended or if no program declares their pipeline any more."""

    name = "entity cleaner"

    def __init__(
        self, pipelines: Sequence[Pipeline], store: Store, clock: Clock, tuning: Tuning, telemetry: Telemetry
    ) -> None:
        self._own: dict[PipelineKey, Pipeline] = {(one.org_id, one.name): one for one in pipelines}
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._retention: Instant = round(tuning.entity_retention_days * DAY)
        self._cursors: dict[tuple[PipelineKey, str], str] = {}
        """Where to continue, for each pipeline and status with more entities to examine."""
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Examine one window of entities in each status from which entities may be removed. Runs again soon while there
        are more to examine."""
        declared = await self._declare()
        cursors, self._cursors = self._cursors, {}  # drops the cursors of statuses that no entity has any more
        for key, phases in self._cleanable(declared):
            await self._clean(key, phases, cursors)
        return _WINDOW_PAUSE_SECONDS if self._cursors else _CLEAN_SECONDS

    async def _declare(self) -> dict[PipelineKey, Instant]:
        """Record which pipelines this program declares, unless that was done recently. Returns the time at which each
        pipeline was last declared."""
        found = await self._store.find(None, PipelineDeclarations())
        known = {(one.org_id, one.pipeline): one.declared_at for one in found}
        now = self._clock.now()
        stale = [key for key in self._own if known.get(key, 0) <= now - min(_DECLARE_EVERY, self._retention // 4)]
        if stale:
            declarations = (
                PipelineDeclaration(org_id=one[0], pipeline=one[1], declared_at=now) for one in sorted(stale)
            )
            await self._store.write([Put(document=one) for one in declarations])
        return known | dict.fromkeys(self._own, now)

    def _cleanable(self, declared: dict[PipelineKey, Instant]) -> Iterator[tuple[PipelineKey, frozenset[Phase]]]:
        long_ago = self._clock.now() - max(self._retention, _UNDECLARED_DAYS_MIN * DAY)
        for key, declared_at in declared.items():
            if key in self._own:
                yield key, ENDED
            elif declared_at < long_ago:
                yield key, frozenset(Phase)

    async def _clean(
        self, key: PipelineKey, phases: frozenset[Phase], cursors: dict[tuple[PipelineKey, str], str]
    ) -> None:
        before = self._clock.now() - self._retention
        for status in await self._store.find(key[0], EntityStatuses(pipeline=key[1])):
            if key in self._own and not _is_end(self._own[key], status):
                continue
            cursor = cursors.get((key, status))
            removed, cursor = await self._store.clean_entities(*key, status, phases, before, cursor, _WINDOW)
            if cursor is not None:
                self._cursors[key, status] = cursor
            if removed:
                self._report(key, status, removed)

    def _report(self, key: PipelineKey, status: str, removed: int) -> None:
        undeclared: dict[str, object] = {} if key in self._own else {"declared": False}
        now, message = self._clock.now(), "entities were removed"
        self._telemetry.note(now, "info", message, pipeline=key[1], status=status, entities=removed, **undeclared)


def _is_end(pipeline: Pipeline, status: str) -> bool:
    """Whether entities in this status may have ended. This includes statuses that are no longer declared. Running and
    dead entities with such a status are kept all the same, because of their phase."""
    return status in (pipeline.plan.last, pipeline.plan.archived) or status not in pipeline.plan.phases


# -- messages to alert channels ----------------------------------------------------------------------------

_MESSAGES_SECONDS = 3_600.0


class MessageCleaner:
    """Deletes failed messages to alert channels once they are old enough to be archived, and the dead letters of
    deleted organizations."""

    name = "message cleaner"

    def __init__(self, store: Store, delivery_actions: DeliveryActions, clock: Clock, tuning: Tuning) -> None:
        self._store = store
        self._delivery_actions = delivery_actions
        self._clock = clock
        self._tuning = tuning
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Mark one batch as deleted. The Cleaner removes the rows once their retention is over."""
        before = _ago(self._clock.now(), self._tuning.archive_after_days)
        old = DeadLetterFilter(archived=True, archived_before=before)
        if await self._delete(OPERATIONS_ORG, old, "failed long ago"):
            return _BATCH_PAUSE_SECONDS
        for org in await self._store.find(None, Orgs()):
            for archived in (False, True) if org.deleted_at is not None else ():
                if await self._delete(org.org_id, DeadLetterFilter(archived=archived), "its organization was deleted"):
                    return _BATCH_PAUSE_SECONDS
        return _MESSAGES_SECONDS

    async def _delete(self, org_id: UUID, chosen: DeadLetterFilter, why: str) -> bool:
        page = await self._store.page(org_id, chosen, limit=_BATCH_MAX)
        ids = [delivery.delivery_id for delivery in page.items]
        if ids:
            await self._delivery_actions.act(ActionKind.DELETE, org_id, ids, self.name, why)
        return bool(ids)


# -- roll-ups ----------------------------------------------------------------------------------------------

_AFTER_MINUTE: Instant = SECOND
"""How long after the end of a minute the aggregator runs. By then most counters of that minute have been committed."""
_ROLLUP_LEASE_SECONDS = 30.0


class RollupAggregator:
    """Aggregates the counters of past minutes into roll-ups, and drops roll-ups that are past their retention.

    Nothing depends on when it runs, because readers add up counters and roll-ups. It only keeps the number of counters
    small. One process at a time does this, and releases the lock as soon as nothing is left.
    """

    name = "rollup aggregator"

    def __init__(self, store: Store, clock: Clock, tuning: Tuning, holder: str) -> None:
        self._store = store
        self._clock = clock
        self._tuning = tuning
        self.lock = TaskLock(store, Task.ROLLUPS, holder, clock, _ROLLUP_LEASE_SECONDS)
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Aggregate one batch. If the batch was full, run again immediately; otherwise, after the end of the current
        minute.

        Counters that arrive in the meantime wait until the next run. If the clocks of the processes differ, counters of
        past minutes may also still arrive.
        """
        now = self._clock.now()
        if await self.lock.acquire():
            minutes_before = _ago(now, self._tuning.minutes_retention_days)
            hours_before = _ago(now, self._tuning.hours_retention_days)
            moved = await self._store.aggregate(now, minutes_before=minutes_before, hours_before=hours_before)
            if moved >= self._store.aggregate_max:
                return 0.0
            await self.lock.release()
        return (MINUTE - (now - _AFTER_MINUTE) % MINUTE) / SECOND


# -- the clock ---------------------------------------------------------------------------------------------

_SYNC_SECONDS = 30.0


class ClockSync:
    """Keeps the local clock in sync with the clock of a store that several machines share. With an embedded store, it
    does nothing: the clock follows the machine's by itself."""

    name = "clock sync"

    def __init__(self, store: Store, clock: AnchoredClock, telemetry: Telemetry) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """Compare the clocks, and adjust the local clock if they differ by more than the round trip can explain."""
        if not self._store.features.many_machines:
            return None
        sent_at = self._clock.now()
        store_now = await self._store.time()
        half_way = (self._clock.now() - sent_at) // 2
        if abs(store_now + half_way - self._clock.now()) <= half_way:
            return _SYNC_SECONDS  # a slow response may explain the difference; correcting it would only add an error
        moved = self._clock.follow(store_now + half_way)
        if abs(moved) >= JUMP:
            self._clock.count_jump()
            message = "the clock was moved to follow the store's time"
            self._telemetry.note(self._clock.now(), "warning", message, moved_seconds=moved / SECOND)
        return _SYNC_SECONDS
