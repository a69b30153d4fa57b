"""What programs and people do with the entities of a pipeline once they are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import Conflict, InvalidInput, NotFound, NotRetryable
from doorstep.model.act import AuditLine
from doorstep.model.entity import Entity, EntityChange, EntityFilter
from doorstep.model.ids import uuid7
from doorstep.model.listing import Count, Page
from doorstep.path import facts
from doorstep.path.paging import checked_limit
from doorstep.pipelines import moves
from doorstep.pipelines.attached import Attached
from doorstep.pipelines.moves import Turn
from doorstep.pipelines.plan import Plan
from doorstep.stores.bounds import COUNT_MAX

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

    async def _delete(self, entity: Entity, line: AuditLine, first: UUID | None) -> bool:
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
