"""Incidents, alerts, and what organizations arranged about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.act import AuditLine
from doorstep.model.alert import Alert, AlertChange, AlertFilter, Telling
from doorstep.model.channel import Arrangement
from doorstep.model.incident import Incident
from doorstep.model.listing import Page
from doorstep.stores import cursor as cursors
from doorstep.stores import notes
from doorstep.stores.memory.outbox import OutboxVerbs


class AlertVerbs(OutboxVerbs):
    """Rows are kept in the order of their creation."""

    async def any_incident(self) -> bool:
        return bool(self._tables.incidents)

    async def incidents(self, limit: int) -> list[Incident]:
        return list(islice(self._tables.incidents.values(), limit))

    async def tell(self, telling: Telling) -> bool:
        tables = self._tables
        tables.check_org(telling.org_id)
        if not all(key in tables.incidents for key in telling.incident_keys):
            return False
        ending = {change.alert.alert_id for change in telling.changes if not change.alert.is_open}
        if not all(self._may_be_written(change, ending) for change in telling.changes):
            return False
        for change in telling.changes:
            tables.put_alert(replace(change.alert, version=change.expected_version + 1))
        for key in telling.incident_keys:
            del tables.incidents[key]
        if telling.postings:
            await self.post(telling.postings)
        if telling.line is not None:
            tables.audit.append(telling.line)
        return True

    def _may_be_written(self, change: AlertChange, ending: Collection[UUID]) -> bool:
        alert = change.alert
        others = (one for one in self._alerts_of(alert.org_id) if one.is_open and one.alert_id != alert.alert_id)
        rivals = (one for one in others if one.subject == alert.subject and one.alert_id not in ending)
        kept = self._tables.alerts.get(alert.alert_id)
        version = kept.alert.version if kept else 0
        return version == change.expected_version and not (alert.is_open and any(rivals))

    async def alert(self, org_id: UUID, alert_id: UUID) -> Alert:
        row = self._tables.alerts.get(alert_id)
        if row is None or row.alert.org_id != org_id:
            raise NotFound(notes.no_alert(alert_id))
        return row.alert

    async def list_alerts(
        self, org_id: UUID, wanted: AlertFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Alert]:
        (before,) = cursors.read(cursor, cursors.KEY_MAX) or (cursors.KEY_MAX,)
        newest_first = (row for row in reversed(self._tables.alerts.values()) if row.key < before)
        found = [row for row in newest_first if row.alert.org_id == org_id and _is_wanted(row.alert, wanted)]
        more = cursors.write(found[limit - 1].key) if len(found) > limit else None
        return Page(tuple(row.alert for row in found[:limit]), more)

    async def live_alerts(self, org_id: UUID | None, ended_after: Instant) -> list[Alert]:
        found = self._alerts_of(org_id)
        ended = [one for one in found if one.ended_at is not None and one.ended_at > ended_after]
        return [*(one for one in found if one.is_open), *ended]

    def _alerts_of(self, org_id: UUID | None) -> list[Alert]:
        return [row.alert for row in self._tables.alerts.values() if org_id in (None, row.alert.org_id)]

    async def clean_alerts(self, ended_before: Instant, limit: int) -> int:
        ended = (one for one in self._alerts_of(None) if _is_before(one.ended_at, ended_before))
        over = (one for one in self._tables.arrangements.values() if _is_before(one.ends_at, ended_before))
        alerts, arrangements = _oldest(ended, limit), _oldest_arrangements(over, limit)
        for alert in alerts:
            del self._tables.alerts[alert.alert_id]
        for arrangement in arrangements:
            del self._tables.arrangements[arrangement.arrangement_id]
        return len(alerts) + len(arrangements)

    async def put_arrangement(
        self, arrangement: Arrangement, expected_version: int, line: AuditLine, most: int
    ) -> bool:
        self._tables.check_org(arrangement.org_id)
        kept = self._tables.arrangements.get(arrangement.arrangement_id)
        if (kept.version if kept else 0) != expected_version:
            return False
        if kept is None and len(await self.arrangements(arrangement.org_id)) >= most:
            raise Conflict(notes.too_many_arrangements(most))
        new = replace(arrangement, version=expected_version + 1)
        self._tables.arrangements[arrangement.arrangement_id] = new
        self._tables.audit.append(line)
        return True

    async def remove_arrangement(self, org_id: UUID, arrangement_id: UUID, line: AuditLine) -> bool:
        kept = self._tables.arrangements.get(arrangement_id)
        if kept is None or kept.org_id != org_id:
            return False
        del self._tables.arrangements[arrangement_id]
        self._tables.audit.append(line)
        return True

    async def arrangements(self, org_id: UUID) -> list[Arrangement]:
        return [one for one in self._tables.arrangements.values() if one.org_id == org_id]


def _is_wanted(alert: Alert, wanted: AlertFilter) -> bool:
    return (
        wanted.is_open in (None, alert.is_open)
        and wanted.rule in (None, alert.rule)
        and wanted.endpoint_id in (None, alert.endpoint_id)
    )


def _is_before(at: Instant | None, instant: Instant) -> bool:
    return at is not None and at < instant


def _oldest(alerts: Iterable[Alert], limit: int) -> list[Alert]:
    return sorted(alerts, key=lambda one: one.ended_at or 0)[:limit]


def _oldest_arrangements(arrangements: Iterable[Arrangement], limit: int) -> list[Arrangement]:
    return sorted(arrangements, key=lambda one: one.ends_at or 0)[:limit]
