"""Incidents, alerts and what people arranged about them."""

from __future__ import annotations

from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.alert import Alert, AlertConfig, AlertFilter, AlertWrite, Channel, Incident
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import Page
from doorstep.stores.sql.queries import alerts
from doorstep.stores.sql.queries import alerts as arrangement_scripts
from doorstep.stores.sql.queries import alerts as channel_scripts
from doorstep.stores.sql.queries import incidents as incident_scripts
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class AlertVerbs(Scripted):
    async def any_incident(self) -> bool:
        return await self._read(None, incident_scripts.any_incident)

    async def incident_orgs(self) -> list[UUID]:
        return await self._read(None, incident_scripts.incident_orgs)

    async def incidents(self, org_id: UUID, limit: int) -> list[Incident]:
        return await self._read(org_id, incident_scripts.first_incidents, org_id, limit)

    async def tell(self, telling: AlertWrite) -> bool:
        told = await self._write(None, alerts.tell, telling)  # its messages are of the reserved organization
        if told and telling.postings:
            self.tell_posted()
        return told

    async def alert(self, org_id: UUID, alert_id: UUID) -> Alert:
        return await self._read(org_id, alerts.alert, org_id, alert_id)

    async def list_alerts(
        self, org_id: UUID, wanted: AlertFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Alert]:
        return await self._read(org_id, alerts.list_alerts, org_id, wanted, cursor, limit)

    async def live_alerts(self, org_id: UUID, ended_after: Instant) -> list[Alert]:
        return await self._read(org_id, alerts.live_alerts, org_id, ended_after)

    async def orgs_to_review(self, now: Instant) -> list[UUID]:
        return await self._read(None, alerts.orgs_to_review, now)

    async def clean_alerts(self, ended_before: Instant, silences_before: Instant, limit: int) -> int:
        return await self._write(None, alerts.clean_alerts, ended_before, silences_before, limit)

    async def put_arrangement(
        self, arrangement: AlertConfig, expected_version: int, line: AuditEntry, most: int
    ) -> bool:
        return await self._write(
            arrangement.org_id, arrangement_scripts.put_arrangement, arrangement, expected_version, line, most
        )

    async def remove_arrangement(self, org_id: UUID, arrangement_id: UUID, line: AuditEntry) -> bool:
        return await self._write(org_id, arrangement_scripts.remove_arrangement, org_id, arrangement_id, line)

    async def put_channel(self, channel: Channel, endpoint: Endpoint, line: AuditEntry, most: int) -> bool:
        return await self._write(None, channel_scripts.put_channel, channel, endpoint, line, most)

    async def remove_channel(self, channel: Channel, endpoint: Endpoint, line: AuditEntry) -> bool:
        return await self._write(None, channel_scripts.remove_channel, channel, endpoint, line)

    async def arrangements(self, org_id: UUID) -> list[AlertConfig]:
        return await self._read(org_id, arrangement_scripts.all_arrangements, org_id)
