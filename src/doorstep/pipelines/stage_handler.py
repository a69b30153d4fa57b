"""What happens when a stage's event is delivered: begin, run the program's function, and go on or say what failed.

Each of the three is one write, made only over the version that it was computed from. So a try that was given up, or an
event of an earlier round, can run on as long as it likes and changes nothing. The engine settles the delivery after the
entity is written: if the process dies in between, the event comes again, is no longer the entity's, and is passed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import to_iso
from doorstep.errors import InvalidInput, NotFound, Permanent, StoreError, StoreUnavailable, Transient
from doorstep.model.attempt import Failure, Reply
from doorstep.model.entity import Entity
from doorstep.model.record import uuid7
from doorstep.operations.host import Host, Pinned
from doorstep.pipelines import moves
from doorstep.pipelines.moves import Trouble, Turn
from doorstep.pipelines.plan import Plan, Stage
from doorstep.policy.classification import classify
from doorstep.policy.payload import check_payload
from doorstep.stores.protocol.entities import EntityStore
from doorstep.telemetry.facts import EntityTransition, Telemetry
from doorstep.transports.handler_replies import Handler, Received, worded

StageFunction = Callable[[Entity], Mapping[str, Any] | None] | Callable[[Entity], Awaitable[Mapping[str, Any] | None]]
"""A plain or async function of an entity. What it returns, a mapping, is the entity's new data; None leaves it."""

STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
_STORE_PAUSE_SECONDS = 5.0
"""Before the second try; four times as long before each later one."""
_BEGIN_TRIES = 5
_STALE = {"result": "stale: this event is no longer the entity's own"}


class Begun(NamedTuple):
    """A try that has begun: the entity in its stage, and the opening of the store that its end must be written to, if it is still open."""

    entity: Entity
    opening: Pinned


def handler_for(run: StageRun, function: StageFunction) -> Handler:
    """The handler of a stage: async for an async function; for a plain one plain, to be run in a thread."""
    handler = _async_handler(run, function) if _is_async(function) else _plain_handler(run, function)
    return wraps(function)(handler)  # an isolated one is looked for in the module of the function


def _is_async(function: StageFunction) -> bool:
    """An object that can be called may be either, too."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _async_handler(run: StageRun, function: Callable[[Entity], Any]) -> Handler:
    async def handle(received: Received) -> object:
        with waiting_for_the_store(received):
            begun = await run.host.binding.call(partial(run.begin, received))
        if begun is None:
            return _STALE
        given = run.copy(begun.entity)
        try:
            result = await function(given)
        except asyncio.CancelledError:  # out of time, or the worker stops: the engine says what that means
            raise
        except BaseException as error:
            failure = await asyncio.to_thread(worded, error, received.payload, begun.entity.data, given.data)
            with contextlib.suppress(StoreError):
                await begun.opening.call(partial(run.fail, begun.entity, received, failure))
            raise
        with waiting_for_the_store(received):
            return await begun.opening.call(partial(run.finish, begun.entity, result))

    return handle


def _plain_handler(run: StageRun, function: Callable[[Entity], Any]) -> Handler:
    def handle(received: Received) -> object:
        with waiting_for_the_store(received):
            begun = run.host.binding.call_sync(partial(run.begin, received))
        if begun is None:
            return _STALE
        given = run.copy(begun.entity)
        try:
            result = function(given)
        except BaseException as error:
            failure = worded(error, received.payload, begun.entity.data, given.data)
            with contextlib.suppress(StoreError):
                begun.opening.call_sync(partial(run.fail, begun.entity, received, failure))
            raise
        with waiting_for_the_store(received):
            return begun.opening.call_sync(partial(run.finish, begun.entity, result))

    return handle


@contextlib.contextmanager
def waiting_for_the_store(received: Received) -> Iterator[None]:
    """A store that is away for a moment must not cost all the tries of a policy that tries at once."""
    try:
        yield
    except StoreUnavailable as error:
        pause = _STORE_PAUSE_SECONDS * 4 ** min(received.attempt - 1, 4)
        raise Transient(STORE_UNAVAILABLE, "The store could not be reached.", retry_after=pause) from error


class StageRun:
    """The writes of one stage."""

    def __init__(self, host: Host, org_id: UUID, plan: Plan, stage: Stage) -> None:
        self.host = host
        self._org_id = org_id
        self._plan = plan
        self._stage = stage

    async def begin(self, received: Received) -> Begun | None:
        """The entity, in its stage; None if the event is not its present one (any more)."""
        for _ in range(_BEGIN_TRIES):
            entity = await self._entity_of(received)
            if entity is None or entity.event_id != received.event_id:
                return None
            turn = moves.begun(self._plan, entity, self._stage.name, self.host.clock.now(), received.attempt)
            if written := await write(self.host, turn):
                return Begun(written, self.host.binding.pin())
        raise Transient("SUPERSEDED", "Others kept changing the entity while its stage was about to begin.")

    async def finish(self, entity: Entity, result: object) -> object:
        """On to the next step."""
        data = self._checked(result)
        now = self.host.clock.now()
        turn = moves.finished(self._plan, entity, self._stage.name, data, now, uuid7(now))
        if not await write(self.host, turn):
            await self._make_way(entity)
            return _STALE
        return {"result": turn.entity.status}

    async def fail(self, entity: Entity, received: Received, failure: Failure) -> None:
        """Say on the entity what went wrong. If that cannot be written, the try has failed all the same."""
        trouble = self._trouble(failure, received)
        await write(self.host, moves.failed(self._plan, entity, self._stage, trouble, self.host.clock.now()))

    def _trouble(self, failure: Failure, received: Received) -> Trouble:
        """As the delivery will have it: its endpoint translates codes, and may have wishes of its own."""
        endpoint = self.host.components.directory.endpoint(received.endpoint_id)
        if endpoint is None:
            return Trouble(failure.message or failure.code, failure.category, failure.code, received.attempt)
        now = self.host.clock.now()
        outcome = classify(Reply(started_at=now, finished_at=now, failure=failure), endpoint)
        return Trouble(outcome.reason, outcome.category, outcome.code, received.attempt)

    def copy(self, entity: Entity) -> Entity:
        """For the function to keep: what it does to the data must not get into what is written if it fails."""
        return replace(entity, data=msgspec.json.decode(msgspec.json.encode(entity.data)))

    async def _entity_of(self, received: Received) -> Entity | None:
        named = msgspec.json.decode(received.payload)
        entity_id = named.get(f"{self._plan.name}_id") if isinstance(named, dict) else None
        return await self._present(str(entity_id))

    async def _present(self, entity_id: str) -> Entity | None:
        try:
            return await self.host.components.store.entity(self._org_id, self._plan.name, entity_id)
        except NotFound:  # deleted, perhaps: then nothing is left to be tried
            return None

    async def _make_way(self, entity: Entity) -> None:
        """Someone else wrote meanwhile. If the event is still the entity's own, another try of it has begun (this one
        was given up, and nobody listens to it); should that not be so, it must be tried again, never lost."""
        present = await self._present(entity.entity_id)
        if present is not None and present.event_id == entity.event_id:
            raise Transient("SUPERSEDED", "Another try of this stage has begun meanwhile.")

    def _checked(self, result: object) -> dict[str, Any] | None:
        if result is None:
            return None
        if not isinstance(result, Mapping):
            message = (
                f"Stage {self._stage.name} returned a {type(result).__name__}; it may return a mapping or nothing."
            )
            raise Permanent("INVALID_RESULT", message)
        try:
            return checked_data(result, self.host.settings.payload_bytes_max)
        except InvalidInput as error:
            raise Permanent("INVALID_RESULT", f"Stage {self._stage.name} returned data that cannot be kept: {error}")


def checked_data(data: Mapping[str, Any], bytes_max: int) -> dict[str, Any]:
    """The data of an entity as it will be read back: plain JSON, within the limits of payloads."""
    try:
        encoded = msgspec.json.encode(dict(data))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("data", f"cannot be written as JSON: {error}") from None
    check_payload(encoded, bytes_max, "data")
    return msgspec.json.decode(encoded, type=dict[str, Any])


async def write(host: Host, turn: Turn) -> Entity | None:
    """Keep a turn, if nobody was faster, and see to it that what it sent is soon on its way."""
    written = await keep(host.components.store, host.telemetry, turn)
    if written and turn.posted:
        host.wake()
    return written


async def keep(store: EntityStore, telemetry: Telemetry, turn: Turn) -> Entity | None:
    """The entity as it is kept now, all of its turn in one transaction; None if somebody else was faster."""
    entity, change, posted, line = turn
    if not await store.put_entity(entity, entity.version, change, posted, line):
        return None
    if change is not None:
        telemetry.emit(
            EntityTransition(
                at=to_iso(change.at),
                pipeline=entity.pipeline,
                entity_id=entity.entity_id,
                old_status=change.old_status,
                new_status=change.new_status,
                reason=change.reason,
                event_id=change.event_id,
                correlation_id=entity.entity_id,
                org_id=entity.org_id,
            )
        )
    return replace(entity, version=entity.version + 1)
