"""The class Pipeline. A program declares a pipeline and adds it to a Doorstep, which runs the stages one after
another."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar
from uuid import UUID

import msgspec

from doorstep.clock import DAY, Instant
from doorstep.engine import facts
from doorstep.engine.accept import Options
from doorstep.errors import ConfigError, Conflict, InvalidInput, NotFound, NotRetryable, Permanent
from doorstep.model import entity as model
from doorstep.model.action import AuditEntry
from doorstep.model.attempt import Code
from doorstep.model.entity import EntityFilter, EntityHistory, EntityStatuses
from doorstep.model.event import EventView
from doorstep.model.listing import Count, Page
from doorstep.model.outbox import Posted
from doorstep.model.record import uuid7
from doorstep.operations.endpoint_rules import EndpointForm, HandlerFields, PolicyForm, check_function, form_from
from doorstep.operations.keys import name_of
from doorstep.operations.outbox import Host
from doorstep.operations.reader import checked_limit
from doorstep.operations.sending import Sending
from doorstep.operations.shapes import shape, shapes
from doorstep.pipelines import transitions
from doorstep.pipelines.plan import NEVER_OPENS, Gate, Plan, Stage
from doorstep.pipelines.stage_handler import (
    StageFunction,
    StageRun,
    checked_data,
    handler_for,
    store_errors_as_transient,
    write_and_wake,
)
from doorstep.pipelines.transitions import EntityWrite
from doorstep.schemas.pipelines import Entity, EntityChange
from doorstep.stores.app_connections import Omitted
from doorstep.stores.limits import COUNT_MAX
from doorstep.stores.store import Store
from doorstep.transports.handler_replies import Handler, Received

T = TypeVar("T")
F = TypeVar("F", bound=StageFunction)
EntityId = str | UUID
Register = Callable[[str, Handler, Stage | None], None]
"""A function that registers a handler, given its name, the handler, and the stage it belongs to, if any."""

ARRIVAL_POLICY = "patient"
"""The retry policy for creating entities. Once the program's transaction commits, the entity must be created, even if
the store is down for days."""
_ENTITY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~@-]{0,127}")
_ID_RULE = "must be 1 to 128 letters, digits and the signs . _ : ~ @ - and begin with a letter or digit"
_WRITE_TRIES = 5


class Pipeline:
    """A multi-step workflow with a reliable status.

        protocols = Pipeline(
            "protocol",
            first="uploaded",
            stages=[
                Stage("extracting", failed="extraction_failed"),
                Stage("grounding", failed="grounding_failed"),
                Gate("pending_review"),
            ],
            last="complete",
        )
        doorstep.add(protocols)

        @protocols.stage("extracting")
        def extract(entity):
            return {**entity.data, "text": read(entity.data["path"])}

    A stage may run twice for the same entity, because a worker may crash before it records that the stage is done. So
    the external effects of a stage must be idempotent. A stage's result is stored once, together with the move to the
    next stage.
    """

    def __init__(
        self,
        name: str,
        *,
        first: str,
        stages: Sequence[Stage | Gate],
        last: str,
        dead: str = "dead_letter",
        archived: str = "archived",
        archive_after_days: float = 7,
        policy: PolicyForm = "pipeline",
        plural: str | None = None,
    ) -> None:
        """`policy` applies to stages without a policy of their own. The default, `pipeline`, allows three attempts,
        with pauses of 5 and 30 seconds.

        `plural` is the name of entity lists in web applications. By default, it is the pipeline's name followed by an
        s.
        """
        self.name = name
        """The name of the pipeline, which is also the singular name of its entities."""
        self.plan = Plan(name, first=first, steps=stages, last=last, dead=dead, archived=archived)
        self.plural = plural or f"{name}s"
        self._archive_after: Instant = round(archive_after_days * DAY)
        self._policy = policy
        self._functions: dict[str, StageFunction] = {}
        self._host: Host | None = None
        self.org_id = UUID(int=0)
        """The organization that the pipeline was added for."""
        self._register: Register | None = None

    @property
    def arrival(self) -> str:
        """The type of the event that creates an entity, if the entity was started in a program's own transaction."""
        return self.plan.event_type(self.plan.first)

    def stage(self, name: str) -> Callable[[F], F]:
        """Declare the function of a stage. It returns the entity's new data as a mapping, or None to keep the old data.

        A process need not have the functions of all stages, as long as other workers have the missing ones.
        """
        stage = self.plan.stage(name)

        def declare_stage(function: F) -> F:
            check_function(f"stage {name!r} of pipeline {self.name!r}", function)
            if name in self._functions:
                raise ConfigError(f"stage {name!r} of pipeline {self.name!r} has two functions; it needs one")
            self._functions[name] = function
            self._attach(stage)
            return function

        return declare_stage

    # -- starting ------------------------------------------------------------------------------------------

    def start(
        self, data: Mapping[str, Any], entity_id: EntityId | None = None, *, connection: object = Omitted.CONNECTION
    ) -> Sending[Entity]:
        """Create an entity. When the `await` returns, the entity is on stable storage and its first stage is queued.

        Raises Conflict if its id is already in use.

        If you pass your own `connection` (or session), the entity is created if and only if the connection's
        transaction commits. It can be read shortly after the commit. The `event_id` of the returned entity is the id of
        the event that creates it. The entity id is checked only when that event is delivered: if the entity id is
        already in use, the event becomes a dead letter with the code CONFLICT. None is not a valid connection.
        """
        write = self._started(data, entity_id)
        if connection is Omitted.CONNECTION:
            return Sending(f"start() of pipeline {self.name!r}", partial(self._create, write))
        posting: Sending[Posted] = self._opened.send(
            self.arrival, Arrival.of(write.entity), connection=connection, **self._arrival_options(write)
        )
        return posting.then(partial(_created_by, write))

    async def _create(self, write: EntityWrite) -> Entity:
        if (entity := await self._write(write)) is None:
            raise Conflict(f"{self.name} {write.entity.entity_id} already exists")
        return shape(Entity, entity)

    def start_sync(
        self, data: Mapping[str, Any], entity_id: EntityId | None = None, *, connection: object = Omitted.CONNECTION
    ) -> Entity:
        """`start` for programs without an event loop. With a blocking connection, it only inserts a row on that
        connection."""
        write = self._started(data, entity_id)
        if connection is Omitted.CONNECTION:
            return self._opened.binding.call_sync(partial(self._create, write))
        posted = self._opened.send_sync(
            self.arrival, Arrival.of(write.entity), connection=connection, **self._arrival_options(write)
        )
        return _created_by(write, posted)

    def _arrival_options(self, write: EntityWrite) -> Options:
        return {"org_id": self.org_id, "correlation_id": write.entity.entity_id}

    async def arrive(self, received: Received) -> None:
        """Create an entity that was started in a program's own transaction, after that transaction has committed."""
        arrival = received.json(Arrival)
        try:
            write = self._started(arrival.data, arrival.entity_id, received.event_id)
        except InvalidInput as error:
            raise Permanent(Code.INVALID_FORMAT, f"{error.field} cannot be used.") from error
        with store_errors_as_transient(received):
            if await self._write(write) is None:
                await self._check_repeated(arrival.entity_id, received.event_id)

    async def _check_repeated(self, entity_id: str, arrival: UUID) -> None:
        """Fail unless the entity was created by this event, which may be delivered twice. Any other event was meant to
        create a new entity, so it must fail visibly."""
        if (await self.history(entity_id))[0].event_id != arrival:
            raise Permanent("CONFLICT", f"{self.name} {entity_id} already exists; another event created it.")

    def _started(self, data: Mapping[str, Any], entity_id: EntityId | None, arrival: UUID | None = None) -> EntityWrite:
        now = self._opened.clock.now()
        new_id = str(uuid7(now)) if entity_id is None else checked_id(entity_id)
        valid = checked_data(data, self._opened.settings.payload_bytes_max)
        return transitions.started(self.plan, self.org_id, new_id, valid, now, uuid7(now), arrival)

    # -- reading -------------------------------------------------------------------------------------------

    async def entity(self, entity_id: EntityId) -> Entity:
        """One entity in its current status. Raises NotFound for an unknown id."""
        return self._shown(await self._stored(entity_id))

    async def history(self, entity_id: EntityId) -> tuple[EntityChange, ...]:
        """Every change of the entity's status, oldest first."""
        query = EntityHistory(pipeline=self.name, entity_id=_as_text(entity_id))
        return shapes(EntityChange, await self._on_store(lambda store: store.find(self.org_id, query)))

    async def list(
        self, status: str | None = None, *, archived: bool = False, cursor: str | None = None, limit: int = 50
    ) -> Page[Entity]:
        """A page of entities, newest first. Archived ones are included only if `archived` is set or `status` selects
        them.

        `status` may also be a status that is no longer declared but that entities still have.
        """
        entity_filter, most = self._filter(status, archived), checked_limit(limit)
        page = await self._on_store(lambda store: store.page(self.org_id, entity_filter, cursor, most))
        return Page(tuple(map(self._shown, page.items)), page.next)

    async def counts(self, limit: int = COUNT_MAX) -> dict[str, Count]:
        """The number of entities in each status, in the order of the declaration. Each number is counted up to `limit`.

        Statuses that are no longer declared come last, if entities still have them.
        """
        return await self._on_store(lambda store: self._counts(store, limit))

    async def _counts(self, store: Store, limit: int) -> dict[str, Count]:
        stored = await store.find(self.org_id, EntityStatuses(pipeline=self.name))
        statuses = [*self.plan.phases, *(one for one in stored if one not in self.plan.phases)]
        return {
            status: await store.count(self.org_id, self._filter(status, archived=False), limit) for status in statuses
        }

    def dead_before(self, now: Instant) -> Instant:
        """The limit for archiving: entities that became dead before this instant count as archived."""
        return now - self._archive_after

    def _filter(self, status: str | None, archived: bool) -> EntityFilter:
        dead_before = self.dead_before(self._opened.clock.now())
        if status == self.plan.archived:
            return EntityFilter(pipeline=self.name, archived=True, archived_before=dead_before)
        undeclared = status is not None and status not in self.plan.phases
        which = None if undeclared or (archived and status is None) else False
        return EntityFilter(pipeline=self.name, status=status, archived=which, archived_before=dead_before)

    def _shown(self, entity: model.Entity) -> Entity:
        dead_before = self.dead_before(self._opened.clock.now())
        return shape(Entity, transitions.as_seen(self.plan, entity, dead_before))

    async def _stored(self, entity_id: EntityId) -> model.Entity:
        key = _as_text(entity_id)
        return await self._on_store(lambda store: store.get(model.Entity, self.org_id, (self.name, key)))

    async def _name_of(self, actor: str) -> str:
        return await self._on_store(lambda store: name_of(store, self.org_id, actor))

    # -- operating -----------------------------------------------------------------------------------------

    async def approve(self, entity_id: EntityId, actor: str, *, gate: str | None = None) -> Entity:
        """Let an entity pass its gate; audited. Raises Conflict if the entity is not waiting at a gate, or is waiting
        at a different gate.

        The decision applies to one gate: `gate`, or by default the gate at which the entity is waiting when this is
        called.
        """
        name = await self._name_of(actor)
        return await self._decide(
            entity_id, gate, lambda entity, now: transitions.approved(self.plan, entity, actor, now, uuid7(now), name)
        )

    async def reject(self, entity_id: EntityId, actor: str, reason: str = "", *, gate: str | None = None) -> Entity:
        """Reject an entity at its gate, which makes it a dead letter; audited. Raises Conflict if the entity is not
        waiting at a gate, or is waiting at a different gate."""
        name = await self._name_of(actor)
        return await self._decide(
            entity_id, gate, lambda entity, now: transitions.rejected(self.plan, entity, actor, reason, now, name)
        )

    async def retry(self, entity_id: EntityId, actor: str, reason: str = "") -> Entity:
        """Restart an entity from the first stage, with its error cleared and a new event; audited.

        Raises NotRetryable unless the entity failed, is a dead letter or is archived. Attempts of its old event no
        longer have an effect.
        """

        name = await self._name_of(actor)

        def retried(entity: model.Entity, now: Instant) -> EntityWrite:
            if not self.plan.can_retry(entity.status):
                retryable = ", ".join(status for status in self.plan.phases if self.plan.can_retry(status))
                raise NotRetryable(
                    f"{self.name} {entity.entity_id} is {entity.status} and cannot be retried; only {retryable} can"
                )
            return transitions.retried(self.plan, entity, actor, reason, now, uuid7(now), name)

        return await self._change(entity_id, retried)

    async def delete(self, entity_id: EntityId, actor: str, reason: str = "") -> None:
        """Remove an entity, whatever its status, and its history; audited. If a stage is still running for it, the
        result of that stage is ignored.

        Its events and attempts stay until their retention is over. They contain the entity's id but not its data. If
        the entity was started in a program's own transaction, the event that created it does contain the data, so that
        event is deleted.
        """
        for _ in range(_WRITE_TRIES):
            entity = await self._stored(entity_id)
            first = (await self.history(entity_id))[0]
            entry = transitions.deleted(entity, actor, reason, self._opened.clock.now())
            if await self._opened.binding.call(partial(self._delete, entity, entry, first.event_id)):
                return
        raise self._keeps_changing(entity_id)

    async def _delete(self, entity: model.Entity, entry: AuditEntry, first: UUID | None) -> bool:
        """Delete an entity, and the first event of its history if that event created it."""
        arrival = first if first is not None and await self._is_arrival(first) else None
        moved = await self._opened.components.store.delete_entity(entity, entry, arrival)
        if moved is not None:
            self._opened.telemetry.emit_all(facts.moved(moved, entry.at))
        return moved is not None

    async def _is_arrival(self, event_id: UUID) -> bool:
        with suppress(NotFound):
            view = await self._opened.components.store.get(EventView, self.org_id, event_id)
            return view.event.event_type == self.arrival
        return False

    async def _decide(
        self, entity_id: EntityId, gate: str | None, decision: Callable[[model.Entity, Instant], EntityWrite]
    ) -> Entity:
        gate = gate or (await self._stored(entity_id)).status

        def decided(entity: model.Entity, now: Instant) -> EntityWrite:
            self._check_gate(entity, gate)
            return decision(entity, now)

        return await self._change(entity_id, decided)

    def _check_gate(self, entity: model.Entity, gate: str) -> None:
        """Raise Conflict unless the entity is at this gate. If two people decide at the same time, the second decision
        must not apply to a later gate, which that person never saw."""
        if entity.status not in self.plan.gates:
            gates = ", ".join(sorted(self.plan.gates)) or "a gate, and this pipeline has none"
            raise Conflict(f"{self.name} {entity.entity_id} is {entity.status}; a decision is possible only at {gates}")
        if entity.status != gate:
            raise Conflict(f"{self.name} {entity.entity_id} is {entity.status}, not {gate}; look at it again")

    async def _change(self, entity_id: EntityId, change: Callable[[model.Entity, Instant], EntityWrite]) -> Entity:
        """Read, change and write an entity. Start over if another process changed it in the meantime."""
        for _ in range(_WRITE_TRIES):
            write = change(await self._stored(entity_id), self._opened.clock.now())
            if entity := await self._write(write):
                return shape(Entity, entity)
        raise self._keeps_changing(entity_id)

    def _keeps_changing(self, entity_id: EntityId) -> Conflict:
        return Conflict(f"{self.name} {entity_id} keeps changing; try again")

    # -- for the Doorstep that it is added to --------------------------------------------------------------

    def join(self, host: Host, org_id: UUID, register: Register) -> None:
        """Attach the pipeline to a Doorstep and an organization. `register` is called with each stage's handler."""
        if self._host is not None:
            raise ConfigError(f"pipeline {self.name!r} was added twice; add it to one Doorstep, once")
        self._host, self.org_id, self._register = host, org_id, register
        register(self.arrival, self.arrive, None)
        for name in self._functions:
            self._attach(self.plan.stage(name))

    def forms(self) -> Sequence[EndpointForm]:
        """The endpoints of the pipeline's stages, and the endpoint that creates entities started in a program's own
        transaction."""
        arrival: HandlerFields = {"policy": ARRIVAL_POLICY, "circuit": NEVER_OPENS}
        steps: list[tuple[str, HandlerFields]] = [(self.plan.first, arrival)]
        steps += [(stage.name, stage.fields) for stage in self.plan.stages]
        named = [(self.plan.event_type(step), fields) for step, fields in steps]
        return [
            form_from(name, {"policy": self._policy, **fields, "handler": name, "event_types": (name,)})
            for name, fields in named
        ]

    @property
    def missing(self) -> Sequence[str]:
        """The stages whose functions this process does not have."""
        return [stage.name for stage in self.plan.stages if stage.name not in self._functions]

    def _attach(self, stage: Stage) -> None:
        if self._register is not None:
            run = StageRun(self._opened, self.org_id, self.plan, stage)
            self._register(self.plan.event_type(stage.name), handler_for(run, self._functions[stage.name]), stage)

    @property
    def _opened(self) -> Host:
        if self._host is None:
            raise ConfigError(f"pipeline {self.name!r} belongs to no Doorstep yet; call doorstep.add(…) with it first")
        return self._host

    async def _on_store(self, query: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        host = self._opened
        return await host.binding.call(lambda: query(host.components.store))

    async def _write(self, write: EntityWrite) -> model.Entity | None:
        return await self._opened.binding.call(lambda: write_and_wake(self._opened, write))


class Arrival(msgspec.Struct, frozen=True):
    """The payload of the event that creates an entity."""

    entity_id: str
    data: dict[str, Any]

    @classmethod
    def of(cls, entity: model.Entity) -> Self:
        return cls(entity.entity_id, entity.data)


def checked_id(entity_id: object) -> str:
    """The id of a new entity as text. Raises InvalidInput if it is not valid."""
    text = _as_text(entity_id)
    if not _ENTITY_ID.fullmatch(text):
        raise InvalidInput("entity_id", f"{_ID_RULE}, got {text[:140]!r}")
    return text


def _as_text(entity_id: object) -> str:
    """An id, which may be a UUID, as text. Text that is not a valid id is accepted here; a lookup will not find it."""
    if not isinstance(entity_id, str | UUID):
        raise InvalidInput("entity_id", f"must be text or a UUID, got a {type(entity_id).__name__}")
    return str(entity_id)


def _created_by(write: EntityWrite, posted: Posted) -> Entity:
    """The entity as it will be created. Its first stage has no event yet, so `event_id` is the id of the event that
    creates the entity."""
    return shape(Entity, write.entity, event_id=posted.event_id)
