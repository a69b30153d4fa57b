"""Lists of endpoints and of audit lines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID

from sqlalchemy import String, bindparam, literal_column, or_, select

from doorstep.model.act import AuditLine
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.listing import Page
from doorstep.stores import cursor as cursors
from doorstep.stores.sql.cold.audit import AUDIT_LINE, audit_line_from
from doorstep.stores.sql.cold.listing.walking import ORG, Walk, page_of, stretch, walk_over
from doorstep.stores.sql.cold.rows import decode_endpoint
from doorstep.stores.sql.cold.script import Script
from doorstep.stores.sql.schema import audit, endpoints
from doorstep.stores.text import check_storable

_STATE = bindparam("state", type_=String())
_LIVING = endpoints.c.state != literal_column(f"'{EndpointState.DELETED}'")
_ENDPOINTS = walk_over(
    (endpoints.c.org_id == ORG,),
    (endpoints.c.uid,),
    select(endpoints.c.document),
    (or_(endpoints.c.state == _STATE, _STATE.is_(None) & _LIVING),),
)


def list_endpoints(org_id: UUID, state: EndpointState | None, cursor: str | None, limit: int) -> Script[Page[Endpoint]]:
    (reached,) = cursors.read(cursor, cursors.ID_MAX) or (0,)
    after, until = (UUID(int=reached),), (UUID(int=cursors.ID_MAX),)
    found = yield from stretch(_ENDPOINTS, after, until, limit, {"org": org_id, "state": state})
    return page_of(_ENDPOINTS, [found], limit, lambda row: decode_endpoint(row[0]))


_ACTOR, _ACTION = bindparam("actor", type_=String()), bindparam("action", type_=String())
_AUDIT_FILTER = (
    or_(_ACTOR.is_(None), audit.c.actor == _ACTOR),
    or_(_ACTION.is_(None), audit.c.action == _ACTION),
)


@lru_cache(maxsize=64)
def _audit_about(count: int) -> Walk:
    """Over the lines that name one of so many ids; over all of them where none is given."""
    named = [audit.c.subjects.contains(bindparam(f"about_{n}", type_=String())) for n in range(count)]
    matching = (*_AUDIT_FILTER, or_(*named)) if named else _AUDIT_FILTER
    return walk_over((audit.c.org_id == ORG,), (audit.c.id,), AUDIT_LINE, matching, newest_first=True)


_AUDIT = _audit_about(0)


def list_audit(
    org_id: UUID, actor: str | None, action: str | None, cursor: str | None, limit: int, about: Sequence[UUID]
) -> Script[Page[AuditLine]]:
    check_storable("actor", actor)
    check_storable("action", action)
    after = cursors.read(cursor, cursors.KEY_MAX) or (cursors.KEY_MAX,)
    named = {f"about_{n}": str(one) for n, one in enumerate(about)}
    walk, values = (
        _audit_about(len(named)) if named else _AUDIT,
        {"org": org_id, "actor": actor, "action": action} | named,
    )
    filtered = actor is not None or action is not None or bool(named)
    found = yield from stretch(walk, after, (0,), limit, values, filtered=filtered)
    return page_of(walk, [found], limit, lambda row: audit_line_from(org_id, row))
