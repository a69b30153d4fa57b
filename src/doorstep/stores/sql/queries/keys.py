"""API keys, each change together with the line about it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace
from sqlalchemy import bindparam, func, insert, select, update

from doorstep.clock import Instant
from doorstep.errors import Conflict
from doorstep.model.action import AuditEntry
from doorstep.model.org import ApiKey
from doorstep.stores.revoking import check_revocable, named_key
from doorstep.stores.sql.queries.audit import write_line
from doorstep.stores.sql.queries.moves import parts
from doorstep.stores.sql.queries.orgs import org_key
from doorstep.stores.sql.queries.paging import ORG
from doorstep.stores.sql.queries.rows import API_KEY, IN_ORG, api_key_from
from doorstep.stores.sql.queries.transaction import Transaction, execute, execute_on_postgres
from doorstep.stores.sql.schema import keys, orgs

_FIELDS = ("org_id", "name", "role", "prefix", "digest", "created_at", "expires_at", "revoked_at")
_REPLACE_KEY = (
    update(keys)
    .where(keys.c.uid == bindparam("key"))
    .values({name: bindparam(f"new_{name}") for name in _FIELDS})
    .returning(keys.c.id)
)
_ADD_KEY = insert(keys)
_KEY = API_KEY.where(keys.c.digest == bindparam("digest"))
_KEYS = API_KEY.where(IN_ORG).order_by(keys.c.id)
_NAME = func.min(keys.c.name)
_NAMES = (
    select(keys.c.prefix, _NAME)
    .where(keys.c.org_id == ORG, keys.c.prefix.in_(bindparam("prefixes", expanding=True)))
    .group_by(keys.c.prefix)
    .having(_NAME == func.max(keys.c.name))
)
_CALLED = (
    select(keys.c.prefix)
    .where(keys.c.org_id == ORG, keys.c.name == bindparam("called"))
    .order_by(keys.c.id.desc())
    .limit(bindparam("most"))
)
_LOCK_ORG = select(orgs.c.id).where(IN_ORG).with_for_update(key_share=True)
"""Those who revoke keys of an organization take turns; `key_share` lets others add rows that belong to it meanwhile."""


def put_key(key: ApiKey, line: AuditEntry | None) -> Transaction[None]:
    org = yield from org_key(key.org_id)
    known = yield from find_key(key.digest)
    if known is not None and known.key_id != key.key_id:
        raise Conflict("another key has the same digest")
    fields = {name: getattr(key, name) for name in _FIELDS} | {"org_id": org}
    if not (yield execute(_REPLACE_KEY, key=key.key_id, **{f"new_{name}": value for name, value in fields.items()})):
        yield execute(_ADD_KEY, uid=key.key_id, **fields)
    if line is not None:
        yield from write_line(org, line)


def revoke_key(org_id: UUID, key_id: UUID, now: Instant, line: AuditEntry) -> Transaction[ApiKey]:
    yield execute_on_postgres(_LOCK_ORG, org=org_id)
    all_keys = yield from keys_of(org_id)
    key = named_key(key_id, all_keys)
    if key.revoked_at is not None:
        return key
    check_revocable(key, all_keys, now)
    revoked = replace(key, revoked_at=now)
    yield from put_key(revoked, line)
    return revoked


def keys_of(org_id: UUID) -> Transaction[list[ApiKey]]:
    return [api_key_from(row) for row in (yield execute(_KEYS, org=org_id))]


def key_names(org_id: UUID, prefixes: Sequence[str]) -> Transaction[dict[str, str]]:
    found: dict[str, str] = {}
    for part in parts(list(dict.fromkeys(prefixes))):
        found |= {prefix: name for prefix, name in (yield execute(_NAMES, org=org_id, prefixes=part))}
    return found


def keys_called(org_id: UUID, name: str, limit: int) -> Transaction[list[str]]:
    rows = yield execute(_CALLED, org=org_id, called=name, most=limit)
    return list(dict.fromkeys(prefix for (prefix,) in rows))


def find_key(digest: bytes) -> Transaction[ApiKey | None]:
    rows = yield execute(_KEY, digest=digest)
    return api_key_from(rows[0]) if rows else None
