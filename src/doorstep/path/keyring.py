"""Beside the path: API keys and organizations are made, found and revoked. Every change is audited."""

from __future__ import annotations

from uuid import UUID

import msgspec

from doorstep import keys
from doorstep.clock import Clock, Instant, seconds
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.act import AuditLine
from doorstep.model.ids import uuid7
from doorstep.model.org import ApiKey, Org, Role
from doorstep.stores.store import Store
from doorstep.stores.text import check_storable

REMEMBERED_SECONDS = 5
"""A revoked key may work for this long on another process that has just seen it."""
_REMEMBERED_MAX = 10_000
_LIVING_MAX = 1_000
_NAME_CHARACTERS_MAX = 200


class Keyring:
    """Remembers keys for a few seconds, so that a busy sender does not cost a look-up per request."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[bytes, tuple[ApiKey, Instant]] = {}

    # -- finding -------------------------------------------------------------------------------------------

    async def authenticate(self, key: str) -> ApiKey | None:
        """The key's record if it is good; None for one that is unknown, revoked or expired."""
        now = self._clock.now()
        digest = keys.digest(key)
        known = self._known.get(digest)
        if known is None or known[1] <= now:
            record = await self._store.find_key(digest)
            if record is None:
                return None
            known = self._remember(record, now)
        return known[0] if living(known[0], now) else None

    def _remember(self, record: ApiKey, now: Instant) -> tuple[ApiKey, Instant]:
        if len(self._known) >= _REMEMBERED_MAX:
            self._known.clear()
        known = self._known[record.digest] = (record, now + seconds(REMEMBERED_SECONDS))
        return known

    async def keys(self, org_id: UUID) -> list[ApiKey]:
        """In the order of their creation, revoked and expired ones too."""
        return await self._store.keys(org_id)

    async def orgs(self) -> list[Org]:
        return await self._store.orgs()

    # -- changing ------------------------------------------------------------------------------------------

    async def create(
        self, org_id: UUID, name: str, role: Role, actor: str, expires_at: Instant | None = None
    ) -> tuple[ApiKey, str]:
        """A new key, and the only sight of it in the clear."""
        now = self._clock.now()
        _check_name(name)
        if expires_at is not None and expires_at <= now:
            raise InvalidInput("expires_at", "must be in the future")
        if sum(living(key, now) for key in await self._store.keys(org_id)) >= _LIVING_MAX:
            raise Conflict(f"an organization has at most {_LIVING_MAX} keys; revoke some first")
        key = keys.new_key()
        record = ApiKey(
            key_id=uuid7(now),
            org_id=org_id,
            name=name,
            role=role,
            prefix=keys.prefix(key),
            digest=keys.digest(key),
            created_at=now,
            expires_at=expires_at,
        )
        await self._store.put_key(record, _line(record, now, actor, "key.create", f"{role} {record.prefix}"))
        return record, key

    async def revoke(self, org_id: UUID, key_id: UUID, actor: str) -> ApiKey:
        """From now on it opens nothing here; on other processes within seconds. Revoking again changes nothing."""
        now = self._clock.now()
        all_keys = await self._store.keys(org_id)
        key = next((key for key in all_keys if key.key_id == key_id), None)
        if key is None:
            raise NotFound(f"no key {key_id}")
        if key.revoked_at is not None:
            return key
        if _last_admin(key, all_keys, now):
            raise Conflict("the last admin key cannot be revoked; create another one first")
        revoked = msgspec.structs.replace(key, revoked_at=now)
        await self._store.put_key(revoked, _line(key, now, actor, "key.revoke", key.prefix))
        self._known.pop(key.digest, None)
        return revoked

    async def create_org(self, name: str, caller: ApiKey) -> tuple[Org, ApiKey, str]:
        """A new organization with its first admin key; told in the audit of both organizations."""
        _check_name(name)
        now = self._clock.now()
        org = Org(org_id=uuid7(now), name=name, created_at=now)
        await self._store.put_org(org)
        await self._store.add_audit(_org_line(org, caller))
        record, key = await self.create(org.org_id, "admin", Role.ADMIN, caller.prefix)
        return org, record, key


def living(key: ApiKey, now: Instant) -> bool:
    """Neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def _last_admin(key: ApiKey, all_keys: list[ApiKey], now: Instant) -> bool:
    """Whether nobody could make keys any more without this one."""
    if key.role is not Role.ADMIN or not living(key, now):
        return False
    return not any(other.role is Role.ADMIN and living(other, now) for other in all_keys if other != key)


def _line(key: ApiKey, at: Instant, actor: str, action: str, result: str) -> AuditLine:
    return AuditLine(at=at, org_id=key.org_id, actor=actor, action=action, subjects=(str(key.key_id),), result=result)


def _org_line(org: Org, caller: ApiKey) -> AuditLine:
    return AuditLine(
        at=org.created_at,
        org_id=caller.org_id,
        actor=caller.prefix,
        action="org.create",
        subjects=(str(org.org_id),),
        result=org.name,
    )


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= _NAME_CHARACTERS_MAX:
        raise InvalidInput("name", f"must be 1 to {_NAME_CHARACTERS_MAX} characters, got {len(name)}")
    check_storable("name", name)
