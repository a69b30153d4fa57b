"""Organizations and their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.org import ApiKey, Org


class OrgStore(Protocol):
    """Who there is, and by which keys they are known."""

    async def put_org(self, org: Org, line: AuditEntry | None = None) -> None:
        """Create an organization, or replace it and bump the routing version: its policies may have changed. `line` is
        kept in the same transaction."""

    async def orgs(self) -> list[Org]: ...

    async def put_key(self, key: ApiKey, line: AuditEntry | None = None) -> None:
        """Create or replace a key, and keep `line` in the same transaction; Conflict if another one has its digest."""

    async def revoke_key(self, org_id: UUID, key_id: UUID, now: Instant, line: AuditEntry) -> ApiKey:
        """The key with its end, `now`, kept together with `line`; one that was revoked before is left as it is.

        Conflict if the organization would be without an admin key earlier than with it (stores/revoking.py), which is
        looked at in the same transaction: two admins who revoke each other's keys do not both succeed.
        """

    async def keys(self, org_id: UUID) -> list[ApiKey]:
        """The keys of an organization in the order of their creation."""

    async def key_names(self, org_id: UUID, prefixes: Sequence[str]) -> dict[str, str]:
        """What the organization's keys that begin like this are called, revoked and expired ones too. A beginning that
        keys of different names have is left out: it does not tell which of them it was."""

    async def keys_called(self, org_id: UUID, name: str, limit: int) -> list[str]:
        """The other way: the visible beginnings of the newest so many keys of this name, the newest first."""

    async def find_key(self, digest: bytes) -> ApiKey | None:
        """The key with this digest, revoked and expired ones too."""
