"""The outbox: posting messages, accepting them as events, and what operators do with rejected ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.engine.accept import Accepter, Draft, check
from doorstep.errors import DoorstepError, InvalidInput, Overloaded, StoreError
from doorstep.model.action import AuditEntry
from doorstep.model.endpoint import EndpointState
from doorstep.model.outbox import OutboxMessage, OutboxOptions, Posted, said_in
from doorstep.model.record import uuid7
from doorstep.stores.protocol.outbox import OutboxStore
from doorstep.stores.store import Store, Task
from doorstep.stores.text import check_storable, storable
from doorstep.telemetry.facts import Notice, Telemetry
from doorstep.telemetry.redaction import safe_message

if TYPE_CHECKING:
    from doorstep.operations.host import Host


RETRY, DISCARD = "outbox.retry", "outbox.discard"
"""What the audit calls them."""
_AT_ONCE_MAX = 1_000


class OutboxService:
    """On an open store. Rows of every organization: whoever may use this has access to the database itself."""

    def __init__(self, store: Store, clock: Clock, default_org: UUID, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` is called when there may be something to forward."""
        self._store = store
        self._clock = clock
        self._default_org = default_org
        self._wake = wake

    async def refused(self, limit: int = 100) -> list[OutboxMessage]:
        """What was set aside, each with its `refusal`, in the order of posting."""
        return await self._store.refused(limit)

    async def retry(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Put these back, to be accepted as if they had been sent just now; returns those that were set aside."""
        line = self._line(RETRY, event_ids, actor, reason)
        done = await self._store.put_back(event_ids, line)
        self._wake()
        return [posting.event_id for posting in done]

    async def discard(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Remove these for good; returns those that were set aside."""
        line = self._line(DISCARD, event_ids, actor, reason)
        return [posting.event_id for posting in await self._store.discard(event_ids, line)]

    def _line(self, action: str, event_ids: Sequence[UUID], actor: str, reason: str) -> AuditEntry:
        """The store says whose, which and how many: it knows that in the transaction in which it is done."""
        if not 0 < len(event_ids) <= _AT_ONCE_MAX:
            raise InvalidInput("event_ids", f"must name 1 to {_AT_ONCE_MAX} events, got {len(event_ids)}")
        check_storable("actor", actor)
        check_storable("reason", reason)
        return AuditEntry(
            at=self._clock.now(),
            org_id=self._default_org,
            actor=actor,
            action=action,
            subjects=(),
            result="",
            reason=reason,
        )


class Outbox:
    """`doorstep.outbox`: the same from any event loop."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def refused(self, limit: int = 100) -> list[OutboxMessage]:
        """What was set aside, each with its `refusal`, in the order of posting."""
        return await self._host.binding.call(lambda: self._host.components.outbox.refused(limit))

    async def retry(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Put these back, to be accepted as if they had been sent just now; returns those that were set aside."""
        return await self._host.binding.call(lambda: self._host.components.outbox.retry(event_ids, actor, reason))

    async def discard(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Remove these for good; returns those that were set aside."""
        return await self._host.binding.call(lambda: self._host.components.outbox.discard(event_ids, actor, reason))


def post(
    draft: Draft,
    connection: object,
    store: OutboxStore,
    now: Instant,
    payload_bytes_max: int,
    wake: Callable[[], None],
) -> Posted | Coroutine[Any, Any, Posted]:
    """Post a draft on a connection of the program's own; the store need not be open. To be awaited for asyncio ones.

    Refuses what `send` would; only whether there are such an organization and endpoints is seen later.
    """
    check(draft, payload_bytes_max)
    if draft.idempotency_key is not None:
        raise InvalidInput("idempotency_key", "must be left out with a connection: its transaction happens once")
    posted = Posted(uuid7(now), now)
    inserting = store.post_on(connection, posting_of(draft, posted.event_id, now), wake)
    return posted if inserting is None else _answer(posted, inserting)


def posting_of(draft: Draft, event_id: UUID, now: Instant) -> OutboxMessage:
    """What is put into the outbox for a draft that has been checked."""
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
        ),
    )


async def _answer(posted: Posted, inserting: Awaitable[None]) -> Posted:
    await inserting
    return posted


_BATCH_MAX = 500
HOLD_SECONDS = 3.0
"""For so long the others leave the outbox to a process that was killed while it forwarded."""

_PASSING = (StoreError, Overloaded, OSError, MemoryError)
"""What says that the moment is at fault. Anything else is the posting's own: it would fail for ever, and hold up all."""
_TRIES = 2
"""An endpoint may be deleted between the look at it and the acceptance."""


class OutboxForwarder:
    """Takes the first of what is posted, as a batch; one by one where the batch has something unacceptable in it.

    Of several processes one does it, as long as there is something: the others would do the same work in vain.
    """

    def __init__(self, store: Store, accepter: Accepter, clock: Clock, telemetry: Telemetry, name: str) -> None:
        self._store = store
        self._accepter = accepter
        self._clock = clock
        self._telemetry = telemetry
        self._name = name
        self._held_until: Instant = 0
        self.held_at: Instant = 0
        """When it last had the right to forward."""
        self._batch_max = _BATCH_MAX

    async def __call__(self) -> int:
        """One batch; returns how many postings have left the outbox, or were set aside in it."""
        try:
            return await self._forward()
        except Exception:
            with suppress(DoorstepError):
                await self.leave()  # somebody else may fare better
            raise

    async def _forward(self) -> int:
        postings = await self._first()
        if not postings:
            await self.leave()
            return 0
        if accepted := await self._accept(postings):
            await self._store.clear_outbox([posting.event_id for posting in accepted])
        return len(postings)

    async def leave(self) -> None:
        """Let the others forward, if it has been us."""
        if self._held_until:
            self._held_until = 0
            await self._store.leave(Task.OUTBOX, self._name)

    # -- one at a time -------------------------------------------------------------------------------------

    async def _first(self) -> list[OutboxMessage]:
        """What is ours to forward; nothing while somebody else does it."""
        if not self._held_until and not await self._store.any_posted():
            return []
        return await self._store.outbox(self._batch_max) if await self._hold() else []

    async def _hold(self) -> bool:
        now = self._clock.now()
        if self._held_until - now < seconds(HOLD_SECONDS / 2):
            until = now + seconds(HOLD_SECONDS)
            self._held_until = until if await self._store.hold(Task.OUTBOX, self._name, now, until) else 0
        if self._held_until:
            self.held_at = now
        return bool(self._held_until)

    # -- accepting -----------------------------------------------------------------------------------------

    async def _accept(self, postings: Sequence[OutboxMessage]) -> Sequence[OutboxMessage]:
        """Those that were accepted; all of them, but for postings that never can be."""
        try:
            await self._accept_together(postings)
            return postings
        except Overloaded:
            self._batch_max = max(1, self._batch_max // 2)
            raise
        except _PASSING:
            raise
        except Exception:  # noqa: BLE001  one of them is at fault: which one, and why, is seen when it is alone
            return [posting for posting in postings if await self._accepted_alone(posting)]

    async def _accept_together(self, postings: Sequence[OutboxMessage]) -> None:
        for posting in postings:
            _check_readable(posting)
        await self._accepter.accept([draft_from(posting) for posting in postings])
        self._batch_max = min(2 * self._batch_max, _BATCH_MAX)

    async def _accepted_alone(self, posting: OutboxMessage) -> bool:
        for tries_left in reversed(range(_TRIES)):
            try:
                _check_readable(posting)
                await self._accepter.accept([await self._as_things_are(draft_from(posting))])
                return True
            except _PASSING:
                raise
            except Exception as error:  # noqa: BLE001  whatever it is, the others must not wait for it
                if not tries_left:
                    await self._set_aside(posting, error)
        return False

    async def _as_things_are(self, draft: Draft) -> Draft:
        """With those of its endpoints told apart that were deleted meanwhile. NotFound for one that never was."""
        named = [await self._store.endpoint(draft.org_id, one) for one in dict.fromkeys(draft.endpoint_ids or ())]
        departed = tuple(one.endpoint_id for one in named if one.state is EndpointState.DELETED)
        return replace(draft, departed=departed)

    async def _set_aside(self, posting: OutboxMessage, error: Exception) -> None:
        now = self._clock.now()
        reason = str(error) if isinstance(error, DoorstepError) else safe_message(error)
        await self._store.set_aside(posting.event_id, storable(reason), now)
        fields: dict[str, object] = {"event_id": posting.event_id, "org_id": posting.org_id, "reason": reason}
        fields |= {"correlation_id": posting.options.correlation_id}
        message = "an event in the outbox can never be accepted and was set aside"
        self._telemetry.emit(Notice(at=to_iso(now), level="error", message=message, fields=fields))


def _check_readable(posting: OutboxMessage) -> None:
    if posting.flaw is not None:
        raise InvalidInput("options", posting.flaw)


def draft_from(posting: OutboxMessage) -> Draft:
    """The draft that its sender gave, with the id that he was told."""
    return Draft(endpoint_ids=posting.options.endpoint_ids, **said_in(posting))
