"""What people do to deliveries and events, and the audit of it."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import Action, ActionResult, AuditEntry
from doorstep.model.claim import Moved, StatusChange


class OperatorStore(Protocol):
    """An act and its line of audit are one transaction."""

    async def act(self, act: Action) -> tuple[ActionResult, Moved]:
        """Do what an operator said to each delivery that allows it, and audit it, in one transaction.

        An id named twice counts once; a deleted dead letter counts as unknown. RETRY makes a waiting delivery due at
        `act.at` and a dead one at `act.revive_at` in a new round (no retries used, no `settled_at`); both are forced
        and keep the last error until they are tried. One that is overdue or blocked keeps its place, and is only
        forced. SKIP is
        a permanent failure with the code SKIPPED. SKIP, CANCEL, RESOLVE and DELETE set `settled_at`; DELETE leaves the
        state, and so the event's status, as it was. A payload given with RETRY is the delivery's own from then on, for
        every later attempt. History has one line per change of state; the audit has one line per act.
        """

    async def acknowledge(self, org_id: UUID, event_id: UUID, now: Instant) -> StatusChange:
        """An inbox consumer has the event: received becomes delivered. Conflict if push endpoints take it.

        Acknowledging again changes nothing: the answer names delivered as the old status too.
        """

    async def add_audit(self, line: AuditEntry) -> None: ...

    async def delete_event(self, org_id: UUID, event_id: UUID, actor: str, now: Instant, reason: str = "") -> Moved:
        """Take an event out of every list and erase what its sender gave; audited with the reason. Conflict while one of its
        deliveries is in progress, because its worker has the payload in its hands.

        What waits is cancelled, dead letters are deleted as DELETE does it, the rest stays as it is. To `event`,
        `acknowledge` and `payload` it is unknown from then on; deliveries, attempts and history can still be read by
        their ids, until they are cleaned away.
        """
