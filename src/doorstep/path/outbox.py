"""Beside the path: what was set aside in the outbox, for people to look at, to put back or to remove. Audited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from doorstep.clock import Clock
from doorstep.errors import InvalidInput
from doorstep.model.act import AuditLine
from doorstep.model.posting import Posting
from doorstep.stores.store import Store
from doorstep.stores.text import check_storable

if TYPE_CHECKING:
    from doorstep.path.host import Host

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

    async def refused(self, limit: int = 100) -> list[Posting]:
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

    def _line(self, action: str, event_ids: Sequence[UUID], actor: str, reason: str) -> AuditLine:
        """The store says whose, which and how many: it knows that in the transaction in which it is done."""
        if not 0 < len(event_ids) <= _AT_ONCE_MAX:
            raise InvalidInput("event_ids", f"must name 1 to {_AT_ONCE_MAX} events, got {len(event_ids)}")
        check_storable("actor", actor)
        check_storable("reason", reason)
        return AuditLine(
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

    async def refused(self, limit: int = 100) -> list[Posting]:
        """What was set aside, each with its `refusal`, in the order of posting."""
        return await self._host.binding.call(lambda: self._host.components.outbox.refused(limit))

    async def retry(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Put these back, to be accepted as if they had been sent just now; returns those that were set aside."""
        return await self._host.binding.call(lambda: self._host.components.outbox.retry(event_ids, actor, reason))

    async def discard(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Remove these for good; returns those that were set aside."""
        return await self._host.binding.call(lambda: self._host.components.outbox.discard(event_ids, actor, reason))
