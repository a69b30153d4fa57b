"""How endpoints stand: their circuits, and since when their oldest delivery waits; for many of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import ScalarSelect, bindparam, func, select, text

from doorstep.clock import Instant
from doorstep.model.circuit import Circuit
from doorstep.model.delivery import DeliveryState
from doorstep.stores.bounds import WAITING_EXAMINED_MAX
from doorstep.stores.sql.cold.moves import parts
from doorstep.stores.sql.cold.rows import CIRCUIT, IN_ORG, circuit_from
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import circuits as circuit_rows
from doorstep.stores.sql.schema import deliveries, endpoints, orgs

_D = deliveries.c
_NAMED = endpoints.c.uid.in_(bindparam("endpoints", expanding=True))
_CIRCUITS = (
    CIRCUIT.add_columns(endpoints.c.uid)
    .select_from(circuit_rows)
    .join(endpoints, endpoints.c.id == circuit_rows.c.endpoint_id)
    .join(orgs, orgs.c.id == endpoints.c.org_id)
    .where(IN_ORG, _NAMED)
)


def _first(state: DeliveryState) -> ScalarSelect[int]:
    """The key of the oldest of those that are due first, by index alone: keys follow the order of creation."""
    due = (
        select(_D.id)
        .where(_D.endpoint_id == endpoints.c.id, text(f"doorstep_deliveries.state = '{state}'"))
        .order_by(_D.due_at)
        .limit(WAITING_EXAMINED_MAX)
        .correlate(endpoints)
        .subquery()
    )
    return select(func.min(due.c.id)).correlate(endpoints).scalar_subquery()


_OLDEST = (
    select(endpoints.c.uid, _first(DeliveryState.PENDING), _first(DeliveryState.IN_PROGRESS))
    .select_from(endpoints)
    .join(orgs, orgs.c.id == endpoints.c.org_id)
    .where(IN_ORG, _NAMED)
)
_CREATED = select(_D.id, _D.created_at).where(_D.id.in_(bindparam("keys", expanding=True)))


def circuits(org_id: UUID, endpoint_ids: Sequence[UUID]) -> Script[dict[UUID, Circuit]]:
    found: dict[UUID, Circuit] = {}
    for part in parts(endpoint_ids):
        rows = yield ask(_CIRCUITS, org=org_id, endpoints=part)
        found |= {row[-1]: circuit_from(row[-1], row) for row in rows}
    return found


def waiting_since(org_id: UUID, endpoint_ids: Sequence[UUID]) -> Script[dict[UUID, Instant]]:
    oldest: dict[UUID, int] = {}
    for part in parts(endpoint_ids):
        rows = yield ask(_OLDEST, org=org_id, endpoints=part)
        oldest |= {uid: min(key for key in keys if key) for uid, *keys in rows if any(keys)}
    created: dict[int, Instant] = {}
    for keys in parts(list(oldest.values())):
        created |= {row[0]: row[1] for row in (yield ask(_CREATED, keys=keys))}
    return {uid: created[key] for uid, key in oldest.items() if key in created}
