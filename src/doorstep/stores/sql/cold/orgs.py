"""Who sends: organizations and their API keys."""

from __future__ import annotations

from uuid import UUID

import msgspec
from sqlalchemy import bindparam, insert, select, update

from doorstep.errors import Conflict, NotFound
from doorstep.model.org import ApiKey, Org
from doorstep.stores.sql.cold.rows import API_KEY, IN_ORG, api_key_from, decode_org
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import keys, marks, orgs

_ORG_KEY = select(orgs.c.id).where(IN_ORG)
_ORGS = select(orgs.c.document).order_by(orgs.c.id)
_REPLACE_ORG = update(orgs).where(IN_ORG).values(document=bindparam("new_document")).returning(orgs.c.id)
_ADD_ORG = insert(orgs)
_REPLACE_KEY = (
    update(keys)
    .where(keys.c.uid == bindparam("key"))
    .values({name: bindparam(f"new_{name}") for name in ("org_id", "name", "role", "prefix", "digest")})
    .values({name: bindparam(f"new_{name}") for name in ("created_at", "expires_at", "revoked_at")})
    .returning(keys.c.id)
)
_ADD_KEY = insert(keys)
_KEY = API_KEY.where(keys.c.digest == bindparam("digest"))
_KEYS = API_KEY.where(IN_ORG).order_by(keys.c.id)
BUMP_VERSION = update(marks).where(marks.c.name == "routing").values(value=marks.c.value + 1)
"""Its row is the lock that keeps two writers of endpoints, and every accept, apart."""


def org_key(org_id: UUID) -> Script[int]:
    """The integer that names an organization inside; NotFound for an unknown one."""
    rows = yield ask(_ORG_KEY, org=org_id)
    if not rows:
        raise NotFound(f"no organization {org_id}")
    return int(rows[0][0])


def put_org(org: Org) -> Script[None]:
    document = msgspec.json.encode(org).decode()
    if (yield ask(_REPLACE_ORG, org=org.org_id, new_document=document)):
        yield ask(BUMP_VERSION)
    else:
        yield ask(_ADD_ORG, uid=org.org_id, document=document)


def all_orgs() -> Script[list[Org]]:
    return [decode_org(row[0]) for row in (yield ask(_ORGS))]


def put_key(key: ApiKey) -> Script[None]:
    org = yield from org_key(key.org_id)
    known = yield from find_key(key.digest)
    if known is not None and known.key_id != key.key_id:
        raise Conflict("another key has the same digest")
    fields = {
        "org_id": org,
        "name": key.name,
        "role": key.role,
        "prefix": key.prefix,
        "digest": key.digest,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }
    if not (yield ask(_REPLACE_KEY, key=key.key_id, **{f"new_{name}": value for name, value in fields.items()})):
        yield ask(_ADD_KEY, uid=key.key_id, **fields)


def keys_of(org_id: UUID) -> Script[list[ApiKey]]:
    return [api_key_from(row) for row in (yield ask(_KEYS, org=org_id))]


def find_key(digest: bytes) -> Script[ApiKey | None]:
    rows = yield ask(_KEY, digest=digest)
    return api_key_from(rows[0]) if rows else None
