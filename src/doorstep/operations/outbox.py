"""The outbox: posts messages, and lets operators retry or discard rejected messages. `services/forwarder.py` accepts
the messages.

`Host` is the part of class Doorstep that the outbox, batches and pipelines use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Unpack
from uuid import UUID

from doorstep.clock import Clock, Instant, to_datetime
from doorstep.config import Settings
from doorstep.engine.accept import Draft, Options, check
from doorstep.engine.directory import Directory
from doorstep.errors import InvalidInput
from doorstep.loop_binding import LoopBinding
from doorstep.model.action import AuditEntry, audit_entry
from doorstep.model.listing import RejectedMessages
from doorstep.model.outbox import OutboxMessage, OutboxOptions, Posted
from doorstep.model.record import uuid7
from doorstep.operations.reader import Reader
from doorstep.operations.sending import Sending
from doorstep.operations.shapes import rejected_shown
from doorstep.schemas.events import RejectedMessage
from doorstep.stores.app_connections import family_of
from doorstep.stores.limits import check_storable
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

RETRY, DISCARD = "outbox.retry", "outbox.discard"
"""The names of the actions in the audit log."""
_AT_ONCE_MAX = 1_000


class OutboxService:
    """Reads and changes the outbox of the open store. It covers the messages of every organization, because its users
    have access to the whole database anyway."""

    def __init__(self, store: Store, clock: Clock, default_org: UUID, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` is called when there may be messages to forward."""
        self._store = store
        self._clock = clock
        self._default_org = default_org
        self._wake = wake

    async def refused(self, limit: int = 100) -> list[RejectedMessage]:
        """The rejected messages, each with its `refusal`, in the order of posting."""
        messages = await self._store.find(None, RejectedMessages(limit=limit))
        return [rejected_shown(one, self._default_org) for one in messages]

    async def retry(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Requeue the rejected messages among `event_ids`, as if they had just been sent. Returns the requeued ids."""
        requeued = await self._store.requeue(event_ids, self._audit_entry(RETRY, event_ids, actor, reason))
        self._wake()
        return [message.event_id for message in requeued]

    async def discard(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Delete the rejected messages among `event_ids`. Returns the deleted ids."""
        discarded = await self._store.discard(event_ids, self._audit_entry(DISCARD, event_ids, actor, reason))
        return [message.event_id for message in discarded]

    def _audit_entry(self, action: str, event_ids: Sequence[UUID], actor: str, reason: str) -> AuditEntry:
        """The audit entry of an action. The store fills in the organization, the subjects and the result, which are
        known only inside its transaction."""
        if not 0 < len(event_ids) <= _AT_ONCE_MAX:
            raise InvalidInput("event_ids", f"must name 1 to {_AT_ONCE_MAX} events, got {len(event_ids)}")
        check_storable("actor", actor)
        check_storable("reason", reason)
        return audit_entry(self._clock.now(), self._default_org, actor, action, result="", reason=reason)


class OpenComponents(Protocol):
    """Some of the components of an open store; see components.py."""

    @property
    def store(self) -> Store: ...
    @property
    def directory(self) -> Directory: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def outbox(self) -> OutboxService: ...
    @property
    def reader(self) -> Reader: ...

    def wake_dispatcher(self) -> None:
        """Wake the dispatcher, because deliveries may be due."""


class Host(Protocol):
    """The part of a Doorstep that pipelines, batches and the outbox use."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def telemetry(self) -> Telemetry: ...
    @property
    def binding(self) -> LoopBinding[Any]: ...
    @property
    def components(self) -> OpenComponents:
        """Access the components only inside `binding.call`: they are rebuilt each time the store is opened."""

    def wake(self) -> None:
        """Hint that there may be messages in the outbox."""

    def send(self, event_type: str, payload: object, *, connection: Any = ..., **options: Unpack[Options]) -> Any:
        """Accept an event; with a `connection`, post it in that connection's transaction. To be awaited."""

    def send_sync(self, event_type: str, payload: object, *, connection: Any = ..., **options: Unpack[Options]) -> Any:
        """`send` for programs without an event loop."""


class Outbox:
    """`doorstep.outbox`: `OutboxService` for use from any event loop."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def refused(self, limit: int = 100) -> list[RejectedMessage]:
        """The rejected messages, each with its `refusal`, in the order of posting."""
        return await self._host.binding.call(lambda: self._host.components.outbox.refused(limit))

    async def retry(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Requeue the rejected messages among `event_ids`, as if they had just been sent. Returns the requeued ids."""
        return await self._host.binding.call(lambda: self._host.components.outbox.retry(event_ids, actor, reason))

    async def discard(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Delete the rejected messages among `event_ids`. Returns the deleted ids."""
        return await self._host.binding.call(lambda: self._host.components.outbox.discard(event_ids, actor, reason))


def post(
    draft: Draft, connection: object, store: Store, now: Instant, payload_bytes_max: int, wake: Callable[[], None]
) -> Sending[Posted]:
    """Put a draft into the outbox on the program's own connection. The store need not be open.

    On a blocking connection the message is inserted at once; on an asyncio connection, when the result is awaited.
    """
    message = _message(draft, now, payload_bytes_max)
    if not family_of(connection).asynchronous:
        store.post_on(connection, message, wake)
        return Sending.done(Posted(message.event_id, to_datetime(now)))

    async def insert() -> Posted:
        if (inserting := store.post_on(connection, message, wake)) is not None:
            await inserting
        return Posted(message.event_id, to_datetime(now))

    return Sending(f"send({draft.event_type!r}, …)", insert)


def post_sync(
    draft: Draft, connection: object, store: Store, now: Instant, payload_bytes_max: int, wake: Callable[[], None]
) -> Posted:
    """`post` for blocking connections."""
    message = _message(draft, now, payload_bytes_max)
    if family_of(connection).asynchronous:
        raise InvalidInput("connection", "is an asyncio connection; await the method whose name does not end in _sync")
    store.post_on(connection, message, wake)
    return Posted(message.event_id, to_datetime(now))


def _message(draft: Draft, now: Instant, payload_bytes_max: int) -> OutboxMessage:
    """Validates the draft as `send` does, except that the organization and the endpoints are checked only when the
    message is accepted."""
    check(draft, payload_bytes_max)
    if draft.idempotency_key is not None:
        raise InvalidInput("idempotency_key", "must be left out with a connection: its transaction commits only once")
    return message_from(draft, uuid7(now), now)


def message_from(draft: Draft, event_id: UUID, now: Instant) -> OutboxMessage:
    """The outbox message for a draft that has been checked."""
    return OutboxMessage(
        event_id=event_id,
        org_id=draft.org_id,
        event_type=draft.event_type,
        payload=draft.payload,
        created_at=now,
        options=OutboxOptions(
            correlation_id=draft.correlation_id,
            endpoint_ids=draft.endpoint_ids,
            deliver_at=draft.deliver_at,
            expires_at=draft.expires_at,
            metadata=None if draft.metadata == b"{}" else draft.metadata.decode(),
            ordering_key=draft.ordering_key,
            trace=draft.trace,
            user_id=draft.user_id,
        ),
    )
