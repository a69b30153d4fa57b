"""In which organizations deliveries died lately."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import BigInteger, bindparam, exists, literal_column, or_, select

from doorstep.clock import Instant
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import orgs, rollups, ticks
from doorstep.stores.tally import EVERY

_T, _R = ticks.c, rollups.c
_SINCE = bindparam("since", type_=BigInteger())
_BY_HOUR = (_R.endpoint_id == EVERY, _R.span == literal_column("'hour'"), _R.at >= _SINCE, _R.died > 0)
_DYING = select(orgs.c.uid).where(
    or_(
        exists().where(_R.org_id == orgs.c.id, *_BY_HOUR),
        exists().where(_T.org_id == orgs.c.id, _T.minute >= _SINCE, _T.died > 0),
    )
)
"""Of each organization a few rows of its own: at most one for each of the hours, and what was not folded yet."""


def dying_orgs(since: Instant) -> Script[list[UUID]]:
    return [row[0] for row in (yield ask(_DYING, since=since))]
