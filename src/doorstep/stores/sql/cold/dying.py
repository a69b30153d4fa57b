"""At which endpoints deliveries died lately."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, bindparam, exists, literal_column, or_, select

from doorstep.clock import Instant
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import endpoints, orgs, rollups, ticks
from doorstep.stores.tally import EVERY

_T, _R, _E = ticks.c, rollups.c, endpoints.c
_SINCE = bindparam("since", type_=BigInteger())


def _hours_of(endpoint: ColumnElement[int]) -> tuple[ColumnElement[bool], ...]:
    """At most one row for each of the hours."""
    return (_R.endpoint_id == endpoint, _R.span == literal_column("'hour'"), _R.at >= _SINCE, _R.died > 0)


_LATELY = (_T.minute >= _SINCE, _T.died > 0)
"""What was not folded yet."""
_ORG_DIES = or_(
    exists().where(_R.org_id == orgs.c.id, *_hours_of(literal_column(str(EVERY)))),
    exists().where(_T.org_id == orgs.c.id, *_LATELY),
)
"""Only their endpoints are looked at: most organizations have none, and are passed over with a few rows each."""
_ENDPOINT_DIES = or_(
    exists().where(_R.org_id == _E.org_id, *_hours_of(_E.id)),
    exists().where(_T.org_id == _E.org_id, _T.endpoint_id == _E.id, *_LATELY),
)
_DYING = select(orgs.c.uid, _E.uid).join(endpoints, _E.org_id == orgs.c.id).where(_ORG_DIES, _ENDPOINT_DIES)


def dying_endpoints(since: Instant) -> Script[list[tuple[UUID, UUID]]]:
    return [(org_id, endpoint_id) for org_id, endpoint_id in (yield ask(_DYING, since=since))]
