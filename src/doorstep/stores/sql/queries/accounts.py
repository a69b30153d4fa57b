"""Accounts: organizations, their API keys, and their audit log.

An audit entry is stored with the ids of its subjects, so that it can be found by any of these ids. Entries never
change; only the cleaner removes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import String, bindparam, func, insert, or_, select, text, update

from doorstep.clock import Instant
from doorstep.errors import Conflict
from doorstep.model.action import AuditEntry
from doorstep.model.listing import (
    AuditFilter,
    KeyNames,
    KeyPrefixes,
    KeysByDigest,
    OrgKeys,
    Orgs,
    Page,
    RoutingChanges,
)
from doorstep.model.org import ApiKey, Org
from doorstep.stores.limits import KEY_MAX, check_revocable, check_storable, key_by_id, read_cursor
from doorstep.stores.sql.queries.paging import (
    ORG,
    Column,
    Condition,
    IndexScan,
    Position,
    Slice,
    cursor_of,
    index_scan,
    merge_slices,
    read_slice,
    unindexed,
)
from doorstep.stores.sql.queries.rows import (
    API_KEY,
    IN_ORG,
    ORG_KEY,
    api_key_from,
    columns_of,
    decode_org,
    fields_from,
    org_key,
)
from doorstep.stores.sql.queries.transaction import (
    LIMIT,
    Row,
    Transaction,
    execute,
    execute_each,
    execute_in_parts,
    execute_on_postgres,
    new_parameters,
    new_values,
)
from doorstep.stores.sql.schema import (
    AUDIT,
    AUDIT_ACTION,
    AUDIT_ACTOR_ACTION,
    audit,
    audit_subjects,
    keys,
    orgs,
    variables,
)

# -- organizations -----------------------------------------------------------------------------------------

_ORGS = select(orgs.c.document).order_by(orgs.c.id)
_REPLACE_ORG = update(orgs).where(IN_ORG).values(document=bindparam("new_document"))
_MARK_ORG = update(orgs).where(orgs.c.id == bindparam("owner")).values(routing=bindparam("new_routing"))
_ADD_ORG = insert(orgs)
_NUMBER_CHANGE = (
    update(variables)
    .where(variables.c.name == "routing")
    .values(value=variables.c.value + 1)
    .returning(variables.c.value)
)
"""The updated row also serves as a lock: while a transaction that writes endpoints holds it, other such transactions
and accept calls wait."""
_CHANGED_SINCE = select(orgs.c.uid, orgs.c.routing).where(orgs.c.routing >= bindparam("since")).order_by(orgs.c.routing)
_CHANGED_LAST = select(orgs.c.uid, orgs.c.routing).order_by(orgs.c.routing.desc()).limit(1)


def mark_changed(org: int) -> Transaction[int]:
    """Give an organization a new routing version, and return it. Other writers of endpoints are locked out until the
    transaction ends."""
    ((version,),) = yield execute(_NUMBER_CHANGE)
    yield execute(_MARK_ORG, owner=org, new_routing=version)
    return int(version)


def put_org(org: Org) -> Transaction[None]:
    """Write an organization. The routing version is locked before the organization's row, in the same order as in all
    other transactions that lock both."""
    document = msgspec.json.encode(org).decode()
    if known := (yield execute(ORG_KEY, org=org.org_id)):
        yield from mark_changed(known[0][0])
        yield execute(_REPLACE_ORG, org=org.org_id, new_document=document)
    else:
        yield execute(_ADD_ORG, uid=org.org_id, document=document)


def all_orgs(_: UUID | None, __: Orgs) -> Transaction[list[Org]]:
    return [decode_org(row[0]) for row in (yield execute(_ORGS))]


def routing_changes(_: UUID | None, query: RoutingChanges) -> Transaction[list[tuple[UUID, int]]]:
    if query.since is None:
        return [(uid, version) for uid, version in (yield execute(_CHANGED_LAST))]
    return [(uid, version) for uid, version in (yield execute(_CHANGED_SINCE, since=query.since))]


# -- API keys ----------------------------------------------------------------------------------------------

_FIELDS = ("org_id", "name", "role", "prefix", "digest", "created_at", "expires_at", "revoked_at", "user_id")
_REPLACE_KEY = update(keys).where(keys.c.uid == bindparam("key")).values(new_parameters(_FIELDS)).returning(keys.c.id)
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
_PREFIXES = (
    select(keys.c.prefix)
    .where(keys.c.org_id == ORG, keys.c.name == bindparam("named"))
    .order_by(keys.c.id.desc())
    .limit(LIMIT)
)
_LOCK_ORG = select(orgs.c.id).where(IN_ORG).with_for_update(key_share=True)
"""Serializes revocations of an organization's keys. With `key_share`, other transactions can still add rows that refer
to the organization."""


def put_key(key: ApiKey) -> Transaction[None]:
    org = yield from org_key(key.org_id)
    rows = yield execute(_KEY, digest=key.digest)
    if any(api_key_from(row).key_id != key.key_id for row in rows):
        raise Conflict("another key has the same digest")
    fields = {name: getattr(key, name) for name in _FIELDS} | {"org_id": org}
    if not (yield execute(_REPLACE_KEY, key=key.key_id, **new_values(fields))):
        yield execute(_ADD_KEY, uid=key.key_id, **fields)


def revoke_key(org_id: UUID, key_id: UUID, now: Instant, entry: AuditEntry) -> Transaction[ApiKey]:
    yield execute_on_postgres(_LOCK_ORG, org=org_id)
    all_keys = yield from keys_of(org_id, OrgKeys())
    key = key_by_id(key_id, all_keys)
    if key.revoked_at is not None:
        return key
    check_revocable(key, all_keys, now)
    revoked = replace(key, revoked_at=now)
    yield from put_key(revoked)
    yield from add_audit(entry)
    return revoked


def keys_of(org_id: UUID, _: OrgKeys) -> Transaction[list[ApiKey]]:
    return [api_key_from(row) for row in (yield execute(_KEYS, org=org_id))]


def key_names(org_id: UUID, query: KeyNames) -> Transaction[list[tuple[str, str]]]:
    rows = yield from execute_in_parts(_NAMES, "prefixes", query.prefixes, org=org_id)
    return [(prefix, name) for prefix, name in rows]


def actor_name(org_id: UUID, actor: str) -> Transaction[str]:
    """The name of the key with this prefix. Actors that are not keys are names already."""
    names = dict((yield from key_names(org_id, KeyNames(prefixes=(actor,)))))
    return names.get(actor, actor)


def key_prefixes(org_id: UUID, query: KeyPrefixes) -> Transaction[list[str]]:
    check_storable("actor", query.name)
    rows = yield execute(_PREFIXES, org=org_id, named=query.name, limit=query.limit)
    return list(dict.fromkeys(prefix for (prefix,) in rows))


def keys_by_digest(_: UUID | None, query: KeysByDigest) -> Transaction[list[ApiKey]]:
    return [api_key_from(row) for row in (yield execute(_KEY, digest=query.digest))]


# -- the audit log -------------------------------------------------------------------------------------------

_ADD_ENTRY = insert(audit).returning(audit.c.id)
_ADD_SUBJECT = insert(audit_subjects)
_ENTRY_FIELDS = columns_of(AuditEntry, audit, "org_id")
ENTRY = select(*_ENTRY_FIELDS.values())
_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_decode_subjects = msgspec.json.Decoder(tuple[str, ...]).decode


def write_entry(org: int, entry: AuditEntry) -> Transaction[None]:
    """Write an entry, and make it searchable by those of its subjects that are ids. The other subjects, the names of
    pipelines and entities, are not searchable."""
    fields = {name: getattr(entry, name) for name in _ENTRY_FIELDS}
    fields["subjects"] = msgspec.json.encode(entry.subjects).decode()
    ((key,),) = yield execute(_ADD_ENTRY, org_id=org, **fields)
    ids = [UUID(one) for one in dict.fromkeys(entry.subjects) if _ID.fullmatch(one)]
    yield execute_each(_ADD_SUBJECT, [{"audit_id": key, "subject": one, "org_id": org} for one in ids])


def _entry_from(org_id: UUID, row: Row) -> AuditEntry:
    fields = fields_from(_ENTRY_FIELDS, row)
    fields["subjects"] = _decode_subjects(fields["subjects"])
    return AuditEntry(org_id=org_id, **fields)


def add_audit(entry: AuditEntry) -> Transaction[None]:
    org = yield from org_key(entry.org_id)
    yield from write_entry(org, entry)


_ACTOR, _ACTION = bindparam("actor", type_=String()), bindparam("action", type_=String())
_AUDIT_FILTER = (
    or_(_ACTOR.is_(None), audit.c.actor == _ACTOR),
    or_(_ACTION.is_(None), audit.c.action == _ACTION),
)
_AT = (audit.c.at, audit.c.id)
_HERE, _BY_ACTOR = audit.c.org_id == ORG, audit.c.actor == _ACTOR


def _entries(*within: Condition, position: Sequence[Column] = _AT) -> IndexScan:
    return index_scan(within, position, ENTRY, newest_first=True)


ENTRIES = {
    (False, False): _entries(_HERE, text(AUDIT)),
    (True, False): _entries(_HERE, _BY_ACTOR),
    (False, True): _entries(_HERE, text(AUDIT_ACTION), position=(audit.c.action, *_AT)),
    (True, True): _entries(_HERE, _BY_ACTOR, text(AUDIT_ACTOR_ACTION), position=(audit.c.action, *_AT)),
}
"""The scans by whether the list is limited to an actor and to an action. Each has its own index. The action is part of
the position, and the conditions are those of the indexes, because PostgreSQL would otherwise choose another index if it
believed that the actor or the action is common."""
_S, _WHEN = audit_subjects.c, unindexed(audit.c.at)
_ABOUT = index_scan(
    (_S.org_id == ORG, _S.subject == bindparam("about", type_=_S.subject.type)),
    (_S.audit_id,),
    ENTRY.join(audit_subjects, _S.audit_id == audit.c.id),
    (*_AUDIT_FILTER, _WHEN >= bindparam("since"), _WHEN < bindparam("before")),
    newest_first=True,
)
"""Entries about a subject are few, so their times are a filter, and they are sorted by key instead of time."""


def list_audit(org_id: UUID, query: AuditFilter, cursor: str | None, limit: int) -> Transaction[Page[AuditEntry]]:
    for actor in query.actors:
        check_storable("actor", actor)
    check_storable("action", query.action)
    since, before = query.since or 0, KEY_MAX if query.before is None else query.before
    searches: list[dict[str, object]] = [
        {"org": org_id, "actor": actor, "action": query.action} for actor in dict.fromkeys(query.actors) or (None,)
    ]
    after: Position
    until: Position
    if query.about:
        scan, until, after = _ABOUT, (0,), read_cursor(cursor, KEY_MAX) or (KEY_MAX,)
        times = {"since": since, "before": before}
        searches = [{**one, **times, "about": subject} for one in searches for subject in dict.fromkeys(query.about)]
    else:
        scan = ENTRIES[bool(query.actors), query.action is not None]
        action: Position = () if query.action is None else (query.action,)
        after = (*action, *min(read_cursor(cursor, KEY_MAX, KEY_MAX) or (KEY_MAX, 0), (before, 0)))
        until = (*action, since, 0)
    found: list[Slice] = []
    for search in searches:
        found.append((yield from read_slice(scan, after, until, limit, search, filtered=scan is _ABOUT)))
    rows, end = merge_slices(scan, _each_once(found), limit)
    return Page(tuple(_entry_from(org_id, row) for row in rows), cursor_of(end and end[-2:]))


def _each_once(slices: Sequence[Slice]) -> list[Slice]:
    """Remove duplicates: an entry with several of the requested subjects is in several slices, and stays only in the
    first of them."""
    seen: set[Position] = set()
    distinct: list[Slice] = []
    for rows, end in slices:
        distinct.append(Slice([row for row in rows if row[-1:] not in seen], end))
        seen |= {row[-1:] for row in rows}
    return distinct
