"""Beside the path: API keys and organizations are made, found and revoked. Every change is audited."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import TypeVar
from uuid import UUID

from doorstep.clock import Clock, Instant, seconds
from doorstep.errors import Conflict, InvalidInput, Overloaded
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.org import ApiKey, Org, Role
from doorstep.model.record import uuid7
from doorstep.stores.revoking import named_key
from doorstep.stores.store import Store
from doorstep.stores.text import check_storable

T = TypeVar("T")

REMEMBERED_SECONDS = 5
"""A revoked key may work for this long on another process that has just seen it, a new one be unknown to it."""
_REMEMBERED_MAX = 10_000
_STRANGERS_MAX = 4
"""Look-ups at once of keys that this process has never found: a flood of made-up ones leaves most connections of the
store to others. Each waits its turn; a good key among them is let in."""
_LINE_MAX = 2_000
"""How many may be in that line: at a millisecond a look-up the last one waits for half a second. Beyond, a request is
refused at once, and may come again."""
TOO_MANY_STRANGERS = "more unknown keys are being tried than can be looked up; send it again in a moment"
_LIVING_MAX = 1_000
_NAME_CHARACTERS_MAX = 200


class ApiKeys:
    """Remembers keys for a few seconds, so that a busy sender does not cost a look-up per request; unknown keys too."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[bytes, tuple[ApiKey, Instant]] = {}
        """By digest; until when the record can be relied on. After that it only tells that the key was there."""
        self._unknown: dict[bytes, Instant] = {}
        self._strangers = asyncio.Semaphore(_STRANGERS_MAX)
        self._in_line = 0

    # -- finding -------------------------------------------------------------------------------------------

    async def authenticate(self, key: str) -> ApiKey | None:
        """The key's record if it is good; None for one that is unknown, revoked or expired."""
        return await self.holder(digest(key))

    async def holder(self, digest: bytes) -> ApiKey | None:
        """The same by the key's hash, for those who once showed it."""
        record, until = self._known.get(digest, (None, 0))
        if until <= self._clock.now():
            found = await (self._find_stranger(digest) if record is None else self._store.find_key(digest))
            record = None if found is None else self._remember(found)
        return record if record is not None and record.is_valid(self._clock.now()) else None

    async def _find_stranger(self, digest: bytes) -> ApiKey | None:
        """Waits in a line, which is not endless: who floods is told so before his keys cost anything."""
        if self._is_unknown(digest):
            return None
        if self._in_line >= _LINE_MAX:
            raise Overloaded(TOO_MANY_STRANGERS)
        self._in_line += 1
        try:
            async with self._strangers:
                return await self._look_up(digest)
        finally:
            self._in_line -= 1

    async def _look_up(self, digest: bytes) -> ApiKey | None:
        if self._is_unknown(digest):  # somebody before us in the line asked for the same
            return None
        record = await self._store.find_key(digest)
        if record is None:
            _keep(self._unknown, digest, self._clock.now() + seconds(REMEMBERED_SECONDS))
        return record

    def _is_unknown(self, digest: bytes) -> bool:
        return self._unknown.get(digest, 0) > self._clock.now()

    def _remember(self, record: ApiKey) -> ApiKey:
        """Of two that were read at about the same time the revoked one is the newer: nothing takes that back."""
        known, _ = self._known.get(record.digest, (record, 0))
        newest = known if known.revoked_at is not None else record
        _keep(self._known, record.digest, (newest, self._clock.now() + seconds(REMEMBERED_SECONDS)))
        return newest

    async def keys(self, org_id: UUID) -> list[ApiKey]:
        """In the order of their creation, revoked and expired ones too."""
        return await self._store.keys(org_id)

    async def orgs(self) -> list[Org]:
        """All but the reserved one, which is nobody's."""
        return [org for org in await self._store.orgs() if org.org_id != OPERATIONS_ORG]

    # -- changing ------------------------------------------------------------------------------------------

    async def create(
        self, org_id: UUID, name: str, role: Role, actor: str, expires_at: Instant | None = None
    ) -> tuple[ApiKey, str]:
        """A new key, and the only sight of it in the clear."""
        now = self._clock.now()
        _check_name(name)
        if expires_at is not None and expires_at <= now:
            raise InvalidInput("expires_at", "must be in the future")
        if sum(key.is_valid(now) for key in await self._store.keys(org_id)) >= _LIVING_MAX:
            raise Conflict(f"an organization has at most {_LIVING_MAX} keys; revoke some first")
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
        )
        await self._store.put_key(record, _line(record, now, actor, "key.create", f"{role} {record.prefix}"))
        self._remember(record)
        return record, key

    async def revoke(self, org_id: UUID, key_id: UUID, actor: str, reason: str = "") -> ApiKey:
        """From now on it opens nothing here; on other processes within seconds. Revoking again changes nothing.

        Conflict for the last admin key (stores/revoking.py).
        """
        check_storable("reason", reason)
        now = self._clock.now()
        key = named_key(key_id, await self._store.keys(org_id))
        line = _line(key, now, actor, "key.revoke", key.prefix, reason)
        revoked = await self._store.revoke_key(org_id, key_id, now, line)
        self._remember(revoked)
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


def _keep(memory: dict[bytes, T], digest: bytes, value: T) -> None:
    """A memory that is full is emptied: it fills again with what is asked for."""
    if len(memory) >= _REMEMBERED_MAX:
        memory.clear()
    memory[digest] = value


def _line(key: ApiKey, at: Instant, actor: str, action: str, result: str, reason: str = "") -> AuditEntry:
    return AuditEntry(
        at=at,
        org_id=key.org_id,
        actor=actor,
        action=action,
        subjects=(str(key.key_id),),
        result=result,
        reason=reason,
    )


def _org_line(org: Org, caller: ApiKey) -> AuditEntry:
    return AuditEntry(
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


_PREFIX_CHARACTERS = 12


def new_key() -> str:
    """A key of 256 random bits; `dsk_` lets scanners recognise one that leaked."""
    return "dsk_" + secrets.token_urlsafe(32)


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def prefix(key: str) -> str:
    """The part that is stored and shown, so that people can tell their keys apart."""
    return key[:_PREFIX_CHARACTERS] if len(key) >= 2 * _PREFIX_CHARACTERS else key[:4]
