"""Beside the first step: an event is left in the outbox by the sender's own transaction, to be accepted after its commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import InvalidInput
from doorstep.model.ids import uuid7
from doorstep.model.posting import Posted, Posting, PostingOptions
from doorstep.path.accept import Draft, check
from doorstep.stores.protocol.outbox import OutboxStore


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


def posting_of(draft: Draft, event_id: UUID, now: Instant) -> Posting:
    """What is put into the outbox for a draft that has been checked."""
    return Posting(
        event_id=event_id,
        org_id=draft.org_id,
        event_type=draft.event_type,
        payload=draft.payload,
        created_at=now,
        options=PostingOptions(
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
