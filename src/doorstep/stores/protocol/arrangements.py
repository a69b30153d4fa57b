"""Arrangements: what an organization said about its alerts."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from doorstep.model.action import AuditEntry
from doorstep.model.alert import AlertConfig, Channel
from doorstep.model.endpoint import Endpoint


class ArrangementStore(Protocol):
    """Rules, silences and channels, each with a version. Every change of a rule or a silence leaves an incident: what is
    the case may mean something else now."""

    async def put_arrangement(
        self, arrangement: AlertConfig, expected_version: int, line: AuditEntry, most: int
    ) -> bool:
        """Write a rule, silence or channel computed from `expected_version` (stored as version + 1), and `line`; False
        if another was faster. Version 0 is that of one that does not exist yet; Conflict for a new one of an
        organization that has `most`, not counting what is over, which makes room. NotFound for an unknown
        organization."""

    async def remove_arrangement(self, org_id: UUID, arrangement_id: UUID, line: AuditEntry) -> bool:
        """Remove it, with `line`; False if there is none."""

    async def put_channel(self, channel: Channel, endpoint: Endpoint, line: AuditEntry, most: int) -> bool:
        """Create a channel, as `put_arrangement` does, together with its endpoint: both or neither; False if there is one
        of them already."""

    async def remove_channel(self, channel: Channel, endpoint: Endpoint, line: AuditEntry) -> bool:
        """Remove a channel, and write its endpoint as it is given (deleted), both or neither; False if that is no longer
        of the version that it was computed from, or the channel is gone."""

    async def arrangements(self, org_id: UUID) -> list[AlertConfig]:
        """All of an organization, in the order of their creation."""
