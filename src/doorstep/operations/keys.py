"""API keys and organizations: create, authenticate and revoke. Every change is audited."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from doorstep.clock import Clock, Instant, seconds
from doorstep.engine.accept import check_user
from doorstep.engine.directory import Directory
from doorstep.errors import Conflict, InvalidInput, Overloaded
from doorstep.model.action import AuditEntry, audit_entry
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.listing import KeyNames, KeysByDigest, OrgKeys, Orgs
from doorstep.model.org import USER_ROLES, ApiKey, Org, Role
from doorstep.model.record import uuid7
from doorstep.stores.limits import check_name, check_storable, key_by_id
from doorstep.stores.store import Put, Store

T = TypeVar("T")

CACHE_SECONDS = 5
"""How long a process caches the result of a look-up. During this time, it may still accept a key that another process
revoked, or reject a key that another process created."""
_CACHE_MAX = 10_000
_LOOKUPS_MAX = 4
"""How many look-ups may run concurrently for keys that this process has not found before. A flood of made-up keys
therefore leaves most store connections free. Further look-ups wait for their turn, so valid keys among them are still
accepted."""
_QUEUE_MAX = 2_000
"""How many look-ups may wait. If each look-up takes a millisecond and four run at a time, the last one waits half a
second. Further requests are rejected immediately and may be repeated."""
TOO_MANY_UNKNOWN = "too many unknown keys are being looked up; send the request again in a moment"
_VALID_MAX = 1_000
NAME_CHARACTERS_MAX = 200


async def name_of(store: Store, org_id: UUID, actor: str) -> str:
    """The name of the key with this visible prefix, for texts. Actors that are not keys are names already."""
    return dict(await store.find(org_id, KeyNames(prefixes=(actor,)))).get(actor, actor)


class ApiKeys:
    """Caches known and unknown keys for a few seconds, so that a busy sender does not cause a look-up with every
    request."""

    def __init__(self, store: Store, clock: Clock, directory: Directory) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._known: dict[bytes, tuple[ApiKey, Instant]] = {}
        """Records by digest, each with the time until which the cached record is valid. After that time, the record
        only shows that the key existed."""
        self._unknown: dict[bytes, Instant] = {}
        self._lookups = asyncio.Semaphore(_LOOKUPS_MAX)
        self._waiting = 0

    # -- finding -------------------------------------------------------------------------------------------

    async def authenticate(self, key: str) -> ApiKey | None:
        """The record of a valid key; None for a key that is unknown, revoked or expired."""
        return await self.holder(digest(key))

    async def holder(self, digest: bytes) -> ApiKey | None:
        """The record of a valid key, found by its digest. This is for sessions that were opened with the key."""
        record, until = self._known.get(digest, (None, 0))
        if until <= self._clock.now():
            found = await (self._find_unknown(digest) if record is None else self._find(digest))
            record = None if found is None else self._remember(found)
        if record is None or not record.is_valid(self._clock.now()):
            return None
        return record if await self._directory.has_org(record.org_id) else None

    async def _find_unknown(self, digest: bytes) -> ApiKey | None:
        """Wait for a free slot, then look up a key that this process has never found. Raises Overloaded immediately if
        too many look-ups are waiting."""
        if self._is_unknown(digest):
            return None
        if self._waiting >= _QUEUE_MAX:
            raise Overloaded(TOO_MANY_UNKNOWN)
        self._waiting += 1
        try:
            async with self._lookups:
                return await self._look_up(digest)
        finally:
            self._waiting -= 1

    async def _look_up(self, digest: bytes) -> ApiKey | None:
        if self._is_unknown(digest):  # an earlier look-up was for the same key
            return None
        record = await self._find(digest)
        if record is None:
            _put(self._unknown, digest, self._clock.now() + seconds(CACHE_SECONDS))
        return record

    async def _find(self, digest: bytes) -> ApiKey | None:
        found = await self._store.find(None, KeysByDigest(digest=digest))
        return found[0] if found else None

    def _is_unknown(self, digest: bytes) -> bool:
        return self._unknown.get(digest, 0) > self._clock.now()

    def _remember(self, record: ApiKey) -> ApiKey:
        """Cache a record and return it. If the cached record is already revoked, it is kept: revocation is permanent,
        so a record that is not revoked must be older."""
        known, _ = self._known.get(record.digest, (record, 0))
        newest = known if known.revoked_at is not None else record
        _put(self._known, record.digest, (newest, self._clock.now() + seconds(CACHE_SECONDS)))
        return newest

    def forget(self, revoked: Iterable[ApiKey]) -> None:
        """Reject keys that were revoked together, without waiting until their cached records expire."""
        for key in revoked:
            self._remember(key)

    async def keys(self, org_id: UUID) -> list[ApiKey]:
        """The keys of an organization in the order of creation, including revoked and expired keys."""
        return await self._store.find(org_id, OrgKeys())

    async def key(self, org_id: UUID, key_id: UUID) -> ApiKey:
        """One key. Raises NotFound if the organization has no such key."""
        return key_by_id(key_id, await self._store.find(org_id, OrgKeys()))

    async def orgs(self) -> list[Org]:
        """All organizations except the reserved one and deleted ones."""
        found = await self._store.find(None, Orgs())
        return [org for org in found if org.org_id != OPERATIONS_ORG and org.deleted_at is None]

    # -- changing ------------------------------------------------------------------------------------------

    async def create(
        self,
        org_id: UUID,
        name: str,
        role: Role,
        actor: str,
        expires_at: Instant | None = None,
        user_id: str | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key. Returns its record and the key itself, which is not stored."""
        now = self._clock.now()
        check_name("name", name, NAME_CHARACTERS_MAX)
        _check_user(user_id, role)
        if expires_at is not None and expires_at <= now:
            raise InvalidInput("expires_at", "must be in the future")
        if sum(key.is_valid(now) for key in await self._store.find(org_id, OrgKeys())) >= _VALID_MAX:
            raise Conflict(f"an organization has at most {_VALID_MAX} keys; revoke some first")
        key = new_key()
        record = ApiKey(
            key_id=uuid7(now),
            org_id=org_id,
            name=name,
            role=role,
            prefix=prefix(key),
            digest=digest(key),
            created_at=now,
            expires_at=expires_at,
            user_id=user_id,
        )
        whose = "" if user_id is None else f" for the user {user_id}"
        entry = _entry(record, now, actor, "key.create", f"{role} {record.prefix}{whose}")
        await self._store.write([Put(document=record)], entry)
        self._remember(record)
        return record, key

    async def revoke(self, org_id: UUID, key_id: UUID, actor: str, reason: str = "") -> ApiKey:
        """Revoke a key. It becomes invalid immediately in this process and within seconds in others. Revoking it again
        changes nothing.

        Raises Conflict for the last admin key (see stores/limits.py).
        """
        check_storable("reason", reason)
        now = self._clock.now()
        key = await self.key(org_id, key_id)
        entry = _entry(key, now, actor, "key.revoke", key.prefix, reason)
        revoked = await self._store.revoke_key(org_id, key_id, now, entry)
        self._remember(revoked)
        return revoked

    async def create_org(self, name: str, caller: ApiKey) -> tuple[Org, ApiKey, str]:
        """Create an organization with its first admin key. This is audited in the caller's organization and in the new
        one."""
        check_name("name", name, NAME_CHARACTERS_MAX)
        now = self._clock.now()
        org = Org(org_id=uuid7(now), name=name, created_at=now)
        entry = audit_entry(now, caller.org_id, caller.prefix, "org.create", org.org_id, result=org.name)
        await self._store.write([Put(document=org)], entry)
        record, key = await self.create(org.org_id, "admin", Role.ADMIN, caller.prefix)
        return org, record, key


def _check_user(user_id: str | None, role: Role) -> None:
    check_user("user_id", user_id)
    if user_id is not None and role not in USER_ROLES:
        roles = ", ".join(USER_ROLES)
        raise InvalidInput("role", f"must be one of {roles} for a key with a user, which cannot act for others")


def _put(cache: dict[bytes, T], digest: bytes, value: T) -> None:
    """Add an entry to a cache. A full cache is cleared first; it fills again with the keys in use."""
    if len(cache) >= _CACHE_MAX:
        cache.clear()
    cache[digest] = value


def _entry(key: ApiKey, at: Instant, actor: str, action: str, result: str, reason: str = "") -> AuditEntry:
    return audit_entry(at, key.org_id, actor, action, key.key_id, result=result, reason=reason)


_PREFIX_CHARACTERS = 12


def new_key() -> str:
    """A key of 256 random bits. The prefix `dsk_` lets scanners recognise a leaked key."""
    return "dsk_" + secrets.token_urlsafe(32)


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def prefix(key: str) -> str:
    """The first characters of a key. They are stored and shown, so that people can tell their keys apart."""
    return key[:_PREFIX_CHARACTERS] if len(key) >= 2 * _PREFIX_CHARACTERS else key[:4]
