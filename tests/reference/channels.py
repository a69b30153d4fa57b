"""Channels with their endpoints: both are there, or neither."""

from __future__ import annotations

from doorstep.model.action import AuditEntry
from doorstep.model.alert import Channel
from doorstep.model.endpoint import Endpoint
from tests.reference.alerts import AlertVerbs
from tests.reference.registry import RegistryVerbs


class ChannelVerbs(AlertVerbs, RegistryVerbs):
    async def put_channel(self, channel: Channel, endpoint: Endpoint, line: AuditEntry, most: int) -> bool:
        self._tables.check_org(endpoint.org_id)
        if endpoint.endpoint_id in self._tables.endpoints or not await self.put_arrangement(channel, 0, line, most):
            return False
        return await self.put_endpoint(endpoint, 0)

    async def remove_channel(self, channel: Channel, endpoint: Endpoint, line: AuditEntry) -> bool:
        kept = self._tables.arrangements.get(channel.channel_id)
        if kept is None or kept.org_id != channel.org_id or not await self.put_endpoint(endpoint, endpoint.version):
            return False
        return await self.remove_arrangement(channel.org_id, channel.channel_id, line)
