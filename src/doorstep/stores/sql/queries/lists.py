"""Lists of endpoints and of audit lines."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import String, bindparam, literal_column, or_, select

from doorstep.model.action import AuditEntry
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.listing import Page
from doorstep.stores import cursor as cursors
from doorstep.stores.sql.queries.audit import AUDIT_LINE, audit_line_from
from doorstep.stores.sql.queries.paging import ORG, Place, Stretch, page_of, stretch, walk_over
from doorstep.stores.sql.queries.rows import decode_endpoint
from doorstep.stores.sql.queries.transaction import Transaction
from doorstep.stores.sql.schema import audit, audit_subjects, endpoints
from doorstep.stores.text import check_storable

_STATE = bindparam("state", type_=String())
_LIVING = endpoints.c.state != literal_column(f"'{EndpointState.DELETED}'")
_ENDPOINTS = walk_over(
    (endpoints.c.org_id == ORG,),
    (endpoints.c.uid,),
    select(endpoints.c.document),
    (or_(endpoints.c.state == _STATE, _STATE.is_(None) & _LIVING),),
)


def list_endpoints(
    org_id: UUID, state: EndpointState | None, cursor: str | None, limit: int
) -> Transaction[Page[Endpoint]]:
    (reached,) = cursors.read(cursor, cursors.ID_MAX) or (0,)
    after, until = (UUID(int=reached),), (UUID(int=cursors.ID_MAX),)
    found = yield from stretch(_ENDPOINTS, after, until, limit, {"org": org_id, "state": state})
    return page_of(_ENDPOINTS, [found], limit, lambda row: decode_endpoint(row[0]))


_ACTOR, _ACTION = bindparam("actor", type_=String()), bindparam("action", type_=String())
_AUDIT_FILTER = (
    or_(_ACTOR.is_(None), audit.c.actor == _ACTOR),
    or_(_ACTION.is_(None), audit.c.action == _ACTION),
)


_AUDIT = walk_over((audit.c.org_id == ORG,), (audit.c.id,), AUDIT_LINE, _AUDIT_FILTER, newest_first=True)
_S = audit_subjects.c
_ABOUT = walk_over(
    (_S.org_id == ORG, _S.subject == bindparam("about", type_=_S.subject.type)),
    (_S.audit_id,),
    AUDIT_LINE.join(audit_subjects, _S.audit_id == audit.c.id),
    _AUDIT_FILTER,
    newest_first=True,
)


def list_audit(
    org_id: UUID, actor: str | None, action: str | None, cursor: str | None, limit: int, about: Sequence[UUID]
) -> Transaction[Page[AuditEntry]]:
    check_storable("actor", actor)
    check_storable("action", action)
    after = cursors.read(cursor, cursors.KEY_MAX) or (cursors.KEY_MAX,)
    values = {"org": org_id, "actor": actor, "action": action}
    walk, asked = (_ABOUT, [{**values, "about": one} for one in dict.fromkeys(about)]) if about else (_AUDIT, [values])
    filtered = actor is not None or action is not None
    found: list[Stretch] = []
    for one in asked:
        found.append((yield from stretch(walk, after, (0,), limit, one, filtered=filtered)))
    return page_of(walk, _each_once(found), limit, lambda row: audit_line_from(org_id, row))


def _each_once(stretches: Sequence[Stretch]) -> list[Stretch]:
    """A line may be about several of the wanted: it is left to the first of them."""
    met: set[Place] = set()
    left: list[Stretch] = []
    for rows, end in stretches:
        left.append(Stretch([row for row in rows if row[-1:] not in met], end))
        met |= {row[-1:] for row in rows}
    return left
