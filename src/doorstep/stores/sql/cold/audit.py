"""The audit: who did what, when, to which ids, with what result."""

from __future__ import annotations

from uuid import UUID

import msgspec
from sqlalchemy import insert, select

from doorstep.model.act import AuditLine
from doorstep.stores.sql.cold.script import Row, Step, ask
from doorstep.stores.sql.schema import audit

_ADD_AUDIT = insert(audit)
AUDIT_LINE = select(audit.c.at, audit.c.actor, audit.c.action, audit.c.subjects, audit.c.result, audit.c.reason)
_decode_subjects = msgspec.json.Decoder(tuple[str, ...]).decode


def audit_step(org: int, line: AuditLine) -> Step:
    return ask(
        _ADD_AUDIT,
        org_id=org,
        at=line.at,
        actor=line.actor,
        action=line.action,
        subjects=msgspec.json.encode(line.subjects).decode(),
        result=line.result,
        reason=line.reason,
    )


def audit_line_from(org_id: UUID, row: Row) -> AuditLine:
    at, actor, action, subjects, result, reason, *_ = row
    return AuditLine(
        at=at,
        org_id=org_id,
        actor=actor,
        action=action,
        subjects=_decode_subjects(subjects),
        result=result,
        reason=reason,
    )
