"""How entities come into a pipeline: at once, or in a program's own transaction by an event that brings them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.errors import Conflict, InvalidInput, Permanent
from doorstep.model.entity import Entity
from doorstep.model.ids import uuid7
from doorstep.model.outcome import Code
from doorstep.pipelines import moves
from doorstep.pipelines.attached import Attached
from doorstep.pipelines.moves import Turn
from doorstep.pipelines.stage_handler import checked_data, waiting_for_the_store
from doorstep.stores.foreign import Omitted
from doorstep.wire.received import Received

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
