"""Who sends: organizations."""

from __future__ import annotations

from uuid import UUID

import msgspec
from sqlalchemy import bindparam, insert, select, update

from doorstep.errors import NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.org import Org
from doorstep.stores.sql.queries.audit import write_line
from doorstep.stores.sql.queries.rows import IN_ORG, decode_org
from doorstep.stores.sql.queries.transaction import Transaction, execute
from doorstep.stores.sql.schema import marks, orgs

_ORG_KEY = select(orgs.c.id).where(IN_ORG)
_ORGS = select(orgs.c.document).order_by(orgs.c.id)
_REPLACE_ORG = update(orgs).where(IN_ORG).values(document=bindparam("new_document"))
_ADD_ORG = insert(orgs)
BUMP_VERSION = update(marks).where(marks.c.name == "routing").values(value=marks.c.value + 1)
"""Its row is the lock that keeps two writers of endpoints, and every accept, apart."""


def org_key(org_id: UUID) -> Transaction[int]:
    """The integer that names an organization inside; NotFound for an unknown one."""
    rows = yield execute(_ORG_KEY, org=org_id)
    if not rows:
        raise NotFound(f"no organization {org_id}")
    return int(rows[0][0])


def put_org(org: Org, line: AuditEntry | None) -> Transaction[None]:
    """The mark comes before the organization's row, as wherever both are locked."""
    document = msgspec.json.encode(org).decode()
    if (yield execute(_ORG_KEY, org=org.org_id)):
        yield execute(BUMP_VERSION)
        yield execute(_REPLACE_ORG, org=org.org_id, new_document=document)
    else:
        yield execute(_ADD_ORG, uid=org.org_id, document=document)
    if line is not None:
        yield from add_audit(line)


def add_audit(line: AuditEntry) -> Transaction[None]:
    org = yield from org_key(line.org_id)
    yield from write_line(org, line)


def all_orgs() -> Transaction[list[Org]]:
    return [decode_org(row[0]) for row in (yield execute(_ORGS))]
