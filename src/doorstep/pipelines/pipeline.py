"""A Pipeline: declared in Python, added to a Doorstep, and driven by it from stage to stage."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import DAY, Instant
from doorstep.engine import facts
from doorstep.errors import ConfigError, Conflict, InvalidInput, NotFound, NotRetryable, Permanent
from doorstep.model.action import AuditEntry
from doorstep.model.attempt import Code
from doorstep.model.entity import Entity, EntityChange, EntityFilter
from doorstep.model.listing import Count, Page
from doorstep.model.record import uuid7
from doorstep.operations.endpoint_rules import EndpointForm, HandlerFields, PolicyForm, check_function, form_from
from doorstep.operations.host import Host
from doorstep.operations.reader import checked_limit
from doorstep.pipelines import moves
from doorstep.pipelines.moves import Turn
from doorstep.pipelines.plan import NEVER_OPENS, Gate, Plan, Stage
from doorstep.pipelines.stage_handler import (
    StageFunction,
    StageRun,
    checked_data,
    handler_for,
    waiting_for_the_store,
    write,
)
from doorstep.stores.foreign import Omitted
from doorstep.stores.limits import COUNT_MAX
from doorstep.transports.handler_replies import Handler, Received


class Attached:
    """A part of class Pipeline."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._host: Host | None = None
        self._org_id = UUID(int=0)

    @property
    def name(self) -> str:
        """What its entities are called."""
        return self.plan.name

    @property
    def org_id(self) -> UUID:
        """The organization that it was added for."""
        return self._org_id

    @property
    def arrival(self) -> str:
        """The type of the event that brings an entity begun in a program's own transaction."""
        return self.plan.event_type(self.plan.first)

    @property
    def _opened(self) -> Host:
        if self._host is None:
            raise ConfigError(f"pipeline {self.name!r} belongs to no Doorstep yet; call doorstep.add(…) with it first")
        return self._host

    async def _write(self, turn: Turn) -> Entity | None:
        return await self._opened.binding.call(lambda: write(self._opened, turn))


_ENTITY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~@-]{0,127}")
_ID_RULE = "must be 1 to 128 letters, digits and the signs . _ : ~ @ - and begin with a letter or digit"
ARRIVAL_POLICY = "patient"
"""Whoever began an entity in a transaction was told that it exists: it is brought in however long the store is away."""


class Arrival(msgspec.Struct, frozen=True):
    """The payload of the event that brings an entity."""

    entity_id: str
    data: dict[str, Any]


class Starting(Attached):
    """A part of class Pipeline."""

    async def start(
        self, data: Mapping[str, Any], entity_id: str | UUID | None = None, *, connection: object = Omitted.CONNECTION
    ) -> Entity:
        """A new entity. When this returns, it is on stable storage, and its first stage is on its way.

        Conflict if there is one with this id already.

        With a `connection` (or session) of the program's own it exists if and only if that transaction commits, and
        can be read a moment later; its event is the one that brings it. Whether its id is free is seen only then: if it
        is not, that event is a dead letter with the code CONFLICT. None is no connection, and refused.
        """
        turn = self._started(data, entity_id)
        if connection is not Omitted.CONNECTION:
            posted = self._post_on(connection, turn.entity)
            return _brought_by(turn, await posted if inspect.isawaitable(posted) else posted)
        if (entity := await self._write(turn)) is None:
            raise Conflict(f"there is a {self.name} {turn.entity.entity_id} already")
        return entity

    def start_sync(
        self, data: Mapping[str, Any], entity_id: str | UUID | None = None, *, connection: object = Omitted.CONNECTION
    ) -> Entity:
        """`start` for programs without an event loop; with a blocking connection it only inserts a row there."""
        if connection is Omitted.CONNECTION:
            return self._opened.binding.call_sync(lambda: self.start(data, entity_id))
        turn = self._started(data, entity_id)
        posted = self._post_on(connection, turn.entity)
        if inspect.isawaitable(posted):
            raise InvalidInput("connection", "is an asynchronous one; await start() instead")
        return _brought_by(turn, posted)

    async def arrive(self, received: Received) -> None:
        """An entity that was begun in a program's own transaction, which has been committed."""
        given = received.json(Arrival)
        try:
            turn = self._started(given.data, given.entity_id, received.event_id)
        except InvalidInput as error:
            raise Permanent(Code.INVALID_FORMAT, f"{error.field} cannot be used.") from error
        with waiting_for_the_store(received):
            if await self._write(turn) is None:
                await self._check_repeated(given.entity_id, received.event_id)

    async def _check_repeated(self, entity_id: str, arrival: UUID) -> None:
        """The same event may come twice. Another one wanted a new entity, and must not get lost without a word."""
        host = self._opened
        history = await host.binding.call(
            lambda: host.components.store.entity_history(self._org_id, self.name, entity_id)
        )
        if history[0].event_id != arrival:
            raise Permanent("CONFLICT", f"There is a {self.name} {entity_id} already; it was begun by somebody else.")

    def _started(self, data: Mapping[str, Any], entity_id: str | UUID | None, arrival: UUID | None = None) -> Turn:
        now = self._opened.clock.now()
        given = str(uuid7(now)) if entity_id is None else checked_id(entity_id)
        kept = checked_data(data, self._opened.settings.payload_bytes_max)
        return moves.started(self.plan, self._org_id, given, kept, now, uuid7(now), arrival)

    def _post_on(self, connection: object, entity: Entity) -> Any:
        payload = {"entity_id": entity.entity_id, "data": entity.data}
        return self._opened.send(self.arrival, payload, org_id=self._org_id, connection=connection)


def checked_id(entity_id: object) -> str:
    """The id of an entity as text."""
    given = str(entity_id) if isinstance(entity_id, UUID) else entity_id
    if not isinstance(given, str):
        raise InvalidInput("entity_id", f"must be text or a UUID, got a {type(entity_id).__name__}")
    if not _ENTITY_ID.fullmatch(given):
        raise InvalidInput("entity_id", f"{_ID_RULE}, got {given[:140]!r}")
    return given


def _brought_by(turn: Turn, posted: Any) -> Entity:
    """The entity as it will be. Its first stage has no event yet, so it has that which brings it."""
    return replace(turn.entity, event_id=posted.event_id)


EntityId = str | UUID
_WRITE_TRIES = 5


class Verbs(Attached):
    """A part of class Pipeline."""

    def __init__(self, plan: Plan, archive_after: Instant) -> None:
        super().__init__(plan)
        self._archive_after = archive_after

    async def entity(self, entity_id: EntityId) -> Entity:
        """One entity as it stands; NotFound for an unknown one."""
        return self._seen(await self._kept(entity_id))

    async def history(self, entity_id: EntityId) -> Sequence[EntityChange]:
        """Every change of its status, oldest first."""
        host, name = self._opened, _text(entity_id)
        return await host.binding.call(lambda: host.components.store.entity_history(self._org_id, self.name, name))

    async def list(
        self, status: str | None = None, *, archived: bool = False, cursor: str | None = None, limit: int = 50
    ) -> Page[Entity]:
        """The newest first, page by page. Archived ones are left out unless they are asked for, or their status is.

        A status that the declaration does not have (any more) gives those that still have it, if there are any.
        """
        host, wanted, most = self._opened, self._filter(status, archived), checked_limit(limit)
        page = await host.binding.call(lambda: host.components.store.list_entities(self._org_id, wanted, cursor, most))
        return Page(tuple(self._seen(one) for one in page.items), page.next)

    async def counts(self, limit: int = COUNT_MAX) -> dict[str, Count]:
        """How many there are with each status, in the order of the declaration; for each counted up to `limit`.

        A status that the declaration does not have (any more) is at the end, if there are entities that still have it.
        """
        host = self._opened
        stored = await host.binding.call(lambda: host.components.store.entity_statuses(self._org_id, self.name))
        statuses = [*self.plan.phases, *(one for one in stored if one not in self.plan.phases)]
        wanted = [self._filter(status, archived=False) for status in statuses]
        counts = await host.binding.call(lambda: host.components.store.count_entities(self._org_id, wanted, limit))
        return dict(zip(statuses, counts, strict=True))

    # -- what people do ------------------------------------------------------------------------------------

    async def approve(self, entity_id: EntityId, actor: str, *, gate: str | None = None) -> Entity:
        """Let it through its gate; audited. Conflict if it does not wait at one, or not at this.

        A decision is about one gate: that which is named, else that at which the entity is when this is called.
        """
        gate = gate or (await self._kept(entity_id)).status

        def approved(entity: Entity, now: Instant) -> Turn:
            self._check_gate(entity, gate)
            return moves.approved(self.plan, entity, actor, now, uuid7(now))

        return await self._change(entity_id, approved)

    async def reject(self, entity_id: EntityId, actor: str, reason: str = "", *, gate: str | None = None) -> Entity:
        """Send it from its gate to the dead letters; audited. Conflict if it does not wait at one, or not at this."""
        gate = gate or (await self._kept(entity_id)).status

        def rejected(entity: Entity, now: Instant) -> Turn:
            self._check_gate(entity, gate)
            return moves.rejected(self.plan, entity, actor, reason, now)

        return await self._change(entity_id, rejected)

    async def retry(self, entity_id: EntityId, actor: str, reason: str = "") -> Entity:
        """Back to the start, without its error and with a new event; audited.

        NotRetryable unless it failed, is a dead letter or archived. Whatever an earlier try of it still does is ignored.
        """

        def retried(entity: Entity, now: Instant) -> Turn:
            if not self.plan.can_retry(entity.status):
                retryable = ", ".join(status for status in self.plan.phases if self.plan.can_retry(status))
                raise NotRetryable(
                    f"{self.name} {entity.entity_id} is {entity.status} and cannot be retried; only {retryable} can"
                )
            return moves.retried(self.plan, entity, actor, reason, now, uuid7(now))

        return await self._change(entity_id, retried)

    async def delete(self, entity_id: EntityId, actor: str, reason: str = "") -> None:
        """Remove it and its history, in whatever status; audited. What a stage of it still does changes nothing.

        Events and attempts stay as long as those of others; they name the entity and do not hold its data. Only the
        event of one that was begun in a program's own transaction does: that is deleted with it.
        """
        host = self._opened
        for _ in range(_WRITE_TRIES):
            entity = await self._kept(entity_id)
            first = (await self.history(entity_id))[0]
            line = moves.deleted(entity, actor, reason, host.clock.now())
            if await host.binding.call(partial(self._delete, entity, line, first.event_id)):
                return
        raise self._restless(entity_id)

    # -- inside --------------------------------------------------------------------------------------------

    async def _delete(self, entity: Entity, line: AuditEntry, first: UUID | None) -> bool:
        """With the event that its history begins with, if that is the one that brought it."""
        arrival = first if first is not None and await self._is_arrival(first) else None
        moved = await self._opened.components.store.delete_entity(entity, line, arrival)
        if moved is not None:
            self._opened.telemetry.emit_all(facts.moved(moved, line.at))
        return moved is not None

    async def _is_arrival(self, event_id: UUID) -> bool:
        with suppress(NotFound):
            return (await self._opened.components.store.event(self._org_id, event_id)).event.event_type == self.arrival
        return False

    def dead_before(self, now: Instant) -> Instant:
        """What died before this instant is archived."""
        return now - self._archive_after

    async def _change(self, entity_id: EntityId, decide: Callable[[Entity, Instant], Turn]) -> Entity:
        """Decide and write, anew if someone else was faster."""
        for _ in range(_WRITE_TRIES):
            turn = decide(await self._kept(entity_id), self._opened.clock.now())
            if entity := await self._write(turn):
                return entity
        raise self._restless(entity_id)

    def _restless(self, entity_id: EntityId) -> Conflict:
        return Conflict(f"{self.name} {entity_id} keeps changing; try again")

    async def _kept(self, entity_id: EntityId) -> Entity:
        host, name = self._opened, _text(entity_id)
        return await host.binding.call(lambda: host.components.store.entity(self._org_id, self.name, name))

    def _check_gate(self, entity: Entity, gate: str) -> None:
        """Of two who decide at once, the second must not decide about a gate further on, which he never saw."""
        if entity.status not in self.plan.gates:
            gates = ", ".join(sorted(self.plan.gates)) or "a gate, and this pipeline has none"
            raise Conflict(f"{self.name} {entity.entity_id} is {entity.status}; a decision is possible only at {gates}")
        if entity.status != gate:
            raise Conflict(f"{self.name} {entity.entity_id} is {entity.status}, not {gate}; look at it again")

    def _filter(self, status: str | None, archived: bool) -> EntityFilter:
        dead_before = self.dead_before(self._opened.clock.now())
        if status == self.plan.archived:
            return EntityFilter(pipeline=self.name, archived=True, archived_before=dead_before)
        undeclared = status is not None and status not in self.plan.phases
        which = None if undeclared or (archived and status is None) else False
        return EntityFilter(pipeline=self.name, status=status, archived=which, archived_before=dead_before)

    def _seen(self, entity: Entity) -> Entity:
        return moves.as_seen(self.plan, entity, self.dead_before(self._opened.clock.now()))


def _text(entity_id: EntityId) -> str:
    """A UUID may name an entity, too. What cannot be an id names none, and is not found."""
    if not isinstance(entity_id, str | UUID):
        raise InvalidInput("entity_id", f"must be text or a UUID, got a {type(entity_id).__name__}")
    return str(entity_id)


F = TypeVar("F", bound=StageFunction)

Register = Callable[[str, Handler, Stage | None], None]
"""Takes a handler by its name, and the stage that it is of."""


class Pipeline(Verbs, Starting):
    """Staged work with a status that people can trust.

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

    A stage may run twice for the same entity (a worker may die before it could say that it was done), so what it does
    outside must bear that. What it returns is kept once, together with the step to the next stage.
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
        """`policy` is for stages that have none of their own; `pipeline` tries at once, three times in all.

        `plural` is what lists of entities are called in web applications: the name and an s, unless it is given.
        """
        plan = Plan(name, first=first, steps=stages, last=last, dead=dead, archived=archived)
        super().__init__(plan, round(archive_after_days * DAY))
        self.plural = plural or f"{name}s"
        self._policy = policy
        self._functions: dict[str, StageFunction] = {}
        self._register: Register | None = None

    def stage(self, name: str) -> Callable[[F], F]:
        """Declare the function of a stage. What it returns, a mapping, is the entity's new data; None leaves it.

        A process may do without some of the functions: it leaves those stages to the workers that have them.
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

    # -- for the Doorstep that it is added to --------------------------------------------------------------

    def join(self, host: Host, org_id: UUID, register: Register) -> None:
        """Work for this Doorstep and organization; `register` takes the handlers of the stages."""
        if self._host is not None:
            raise ConfigError(f"pipeline {self.name!r} was added twice; one Doorstep has it once")
        self._host, self._org_id, self._register = host, org_id, register
        register(self.arrival, self.arrive, None)
        for name in self._functions:
            self._attach(self.plan.stage(name))

    def forms(self) -> Sequence[EndpointForm]:
        """The endpoints of its stages, and that for entities begun in a program's own transaction."""
        arrival: HandlerFields = {"policy": ARRIVAL_POLICY, "circuit": NEVER_OPENS}
        described: list[tuple[str, HandlerFields]] = [(self.plan.first, arrival)]
        described += [(stage.name, stage.fields) for stage in self.plan.stages]
        named = [(self.plan.event_type(step), fields) for step, fields in described]
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
            run = StageRun(self._opened, self._org_id, self.plan, stage)
            self._register(self.plan.event_type(stage.name), handler_for(run, self._functions[stage.name]), stage)
