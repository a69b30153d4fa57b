"""Which endpoints of an organization are cut off, or have lost something lately."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import BigInteger, BindParameter, bindparam, func, literal_column, or_, select, text, union_all

from doorstep.clock import Instant
from doorstep.model.rollup import HOUR
from doorstep.stores.sql.cold.listing.walking import ORG
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import DISABLED, LIVING, LOSING, circuits, endpoints, rollups, ticks

_T, _R, _E, _C = ticks.c, rollups.c, endpoints.c, circuits.c
_MOST: BindParameter[int] = bindparam("most")
_SINCE = bindparam("since", type_=BigInteger())
_LIVES = text(f"doorstep_endpoints.{LIVING}")

_DISABLED = select(_E.uid).where(_E.org_id == ORG, text(DISABLED)).order_by(_E.uid).limit(_MOST)
_IS_BARRED = or_(_C.state == literal_column("'open'"), _C.state == literal_column("'half_open'"))
_BARRED = (
    select(_E.uid)
    .select_from(circuits)
    .join(endpoints, _E.id == _C.endpoint_id)
    .where(_C.org_id == ORG, _IS_BARRED, _LIVES)
    .order_by(_C.state.desc(), _E.uid)
    .limit(_MOST)
)
"""What is open comes before what is half-open. The words are those of TROUBLED, as its index wants them."""
_KEPT = (
    select(_R.endpoint_id, _R.at)
    .join(endpoints, _E.id == _R.endpoint_id)
    .where(_R.org_id == ORG, _R.at >= _SINCE, text(LOSING), _LIVES)
    .order_by(_R.at.desc())
    .limit(bindparam("examined"))
    .subquery("kept")
)
_LATELY = (
    select(_T.endpoint_id, _T.minute - _T.minute % HOUR)
    .join(endpoints, _E.id == _T.endpoint_id)
    .where(_T.org_id == ORG, _T.minute >= _SINCE, _T.dead > 0, _LIVES)
)
_BOTH = union_all(select(_KEPT), _LATELY).subquery("both")
_LOSING = (
    select(_E.uid)
    .join(_BOTH, _BOTH.c.endpoint_id == _E.id)
    .group_by(_E.uid)
    .order_by(func.max(_BOTH.c.at).desc(), _E.uid)
    .limit(_MOST)
)


def ailing(org_id: UUID, since: Instant, hours: int, limit: int) -> Script[list[UUID]]:
    """Each endpoint has one roll-up an hour: among so many of them are those of `limit` endpoints, or all."""
    lost = {"since": since, "examined": hours * limit}
    found = yield ask(_DISABLED, org=org_id, most=limit)
    found = [*found, *(yield ask(_BARRED, org=org_id, most=limit))]
    found = [*found, *(yield ask(_LOSING, org=org_id, most=limit, **lost))]
    return list(dict.fromkeys(row[0] for row in found))[:limit]
