"""Alerts, and the incidents that they are made of."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.alert import Alert, AlertFilter, AlertWrite, Incident
from doorstep.model.listing import Page


class AlertStore(Protocol):
    """Whoever makes a dead letter, opens or closes a circuit, disables, enables or deletes an endpoint, or changes a
    rule or a silence leaves an incident, in the same transaction (model/alert.py). `tell` removes it with what
    became of it.
    """

    async def any_incident(self) -> bool:
        """Whether there is one of any organization; asked all the time, so it costs next to nothing."""

    async def incident_orgs(self) -> list[UUID]:
        """The organizations that have some. It costs by their number, not by that of the incidents."""

    async def incidents(self, org_id: UUID, limit: int) -> list[Incident]:
        """What has not been told yet of an organization, in its order."""

    async def tell(self, telling: AlertWrite) -> bool:
        """Write alerts, remove incidents and post messages, all of it, or nothing: False where one of the incidents is
        gone, an alert is no longer as it was, or another one of the same subject is open. An alert that ends comes before
        its successor among the changes."""

    async def alert(self, org_id: UUID, alert_id: UUID) -> Alert: ...

    async def list_alerts(
        self, org_id: UUID, wanted: AlertFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Alert]:
        """In the order of their creation, the newest first; bounded as every list is."""

    async def live_alerts(self, org_id: UUID, ended_after: Instant) -> list[Alert]:
        """What an organization may still hear of: alerts that are open or to be reviewed, then those that ended after an
        instant and may come back, which occurrences do not; each oldest first."""

    async def orgs_to_review(self, now: Instant) -> list[UUID]:
        """The organizations that have an alert whose `review_at` has come."""

    async def clean_alerts(self, ended_before: Instant, silences_before: Instant, limit: int) -> int:
        """Remove up to `limit` alerts that ended before the first instant and are not to be reviewed, and as many silences
        that ended before the second; returns how many in all."""
