"""What operators and consumers do."""

from __future__ import annotations

from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.act import Act, ActResult, AuditLine
from doorstep.model.move import Moved
from doorstep.model.settlement import StatusChange
from doorstep.stores.sql.cold import deleting, operators, orgs
from doorstep.stores.sql.cold.verbs.scripted import Scripted


class OperatorVerbs(Scripted):
    async def act(self, act: Act) -> tuple[ActResult, Moved]:
        return await self._write(act.org_id, operators.act, act)

    async def acknowledge(self, org_id: UUID, event_id: UUID, now: Instant) -> StatusChange:
        return await self._write(org_id, operators.acknowledge, org_id, event_id, now)

    async def add_audit(self, line: AuditLine) -> None:
        await self._write(line.org_id, orgs.add_audit, line)

    async def delete_event(self, org_id: UUID, event_id: UUID, actor: str, now: Instant, reason: str = "") -> Moved:
        return await self._write(org_id, deleting.delete_event, org_id, event_id, actor, now, reason)
