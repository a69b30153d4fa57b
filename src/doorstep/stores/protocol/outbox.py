"""The outbox: what programs post in transactions of their own, until it is accepted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.outbox import OutboxMessage


class OutboxStore(Protocol):
    """Posting, what is done with the posted, and with what can never be accepted."""

    def post_on(self, connection: object, posting: OutboxMessage, wake: Callable[[], None]) -> Awaitable[None] | None:
        """Put an event into the outbox on a connection of the program's own, in the transaction that it is in.

        The one verb that needs no opened store, and ends with somebody else's commit. It inserts one row: no lock, no
        look at anything. For a blocking connection that has been done at the return, for an asyncio one it is to be
        awaited. `wake` is called after the commit, where the connection tells of it; else soon after the insert, which
        is then too early. InvalidInput for what is no connection to this kind of database, or is in no transaction.
        """

    async def post(self, postings: Sequence[OutboxMessage]) -> None:
        """The same in a transaction of the store's own."""

    async def outbox(self, limit: int) -> list[OutboxMessage]:
        """What is posted and committed, in the order of posting; fewer than `limit` where the payloads reach
        OUTBOX_BYTES_MAX. What was set aside is left out; a row that cannot be read has a `flaw`."""

    async def any_posted(self) -> bool:
        """Whether `outbox` would give anything; asked all the time, so it costs next to nothing."""

    async def clear_outbox(self, event_ids: Sequence[UUID]) -> None:
        """These have been accepted. Unknown ones are none of our business. May be forgotten in a power cut."""

    async def set_aside(self, event_id: UUID, refusal: str, now: Instant) -> None:
        """Leave a posting where it is, and out of `outbox`: it can never be accepted. The first refusal stays."""

    async def refused(self, limit: int) -> list[OutboxMessage]:
        """What was set aside, in the order of posting."""

    async def put_back(self, event_ids: Sequence[UUID], line: AuditEntry) -> list[OutboxMessage]:
        """Those of these that were set aside are in `outbox` again; returns them as they were, in any order.

        `line` is written for each organization that they are of, with its ids and their number; its own organization
        stands for those that do not exist."""

    async def discard(self, event_ids: Sequence[UUID], line: AuditEntry) -> list[OutboxMessage]:
        """Remove those of these that were set aside; returns them, in any order. Audited like `put_back`."""

    def on_posted(self, wake: Callable[[], None]) -> None:
        """Call `wake` (from the event loop) when there may be something in the outbox. A hint: may be lost."""

    def tell_posted(self) -> None:
        """Tell the other processes so (from the event loop), where they do not notice by themselves."""
