"""The audit: who did what, when, to which ids, with what result.

A line is written together with the ids that it is found by, and is never changed; only the cleaner removes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import UUID

import msgspec
from sqlalchemy import insert, select

from doorstep.model.action import AuditEntry
from doorstep.stores.sql.queries.transaction import Row, Transaction, execute, execute_each
from doorstep.stores.sql.schema import audit, audit_subjects

_ADD_LINE = insert(audit).returning(audit.c.id)
_FILE = insert(audit_subjects)
AUDIT_LINE = select(audit.c.at, audit.c.actor, audit.c.action, audit.c.subjects, audit.c.result, audit.c.reason)
_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_decode_subjects = msgspec.json.Decoder(tuple[str, ...]).decode


def write_line(org: int, line: AuditEntry) -> Transaction[None]:
    ((key,),) = yield execute(
        _ADD_LINE,
        org_id=org,
        at=line.at,
        actor=line.actor,
        action=line.action,
        subjects=msgspec.json.encode(line.subjects).decode(),
        result=line.result,
        reason=line.reason,
    )
    yield execute_each(_FILE, [{"audit_id": key, "subject": one, "org_id": org} for one in filed_under(line.subjects)])


def filed_under(subjects: Iterable[str]) -> list[UUID]:
    """The ids among the subjects of a line, as they are written everywhere; a pipeline and its entities are named."""
    return [UUID(one) for one in dict.fromkeys(subjects) if _ID.fullmatch(one)]


def audit_line_from(org_id: UUID, row: Row) -> AuditEntry:
    at, actor, action, subjects, result, reason, *_ = row
    return AuditEntry(
        at=at,
        org_id=org_id,
        actor=actor,
        action=action,
        subjects=_decode_subjects(subjects),
        result=result,
        reason=reason,
    )
