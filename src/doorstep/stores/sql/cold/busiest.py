"""Which endpoints have had the most deliveries, over all organizations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import BindParameter, Select, bindparam, func, select, text, union_all

from doorstep.model.channel import OPERATIONS_ORG
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import BUSY, LIVING, endpoints, orgs, rollups, ticks

_T, _R, _E = ticks.c, rollups.c, endpoints.c
_MOST: BindParameter[int] = bindparam("most")


def _told_apart(rows: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """Those of endpoints that live; channels have lists of their own."""
    return rows.where(
        text(f"doorstep_endpoints.{LIVING}"),
        _E.org_id.not_in(select(orgs.c.id).where(orgs.c.uid == bindparam("reserved"))),
    )


_KEPT = (
    _told_apart(select(_R.endpoint_id, _R.deliveries).join(endpoints, _E.id == _R.endpoint_id).where(text(BUSY)))
    .order_by(_R.deliveries.desc())
    .limit(_MOST)
    .subquery("kept")
)
_LATELY = select(_T.endpoint_id, _T.deliveries).where(_T.deliveries > 0)
_BOTH = union_all(select(_KEPT), _LATELY).subquery("both")
_MADE = func.sum(_BOTH.c.deliveries)
_BUSIEST = (
    _told_apart(select(_E.uid).join(_BOTH, _BOTH.c.endpoint_id == _E.id))
    .group_by(_E.id, _E.uid)
    .having(_MADE > 0)
    .order_by(_MADE.desc(), _E.uid)
    .limit(_MOST)
)


def busiest(limit: int) -> Script[list[UUID]]:
    return [row[0] for row in (yield ask(_BUSIEST, most=limit, reserved=OPERATIONS_ORG))]
