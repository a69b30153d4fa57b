"""A Pipeline: declared in Python, added to a Doorstep, and driven by it from stage to stage."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from doorstep.clock import DAY, Instant
from doorstep.errors import ConfigError, Conflict, InvalidInput, NotRetryable
from doorstep.model.entity import Entity, EntityChange, EntityFilter
from doorstep.model.ids import uuid7
from doorstep.model.listing import Page
from doorstep.path.describing import form_from
from doorstep.path.enrol import EndpointForm, PolicyForm
from doorstep.pipelines import moves
from doorstep.pipelines.host import Host, write
from doorstep.pipelines.moves import Turn
from doorstep.pipelines.plan import Gate, Plan, Stage
from doorstep.pipelines.stage_handler import StageFunction, StageRun, checked_data, handler_for
from doorstep.wire.handler_transport import Handler
from doorstep.wire.received import Received

F = TypeVar("F", bound=StageFunction)

Register = Callable[[str, Handler, Stage | None], None]
"""Takes a handler by its name, and the stage that it is of."""
_ENTITY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~@-]{0,127}")
_WRITE_TRIES = 5


class Pipeline:
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
        self.plan = Plan(name, first=first, steps=stages, last=last, dead=dead, archived=archived)
        self.plural = plural or f"{name}s"
        self._archive_after: Instant = round(archive_after_days * DAY)
        self._policy = policy
        self._functions: dict[str, StageFunction] = {}
        self._host: Host | None = None
        self._org_id = UUID(int=0)
        self._register: Register | None = None

    @property
    def name(self) -> str:
        """What its entities are called."""
        return self.plan.name

    def stage(self, name: str) -> Callable[[F], F]:
        """Declare the function of a stage. What it returns, a mapping, is the entity's new data; None leaves it.

        A process may do without some of the functions: it leaves those stages to the workers that have them.
        """
        stage = self.plan.stage(name)

        def declare_stage(function: F) -> F:
            if name in self._functions:
                raise ConfigError(f"stage {name!r} of pipeline {self.name!r} has two functions; it needs one")
            self._functions[name] = function
            self._attach(stage)
            return function

        return declare_stage

    # -- entities ------------------------------------------------------------------------------------------

    async def start(self, data: Mapping[str, Any], entity_id: str | None = None, *, connection: Any = None) -> Entity:
        """A new entity. When this returns, it is on stable storage, and its first stage is on its way.

        With a `connection` (or session) of the program's own it exists if and only if that transaction commits, and
        can be read a moment later. Conflict if there is one with this id already.
        """
        turn = self._started(data, entity_id)
        if connection is not None:
            posted = self._post_on(connection, turn.entity)
            if inspect.isawaitable(posted):
                await posted
        elif not await self._write(turn):
            raise Conflict(f"there is a {self.name} {turn.entity.entity_id} already")
        return turn.entity

    def start_sync(self, data: Mapping[str, Any], entity_id: str | None = None, *, connection: Any = None) -> Entity:
        """`start` for programs without an event loop; with a blocking connection it only inserts a row there."""
        if connection is None:
            return self._opened.wait(lambda: self.start(data, entity_id))
        entity = self._started(data, entity_id).entity
        if inspect.isawaitable(self._post_on(connection, entity)):
            raise InvalidInput("connection", "is an asynchronous one; await start() instead")
        return entity

    async def entity(self, entity_id: str) -> Entity:
        """One entity as it stands; NotFound for an unknown one."""
        return self._seen(await self._kept(entity_id))

    async def history(self, entity_id: str) -> Sequence[EntityChange]:
        """Every change of its status, oldest first."""
        host = self._opened
        return await host.at_home(lambda: host.store.entity_history(self._org_id, self.name, entity_id))

    async def list(
        self, status: str | None = None, *, archived: bool = False, cursor: str | None = None, limit: int = 50
    ) -> Page[Entity]:
        """The newest first, page by page. Archived ones are left out unless they are asked for, or their status is."""
        host, wanted = self._opened, self._filter(status, archived)
        page = await host.at_home(lambda: host.store.list_entities(self._org_id, wanted, cursor, limit))
        return Page(tuple(self._seen(one) for one in page.items), page.next)

    # -- what people do ------------------------------------------------------------------------------------

    async def approve(self, entity_id: str, actor: str) -> Entity:
        """Let it through its gate; audited. Conflict if it does not wait at one."""

        def approved(entity: Entity, now: Instant) -> Turn:
            self._check_gate(entity)
            return moves.approved(self.plan, entity, actor, now, uuid7(now))

        return await self._change(entity_id, approved)

    async def reject(self, entity_id: str, actor: str, reason: str = "") -> Entity:
        """Send it from its gate to the dead letters; audited. Conflict if it does not wait at one."""

        def rejected(entity: Entity, now: Instant) -> Turn:
            self._check_gate(entity)
            return moves.rejected(self.plan, entity, actor, reason, now)

        return await self._change(entity_id, rejected)

    async def retry(self, entity_id: str, actor: str, reason: str = "") -> Entity:
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

    # -- for the Doorstep that it is added to --------------------------------------------------------------

    def join(self, host: Host, org_id: UUID, register: Register) -> None:
        """Work for this Doorstep and organization; `register` takes the handlers of the stages."""
        if self._host is not None:
            raise ConfigError(f"pipeline {self.name!r} was added twice; one Doorstep has it once")
        self._host, self._org_id, self._register = host, org_id, register
        register(self._arrival, self._arrive, None)
        for name in self._functions:
            self._attach(self.plan.stage(name))

    def forms(self) -> Sequence[EndpointForm]:
        """The endpoints of its stages, and that for entities begun in a program's own transaction."""
        described = [(stage.name, stage.fields) for stage in self.plan.stages]
        return [
            form_from(name, {"policy": self._policy, **fields, "handler": name, "event_types": (name,)})
            for name, fields in (
                (self.plan.event_type(one), given) for one, given in [(self.plan.first, {}), *described]
            )
        ]

    @property
    def org_id(self) -> UUID:
        """The organization that it was added for."""
        return self._org_id

    @property
    def missing(self) -> Sequence[str]:
        """The stages whose functions this process does not have."""
        return [stage.name for stage in self.plan.stages if stage.name not in self._functions]

    def dead_before(self, now: Instant) -> Instant:
        """What died before this instant is archived."""
        return now - self._archive_after

    # -- inside --------------------------------------------------------------------------------------------

    @property
    def _opened(self) -> Host:
        if self._host is None:
            raise ConfigError(f"pipeline {self.name!r} belongs to no Doorstep yet; call doorstep.add(…) with it first")
        return self._host

    @property
    def _arrival(self) -> str:
        """The event that begins an entity in a program's own transaction."""
        return self.plan.event_type(self.plan.first)

    def _attach(self, stage: Stage) -> None:
        if self._register is not None:
            run = StageRun(self._opened, self._org_id, self.plan, stage)
            self._register(self.plan.event_type(stage.name), handler_for(run, self._functions[stage.name]), stage)

    def _started(self, data: Mapping[str, Any], entity_id: str | None) -> Turn:
        now = self._opened.clock.now()
        given = str(uuid7(now)) if entity_id is None else entity_id
        if not _ENTITY_ID.fullmatch(given):
            rule = "must be 1 to 128 letters, digits and the signs . _ : ~ @ - and begin with a letter or digit"
            raise InvalidInput("entity_id", f"{rule}, got {given[:140]!r}")
        kept = checked_data(data, self._opened.tuning.payload_bytes_max)
        return moves.started(self.plan, self._org_id, given, kept, now, uuid7(now))

    def _post_on(self, connection: Any, entity: Entity) -> Any:
        payload = {"entity_id": entity.entity_id, "data": entity.data}
        return self._opened.send(self._arrival, payload, org_id=self._org_id, connection=connection)

    async def _arrive(self, received: Received) -> None:
        """An entity that was begun in a program's own transaction, which has been committed."""
        given = received.json()
        await self._write(self._started(given["data"], given["entity_id"]))

    async def _change(self, entity_id: str, decide: Callable[[Entity, Instant], Turn]) -> Entity:
        """Decide and write, anew if someone else was faster."""
        for _ in range(_WRITE_TRIES):
            turn = decide(await self._kept(entity_id), self._opened.clock.now())
            if await self._write(turn):
                return turn.entity
        raise Conflict(f"{self.name} {entity_id} keeps changing; try again")

    async def _kept(self, entity_id: str) -> Entity:
        host = self._opened
        return await host.at_home(lambda: host.store.entity(self._org_id, self.name, entity_id))

    async def _write(self, turn: Turn) -> bool:
        return await self._opened.at_home(lambda: write(self._opened, turn))

    def _check_gate(self, entity: Entity) -> None:
        if entity.status not in self.plan.gates:
            gates = ", ".join(sorted(self.plan.gates)) or "a gate, and this pipeline has none"
            raise Conflict(f"{self.name} {entity.entity_id} is {entity.status}; a decision is possible only at {gates}")

    def _filter(self, status: str | None, archived: bool) -> EntityFilter:
        if status is not None and status not in self.plan.phases:
            raise InvalidInput("status", f"must be one of {', '.join(self.plan.phases)}")
        dead_before = self.dead_before(self._opened.clock.now())
        if status == self.plan.archived:
            return EntityFilter(pipeline=self.name, archived=True, archived_before=dead_before)
        which = None if archived and status is None else False
        return EntityFilter(pipeline=self.name, status=status, archived=which, archived_before=dead_before)

    def _seen(self, entity: Entity) -> Entity:
        return moves.as_seen(self.plan, entity, self.dead_before(self._opened.clock.now()))
