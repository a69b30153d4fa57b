"""Beside the path: what was set aside in the outbox, for people to look at, to put back or to remove. Audited."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.errors import InvalidInput
from doorstep.model.act import AuditLine
from doorstep.model.posting import Posting
from doorstep.path.host import StoreHost
from doorstep.stores.text import check_storable

RETRY, DISCARD = "outbox.retry", "outbox.discard"
"""What the audit calls them."""
_AT_ONCE_MAX = 1_000


class Outbox:
    """`doorstep.outbox`. Rows of every organization: who is allowed here has the database itself."""

    def __init__(self, host: StoreHost, default_org: UUID) -> None:
        self._host = host
        self._default_org = default_org

    async def refused(self, limit: int = 100) -> list[Posting]:
        """What was set aside, each with its `refusal`, in the order of posting."""
        return await self._host.at_home(lambda: self._host.store.refused(limit))

    async def retry(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Put these back, to be accepted as if they had been sent just now; returns those that were set aside."""
        done = await self._host.at_home(lambda: self._do(RETRY, event_ids, actor, reason))
        self._host.wake()
        return done

    async def discard(self, event_ids: Sequence[UUID], actor: str, reason: str = "") -> list[UUID]:
        """Remove these for good; returns those that were set aside."""
        return await self._host.at_home(lambda: self._do(DISCARD, event_ids, actor, reason))

    async def _do(self, action: str, event_ids: Sequence[UUID], actor: str, reason: str) -> list[UUID]:
        if not 0 < len(event_ids) <= _AT_ONCE_MAX:
            raise InvalidInput("event_ids", f"must name 1 to {_AT_ONCE_MAX} events, got {len(event_ids)}")
        check_storable("actor", actor)
        check_storable("reason", reason)
        store, line = self._host.store, self._line(action, actor, reason)
        done = await (store.put_back(event_ids, line) if action == RETRY else store.discard(event_ids, line))
        return [posting.event_id for posting in done]

    def _line(self, action: str, actor: str, reason: str) -> AuditLine:
        """The store says whose, which and how many: it knows that in the transaction in which it is done."""
        return AuditLine(
            at=self._host.clock.now(),
            org_id=self._default_org,
            actor=actor,
            action=action,
            subjects=(),
            result="",
            reason=reason,
        )
