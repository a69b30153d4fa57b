"""Incidents, alerts, and what organizations arranged about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import TypeVar
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OCCURRENCES, Alert, AlertChange, AlertConfig, AlertFilter, AlertWrite, Incident
from doorstep.model.listing import Page
from doorstep.stores import cursor as cursors
from doorstep.stores import notes
from doorstep.stores.incidents import arranged
from tests.reference.outbox import OutboxVerbs

T = TypeVar("T")


class AlertVerbs(OutboxVerbs):
    """Rows are kept in the order of their creation."""

    async def any_incident(self) -> bool:
        return bool(self._tables.incidents)

    async def incident_orgs(self) -> list[UUID]:
        return list({one.org_id: None for one in self._tables.incidents.values()})

    async def incidents(self, org_id: UUID, limit: int) -> list[Incident]:
        return list(islice((one for one in self._tables.incidents.values() if one.org_id == org_id), limit))

    async def tell(self, telling: AlertWrite) -> bool:
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

    async def live_alerts(self, org_id: UUID, ended_after: Instant) -> list[Alert]:
        found = self._alerts_of(org_id)
        pending = [one for one in found if not one.is_open and one.review_at is not None]
        over = (one for one in found if not one.is_open and one.review_at is None and one.rule not in OCCURRENCES)
        lately = (one for one in over if one.ended_at is not None and one.ended_at > ended_after)
        return [*(one for one in found if one.is_open), *pending, *lately]

    async def orgs_to_review(self, now: Instant) -> list[UUID]:
        found = (one for one in self._alerts_of(None) if one.review_at is not None and one.review_at <= now)
        return list({one.org_id: None for one in found})

    def _alerts_of(self, org_id: UUID | None) -> list[Alert]:
        return [row.alert for row in self._tables.alerts.values() if org_id in (None, row.alert.org_id)]

    async def clean_alerts(self, ended_before: Instant, silences_before: Instant, limit: int) -> int:
        told = (one for one in self._alerts_of(None) if one.review_at is None)
        ended = (one for one in told if _is_before(one.ended_at, ended_before))
        over = (one for one in self._tables.arrangements.values() if _is_before(one.ends_at, silences_before))
        alerts = _oldest(ended, limit, lambda one: one.ended_at)
        arrangements = _oldest(over, limit, lambda one: one.ends_at)
        for alert in alerts:
            del self._tables.alerts[alert.alert_id]
        for arrangement in arrangements:
            del self._tables.arrangements[arrangement.arrangement_id]
        return len(alerts) + len(arrangements)

    async def put_arrangement(
        self, arrangement: AlertConfig, expected_version: int, line: AuditEntry, most: int
    ) -> bool:
        self._tables.check_org(arrangement.org_id)
        kept = self._tables.arrangements.get(arrangement.arrangement_id)
        if (kept.version if kept else 0) != expected_version:
            return False
        if kept is None:
            await self._make_room(arrangement.org_id, most, line.at)
        new = replace(arrangement, version=expected_version + 1)
        self._tables.arrangements[arrangement.arrangement_id] = new
        self._arranged(arrangement, line)
        return True

    async def _make_room(self, org_id: UUID, most: int, now: Instant) -> None:
        """What is over makes room."""
        present = await self.arrangements(org_id)
        over = [one for one in present if one.ends_at is not None and one.ends_at <= now]
        if len(present) < most:
            return
        if not over:
            raise Conflict(notes.too_many_arrangements(most))
        for one in over:
            del self._tables.arrangements[one.arrangement_id]

    async def remove_arrangement(self, org_id: UUID, arrangement_id: UUID, line: AuditEntry) -> bool:
        kept = self._tables.arrangements.get(arrangement_id)
        if kept is None or kept.org_id != org_id:
            return False
        del self._tables.arrangements[arrangement_id]
        self._arranged(kept, line)
        return True

    def _arranged(self, arrangement: AlertConfig, line: AuditEntry) -> None:
        if (incident := arranged(arrangement, line.at)) is not None:
            self._tables.add_incident(incident)
        self._tables.audit.append(line)

    async def arrangements(self, org_id: UUID) -> list[AlertConfig]:
        return [one for one in self._tables.arrangements.values() if one.org_id == org_id]


def _is_wanted(alert: Alert, wanted: AlertFilter) -> bool:
    return (
        wanted.is_open in (None, alert.is_open)
        and wanted.rule in (None, alert.rule)
        and wanted.endpoint_id in (None, alert.endpoint_id)
    )


def _is_before(at: Instant | None, instant: Instant) -> bool:
    return at is not None and at < instant


def _oldest(found: Iterable[T], limit: int, ended_at: Callable[[T], Instant | None]) -> list[T]:
    return sorted(found, key=lambda one: ended_at(one) or 0)[:limit]
