"""Alerts, and the incidents that they are made of."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.alert import Alert, AlertFilter, Telling
from doorstep.model.incident import Incident
from doorstep.model.listing import Page


class AlertStore(Protocol):
    """Whoever makes a dead letter, opens or closes a circuit, or disables, enables or deletes an endpoint leaves an
    incident, in the same transaction (model/incident.py). `tell` removes it with what became of it.
    """

    async def any_incident(self) -> bool:
        """Whether `incidents` would give anything; asked all the time, so it costs next to nothing."""

    async def incidents(self, limit: int) -> list[Incident]:
        """What has not been told yet, of every organization, in its order."""

    async def tell(self, telling: Telling) -> bool:
        """Write alerts, remove incidents and post messages, all of it, or nothing: False where one of the incidents is
        gone, an alert is no longer as it was, or another one of the same subject is open. An alert that ends comes before
        its successor among the changes."""

    async def alert(self, org_id: UUID, alert_id: UUID) -> Alert: ...

    async def list_alerts(
        self, org_id: UUID, wanted: AlertFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Alert]:
        """In the order of their creation, the newest first; bounded as every list is."""

    async def live_alerts(self, org_id: UUID | None, ended_after: Instant) -> list[Alert]:
        """Those that are open, and those that ended after an instant: of one organization, or of all; each oldest first."""

    async def clean_alerts(self, ended_before: Instant, limit: int) -> int:
        """Remove up to `limit` alerts that ended before, and as many silences; returns how many in all."""
