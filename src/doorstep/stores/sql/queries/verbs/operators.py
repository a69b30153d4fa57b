"""What operators and consumers do."""

from __future__ import annotations

from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import Action, ActionResult, AuditEntry
from doorstep.model.claim import Moved, StatusChange
from doorstep.stores.sql.queries import actions, event_deletion, orgs
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class OperatorVerbs(Scripted):
    async def act(self, act: Action) -> tuple[ActionResult, Moved]:
        return await self._write(act.org_id, actions.act, act)

    async def acknowledge(self, org_id: UUID, event_id: UUID, now: Instant) -> StatusChange:
        return await self._write(org_id, actions.acknowledge, org_id, event_id, now)

    async def add_audit(self, line: AuditEntry) -> None:
        await self._write(line.org_id, orgs.add_audit, line)

    async def delete_event(self, org_id: UUID, event_id: UUID, actor: str, now: Instant, reason: str = "") -> Moved:
        return await self._write(org_id, event_deletion.delete_event, org_id, event_id, actor, now, reason)
