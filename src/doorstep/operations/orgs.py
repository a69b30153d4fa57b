"""Renames and deletes organizations. Only keys of the default organization may do that.

A deleted organization is unreachable at once: its keys are revoked, it receives no events, and nothing is sent to its
endpoints. Its row is kept, marked as deleted. Its data is removed in steps: waiting deliveries become dead letters when
a worker finds them, the MessageCleaner deletes dead letters, and the Cleaner removes the rows after their retention.
"""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Clock
from doorstep.engine.directory import Directory
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry, audit_entry
from doorstep.model.org import ApiKey, Org
from doorstep.operations.channels import ChannelService
from doorstep.operations.keys import NAME_CHARACTERS_MAX, ApiKeys
from doorstep.stores.limits import check_name, check_storable
from doorstep.stores.store import Put, Store


class OrgService:
    def __init__(
        self, store: Store, directory: Directory, clock: Clock, keys: ApiKeys, channels: ChannelService
    ) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._keys = keys
        self._channels = channels

    async def org(self, org_id: UUID) -> Org:
        """One organization. Raises NotFound if it does not exist, was deleted, or is the reserved one."""
        for org in await self._keys.orgs():
            if org.org_id == org_id:
                return org
        raise NotFound(f"no organization {org_id}")

    async def rename(self, org_id: UUID, name: str, caller: ApiKey) -> Org:
        check_name("name", name, NAME_CHARACTERS_MAX)
        org = await self.org(org_id)
        renamed = replace(org, name=name)
        await self._store.write([Put(document=renamed)], self._entry(renamed, caller, "org.rename", f"was {org.name}"))
        await self._directory.reload((org_id,))
        return renamed

    async def open_deliveries(self, org_id: UUID) -> int:
        """How many deliveries of an organization have not ended."""
        return (await self._store.figures(org_id, [None], names=("now_open",)))[None].now_open

    async def delete(self, org_id: UUID, caller: ApiKey, *, force: bool = False, reason: str = "") -> None:
        """Delete an organization. Raises Conflict for the default organization and, without `force`, for an
        organization with open deliveries."""
        check_storable("reason", reason)
        org = await self.org(org_id)
        if org_id == caller.org_id:
            raise Conflict("the default organization cannot be deleted, because its admins manage all others")
        if not force and (count := await self.open_deliveries(org_id)):
            raise Conflict(
                f"organization {org.name!r} has {count} open deliveries; wait until they have ended, or delete it with "
                "force, which turns them into dead letters"
            )
        for channel in await self._channels.reader.channels(org_id):  # or they would report the end of its deliveries
            await self._channels.delete(org_id, channel.channel_id, caller.prefix, "its organization was deleted")
        now = self._clock.now()
        keys = [replace(key, revoked_at=now) for key in await self._keys.keys(org_id) if key.is_valid(now)]
        changes = [Put(document=replace(org, deleted_at=now)), *(Put(document=key) for key in keys)]
        await self._store.write(changes, self._entry(org, caller, "org.delete", reason))
        self._keys.forget(keys)
        await self._directory.reload((org_id,))

    def _entry(self, org: Org, caller: ApiKey, action: str, reason: str) -> AuditEntry:
        now = self._clock.now()
        return audit_entry(now, caller.org_id, caller.prefix, action, org.org_id, result=org.name, reason=reason)
