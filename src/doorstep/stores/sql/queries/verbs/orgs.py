"""Organizations and their keys."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.org import ApiKey, Org
from doorstep.stores.sql.queries import keys, orgs
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class OrgVerbs(Scripted):
    async def put_org(self, org: Org, line: AuditEntry | None = None) -> None:
        await self._write(None, orgs.put_org, org, line)

    async def orgs(self) -> list[Org]:
        return await self._read(None, orgs.all_orgs)

    async def put_key(self, key: ApiKey, line: AuditEntry | None = None) -> None:
        await self._write(None, keys.put_key, key, line)

    async def revoke_key(self, org_id: UUID, key_id: UUID, now: Instant, line: AuditEntry) -> ApiKey:
        return await self._write(org_id, keys.revoke_key, org_id, key_id, now, line)

    async def keys(self, org_id: UUID) -> list[ApiKey]:
        return await self._read(org_id, keys.keys_of, org_id)

    async def key_names(self, org_id: UUID, prefixes: Sequence[str]) -> dict[str, str]:
        return await self._read(org_id, keys.key_names, org_id, prefixes)

    async def keys_called(self, org_id: UUID, name: str, limit: int) -> list[str]:
        return await self._read(org_id, keys.keys_called, org_id, name, limit)

    async def find_key(self, digest: bytes) -> ApiKey | None:
        return await self._read(None, keys.find_key, digest)
