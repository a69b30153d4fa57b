"""The handler of a stage: it marks the stage as begun, runs the program's function, and writes its result or its error.

Each write succeeds only if the entity still has the version that the write was computed from. So an abandoned attempt,
or an attempt of an event that was sent before the entity was retried, may continue to run but changes nothing. The
engine settles the delivery after the entity is written. If the process crashes in between, the event is delivered
again. By then, the entity has another event, so the handler skips the old one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import to_iso
from doorstep.errors import InvalidInput, NotFound, Permanent, StoreError, StoreUnavailable, Transient
from doorstep.loop_binding import Pin
from doorstep.model import entity as model
from doorstep.model.attempt import Failure, Reply
from doorstep.model.record import uuid7
from doorstep.operations.outbox import Host
from doorstep.operations.shapes import shape
from doorstep.pipelines import transitions
from doorstep.pipelines.plan import Plan, Stage
from doorstep.pipelines.transitions import EntityWrite, StageFailure
from doorstep.policy.classification import classify
from doorstep.policy.payload import check_payload
from doorstep.schemas.pipelines import Entity
from doorstep.stores.store import Store
from doorstep.telemetry.facts import EntityTransition, Telemetry
from doorstep.transports.handler_arguments import is_async
from doorstep.transports.handler_replies import Handler, Received, worded

StageFunction = Callable[[Entity], Mapping[str, Any] | None] | Callable[[Entity], Awaitable[Mapping[str, Any] | None]]
"""A plain or async function of an entity. It returns new data for the entity as a mapping, or None to keep the old
data."""

STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
_STORE_PAUSE_SECONDS = 5.0
"""The pause before the second attempt if the store is down. It grows fourfold with each further attempt."""
_BEGIN_TRIES = 5
_STALE = {"result": "stale: this event is no longer the entity's own"}


class Begun(NamedTuple):
    """An attempt that has begun: the entity in its stage, and a pin to the open store, to which the result is
    written."""

    entity: model.Entity
    binding: Pin[Any]


def handler_for(run: StageRun, function: StageFunction) -> Handler:
    """The handler of a stage: async for an async function, otherwise a plain function that runs in a thread."""
    handler = _async_handler(run, function) if is_async(function) else _plain_handler(run, function)
    named = wraps(function)(handler)  # an isolated handler is looked up in the module of its function
    del named.__wrapped__  # the signature of the handler counts, which takes the event
    return named


def _async_handler(run: StageRun, function: Callable[[Entity], Any]) -> Handler:
    async def handle(received: Received) -> object:
        with store_errors_as_transient(received):
            begun = await run.host.binding.call(partial(run.begin, received))
        if begun is None:
            return _STALE
        given = run.shown(begun.entity)
        try:
            result = await function(given)
        except asyncio.CancelledError:  # a timeout or a shutdown; the engine settles the attempt
            raise
        except BaseException as error:
            failure = await asyncio.to_thread(worded, error, received.payload, begun.entity.data, given.data)
            with contextlib.suppress(StoreError):
                await begun.binding.call(partial(run.fail, begun.entity, received, failure))
            raise
        with store_errors_as_transient(received):
            return await begun.binding.call(partial(run.finish, begun.entity, result))

    return handle


def _plain_handler(run: StageRun, function: Callable[[Entity], Any]) -> Handler:
    def handle(received: Received) -> object:
        with store_errors_as_transient(received):
            begun = run.host.binding.call_sync(partial(run.begin, received))
        if begun is None:
            return _STALE
        given = run.shown(begun.entity)
        try:
            result = function(given)
        except BaseException as error:
            failure = worded(error, received.payload, begun.entity.data, given.data)
            with contextlib.suppress(StoreError):
                begun.binding.call_sync(partial(run.fail, begun.entity, received, failure))
            raise
        with store_errors_as_transient(received):
            return begun.binding.call_sync(partial(run.finish, begun.entity, result))

    return handle


@contextlib.contextmanager
def store_errors_as_transient(received: Received) -> Iterator[None]:
    """If the store is down, retry later. A policy without delays would otherwise use up all attempts immediately."""
    try:
        yield
    except StoreUnavailable as error:
        pause = _STORE_PAUSE_SECONDS * 4 ** min(received.attempt - 1, 4)
        raise Transient(STORE_UNAVAILABLE, "The store could not be reached.", retry_after=pause) from error


class StageRun:
    """Writes the beginning, the result and the failure of a stage to its entity."""

    def __init__(self, host: Host, org_id: UUID, plan: Plan, stage: Stage) -> None:
        self.host = host
        self._org_id = org_id
        self._plan = plan
        self._stage = stage

    async def begin(self, received: Received) -> Begun | None:
        """Mark the stage as begun. Returns None if the event is not the entity's current event."""
        for _ in range(_BEGIN_TRIES):
            entity = await self._entity_of(received)
            if entity is None or entity.event_id != received.event_id:
                return None
            write = transitions.begun(self._plan, entity, self._stage.name, self.host.clock.now(), received.attempt)
            if written := await write_and_wake(self.host, write):
                return Begun(written, self.host.binding.pin())
        raise Transient("SUPERSEDED", "The entity kept changing while its stage was about to begin.")

    async def finish(self, entity: model.Entity, result: object) -> object:
        """Write the result and go to the next step."""
        data = self._checked(result)
        now = self.host.clock.now()
        write = transitions.finished(self._plan, entity, self._stage.name, data, now, uuid7(now))
        if not await write_and_wake(self.host, write):
            await self._check_superseded(entity)
            return _STALE
        return {"result": write.entity.status}

    async def fail(self, entity: model.Entity, received: Received, failure: Failure) -> None:
        """Write the error to the entity. The attempt has failed even if this write does not succeed."""
        stage_failure, now = self._stage_failure(failure, received), self.host.clock.now()
        await write_and_wake(self.host, transitions.failed(self._plan, entity, self._stage, stage_failure, now))

    def _stage_failure(self, failure: Failure, received: Received) -> StageFailure:
        """The failure as the delivery will show it. The endpoint's settings may change its code and category."""
        endpoint = self.host.components.directory.endpoint(received.endpoint_id)
        if endpoint is None:
            return StageFailure(failure.message or failure.code, failure.category, failure.code, received.attempt)
        now = self.host.clock.now()
        outcome = classify(Reply(started_at=now, finished_at=now, failure=failure), endpoint)
        return StageFailure(outcome.reason, outcome.category, outcome.code, received.attempt)

    def shown(self, entity: model.Entity) -> Entity:
        """The entity for the function, with a copy of the data, which the function may change. If the function fails,
        its changes must not be written."""
        return shape(Entity, entity, data=msgspec.json.decode(msgspec.json.encode(entity.data)))

    async def _entity_of(self, received: Received) -> model.Entity | None:
        named = msgspec.json.decode(received.payload)
        entity_id = named.get(f"{self._plan.name}_id") if isinstance(named, dict) else None
        return await self._current(str(entity_id))

    async def _current(self, entity_id: str) -> model.Entity | None:
        try:
            return await self.host.components.store.get(model.Entity, self._org_id, (self._plan.name, entity_id))
        except NotFound:  # probably deleted, so there is nothing left to do
            return None

    async def _check_superseded(self, entity: model.Entity) -> None:
        """Called if the entity changed during the attempt. If it has another event, the result is stale and is ignored.
        If it still has the same event, another attempt has begun. In that case, this attempt fails with a transient
        error, so that the stage is retried rather than lost."""
        current = await self._current(entity.entity_id)
        if current is not None and current.event_id == entity.event_id:
            raise Transient("SUPERSEDED", "Another attempt of this stage has begun.")

    def _checked(self, result: object) -> dict[str, Any] | None:
        if result is None:
            return None
        if not isinstance(result, Mapping):
            message = f"Stage {self._stage.name} returned a {type(result).__name__}; it must return a mapping or None."
            raise Permanent("INVALID_RESULT", message)
        try:
            return checked_data(result, self.host.settings.payload_bytes_max)
        except InvalidInput as error:
            raise Permanent("INVALID_RESULT", f"Stage {self._stage.name} returned invalid data: {error}")


def checked_data(data: Mapping[str, Any], bytes_max: int) -> dict[str, Any]:
    """The data of an entity as it will be read back: plain JSON, within the limits for payloads."""
    try:
        encoded = msgspec.json.encode(dict(data))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("data", f"cannot be written as JSON: {error}") from None
    check_payload(encoded, bytes_max, "data")
    return msgspec.json.decode(encoded, type=dict[str, Any])


async def write_and_wake(host: Host, write: EntityWrite) -> model.Entity | None:
    """Like `write_entity`, but also wakes the forwarder if messages were posted."""
    written = await write_entity(host.components.store, host.telemetry, write)
    if written and write.messages:
        host.wake()
    return written


async def write_entity(store: Store, telemetry: Telemetry, write: EntityWrite) -> model.Entity | None:
    """Write everything in one transaction. Returns the stored entity, or None if its version was no longer current."""
    entity, change, messages, audit_entry = write
    if not await store.put_entity(entity, entity.version, change, messages, audit_entry):
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
