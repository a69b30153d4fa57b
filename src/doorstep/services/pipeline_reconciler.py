"""The PipelineReconciler: brings entities in line with the deliveries of their stages.

It marks entities as dead if their stage will not be attempted again. It records failures that the stage could not write
itself (a timeout, a crash, a lost worker). And it archives dead entities that nobody acted on.

It learns of failures in its own process immediately, from facts. It finds all other failures by regularly scanning the
running entities, one window at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard
from uuid import UUID

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.errors import StoreError, process_all
from doorstep.model.attempt import Code
from doorstep.model.delivery import DEAD_STATES, OPEN_STATES, Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.entity import AwaitingEntities, Entity, OrphanedEntities, StaleEntities
from doorstep.model.listing import EventDeliveries
from doorstep.pipelines import transitions
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Plan
from doorstep.pipelines.stage_handler import write_entity
from doorstep.pipelines.transitions import EntityWrite, StageFailure
from doorstep.stores.store import Store
from doorstep.telemetry.facts import DeliveryFailure, DeliveryTransition, Fact, Telemetry
from doorstep.telemetry.redaction import safe_message

_SCAN_SECONDS = 10.0
"""The pause between two scans of the running entities of a pipeline."""
_WINDOW = 500
_WINDOW_PAUSE_SECONDS = 0.1
_EVENTS_MAX = 10_000
"""The maximum number of events remembered per pipeline. If more deliveries end in a short time, the scan finds the
rest."""
_ENDED = frozenset({DeliveryState.DEAD.value, DeliveryState.CANCELLED.value})


class PipelineReconciler:
    name = "pipeline reconciler"

    def __init__(self, pipelines: Sequence[Pipeline], store: Store, clock: Clock, telemetry: Telemetry) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._stage_endpoints = StageEndpoints(store)
        self._scans = [_Scan(pipeline) for pipeline in pipelines]
        self._started = False
        self.wake = asyncio.Event()

    def on_facts(self, facts: Sequence[Fact]) -> None:
        """A telemetry subscriber. Remembers events whose delivery is dead or cancelled, or has failed in a way that the
        stage may not have recorded."""
        event_ids = [one.event_id for one in facts if _is_relevant(one, self._stage_endpoints.silent_codes)]
        if event_ids:
            for scan in self._scans:
                scan.event_ids += event_ids[: _EVENTS_MAX - len(scan.event_ids)]
            self.wake.set()

    async def run_once(self) -> float | None:
        """Reconcile the remembered events of each pipeline and, when its scan is due, one window of its entities.

        An error in one pipeline does not delay the others, and its events stay remembered.
        """
        if not self._started:
            self._started = True
            self._warn_of_missing()
        await process_all(self._scans, self._run)
        next_at = min((scan.due_at for scan in self._scans), default=None)
        if next_at is None:
            return None
        return min(max(0.0, (next_at - self._clock.now()) / SECOND), _SCAN_SECONDS)

    async def _run(self, scan: _Scan) -> None:
        pipeline = scan.pipeline
        if event_ids := tuple(scan.event_ids):
            awaiting = AwaitingEntities(pipeline=pipeline.name, event_ids=event_ids)
            await self._reconcile(pipeline, await self._store.find(pipeline.org_id, awaiting))
            del scan.event_ids[: len(event_ids)]
        if 0 < scan.due_at - self._clock.now() <= seconds(_SCAN_SECONDS):  # the clock may be set back
            return
        more_to_archive = await self._archive(pipeline)
        endpoint_ids = await self._stage_endpoints.ids(pipeline.org_id, pipeline.name)
        orphaned = OrphanedEntities(pipeline=pipeline.name, endpoint_ids=tuple(endpoint_ids))
        page = await self._store.page(pipeline.org_id, orphaned, scan.cursor, _WINDOW)
        await self._reconcile(pipeline, page.items)
        soon = more_to_archive or page.next is not None
        scan.cursor = page.next
        scan.due_at = self._clock.now() + seconds(_WINDOW_PAUSE_SECONDS if soon else _SCAN_SECONDS)

    async def _reconcile(self, pipeline: Pipeline, entities: Sequence[Entity]) -> None:
        """Write the failures of these entities. If another process changes one first, the next scan checks it again."""
        for entity in entities:
            with self._logging_errors(entity):
                if write := await self._write_for(pipeline.plan, entity):
                    await write_entity(self._store, self._telemetry, write)

    async def _write_for(self, plan: Plan, entity: Entity) -> EntityWrite | None:
        """The write that records a failure which the stage could not record itself. The entity becomes dead, or failed
        with a pending retry.

        The entity was read before its deliveries. If an attempt starts in between, it changes the entity, and this
        write has no effect.
        """
        deliveries = await self._stage_endpoints.deliveries(entity)
        if (final := _final_failure(deliveries)) is not None:
            return transitions.dead_lettered(plan, entity, final, self._clock.now())
        stage = next((one for one in plan.stages if one.name == entity.status), None)
        latest = _latest_failure(deliveries)
        if stage is not None and latest is not None:
            return transitions.failed(plan, entity, stage, latest, self._clock.now())
        return None

    async def _archive(self, pipeline: Pipeline) -> bool:
        """Archive one batch of dead entities; returns whether there may be more."""
        now = self._clock.now()
        query = StaleEntities(pipeline=pipeline.name, dead_before=pipeline.dead_before(now), limit=_WINDOW)
        stale = await self._store.find(pipeline.org_id, query)
        for entity in stale:
            with self._logging_errors(entity):
                await write_entity(self._store, self._telemetry, transitions.archived(pipeline.plan, entity, now))
        return len(stale) == _WINDOW

    @contextmanager
    def _logging_errors(self, entity: Entity) -> Iterator[None]:
        """Log an error that concerns one entity, and continue. A store error affects all entities, so it is raised."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  the other entities must still be processed
            self._telemetry.note(
                self._clock.now(),
                "error",
                "an entity could not be updated",
                pipeline=entity.pipeline,
                entity_id=entity.entity_id,
                status=entity.status,
                error=safe_message(error),
            )

    def _warn_of_missing(self) -> None:
        message = "a pipeline has stages without a function in this process; other workers must have them"
        for pipeline in (scan.pipeline for scan in self._scans if scan.pipeline.missing):
            self._telemetry.note(
                self._clock.now(), "warning", message, pipeline=pipeline.name, stages=list(pipeline.missing)
            )


def _is_relevant(fact: Fact, silent_codes: Collection[str]) -> TypeGuard[DeliveryTransition | DeliveryFailure]:
    """Whether the entity must be looked up. Most failures are ignored, because a lookup costs a read and most stages
    write their failures themselves."""
    if isinstance(fact, DeliveryTransition):
        return fact.new_state in _ENDED
    return isinstance(fact, DeliveryFailure) and fact.next_retry_at is not None and fact.error["code"] in silent_codes


@dataclass(eq=False)
class _Scan:
    """The position of the scan through a pipeline's entities, and the events whose entities must be reconciled."""

    pipeline: Pipeline
    event_ids: list[UUID] = field(default_factory=list)
    cursor: str | None = None
    due_at: Instant = 0


# -- the deliveries of stages ------------------------------------------------------------------------------

_REASONS = {
    DeliveryState.CANCELLED: "An operator cancelled it.",
    DeliveryState.RESOLVED: "An operator resolved the delivery of its stage.",
}
_SILENT_CODES: frozenset[str] = frozenset({Code.TIMEOUT, Code.HANDLER_CRASHED, Code.WORKER_LOST})
_LOST = "No delivery is left for its stage: its event was deleted, or no endpoint took it."


class _Stages(NamedTuple):
    """The stage endpoints of an organization."""

    version: int
    """The routing version at which they were read."""
    endpoints: Sequence[Endpoint]


class StageEndpoints:
    """The endpoints of stages. Their handler has the same name as the type of their events, `<pipeline>.<stage>`.

    Other endpoints may receive the same events or have similar names. Their deliveries do not affect the entity.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stages: dict[UUID, _Stages] = {}
        self.silent_codes: frozenset[str] = _SILENT_CODES
        """Codes of failures that a stage cannot record itself, including the codes by which code maps replace them."""

    async def ids(self, org_id: UUID, pipeline: str) -> list[UUID]:
        """The stage endpoints of a pipeline. They are read again only if endpoints of the organization have changed."""
        stages = self._stages.get(org_id, _Stages(-1, ()))
        for routing in await self._store.routing({org_id: stages.version}):
            changed = {one.endpoint_id for one in routing.endpoints}
            kept = (one for one in stages.endpoints if one.endpoint_id not in changed)
            living = (one for one in routing.endpoints if one.state is not EndpointState.DELETED)
            stages = _Stages(routing.version, [one for one in (*kept, *living) if one.handler in one.event_types])
            self._stages[org_id] = stages
            mapped = (one.code_map.get(code, code) for one in self._all() for code in _SILENT_CODES)
            self.silent_codes = _SILENT_CODES.union(mapped)
        return [one.endpoint_id for one in stages.endpoints if (one.handler or "").startswith(f"{pipeline}.")]

    def _all(self) -> Iterator[Endpoint]:
        return (one for stages in self._stages.values() for one in stages.endpoints)

    async def deliveries(self, entity: Entity) -> list[Delivery]:
        """The deliveries of the entity's event to stage endpoints."""
        if entity.event_id is None:
            return []
        deliveries = await self._store.find(entity.org_id, EventDeliveries(event_id=entity.event_id))
        endpoints = [await self._store.get(Endpoint, entity.org_id, one.endpoint_id) for one in deliveries]
        return [one for one, endpoint in zip(deliveries, endpoints, strict=True) if endpoint.handler == one.event_type]


def _final_failure(deliveries: Sequence[Delivery]) -> StageFailure | None:
    """Why the stage will not be attempted again; None if it will be attempted again."""
    if any(delivery.state in OPEN_STATES for delivery in deliveries):
        return None
    if not deliveries:
        return StageFailure(_LOST, "permanent", "LOST", 0)
    delivery = next((one for one in deliveries if one.state in DEAD_STATES), deliveries[-1])
    if delivery.state in DEAD_STATES:
        return _failure_of(delivery)
    reason = _REASONS.get(delivery.state, _LOST)
    return StageFailure(reason, "permanent", delivery.state.value.upper(), delivery.attempt)


def _latest_failure(deliveries: Sequence[Delivery]) -> StageFailure | None:
    """Why the last attempt failed, if a retry is pending; None if no attempt has failed or an attempt is running."""
    waiting = (one for one in deliveries if one.state is DeliveryState.PENDING and one.code is not None)
    return next(map(_failure_of, waiting), None)


def _failure_of(delivery: Delivery) -> StageFailure:
    """The last failure, as the delivery itself records it."""
    return StageFailure(delivery.reason or delivery.code or _LOST, delivery.category, delivery.code, delivery.attempt)
