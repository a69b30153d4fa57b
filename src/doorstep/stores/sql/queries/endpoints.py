"""Endpoints, their circuits, and their health: which endpoints are unhealthy, how long their oldest deliveries have
been waiting, and how many of the waiting deliveries were created before a given time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Executable,
    FromClause,
    ScalarSelect,
    String,
    TextClause,
    bindparam,
    case,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    union_all,
    update,
)

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.alert import OPERATIONS_ORG, circuit_incident
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, CircuitChange, CircuitState, Endpoint, EndpointState
from doorstep.model.listing import CircuitHistory, Count, EndpointFilter, Page, UnhealthyEndpoints, WaitingDeliveries
from doorstep.model.org import Routing
from doorstep.model.rollup import HOUR
from doorstep.stores import notes
from doorstep.stores.incidents import circuit_change_incident, endpoint_change_incident
from doorstep.stores.limits import ID_MAX, WAITING_EXAMINED_MAX, read_cursor, unique_name
from doorstep.stores.sql.queries.accounts import mark_changed
from doorstep.stores.sql.queries.alerts import incident_step
from doorstep.stores.sql.queries.paging import ORG, count_up_to, index_scan, page_of, read_slice
from doorstep.stores.sql.queries.rows import (
    CIRCUIT,
    CIRCUIT_FIELDS,
    IN_ORG,
    circuit_from,
    decode_endpoint,
    decode_org,
    org_key,
)
from doorstep.stores.sql.queries.transaction import (
    KEYS,
    LIMIT,
    UIDS,
    Transaction,
    execute,
    execute_in_parts,
    execute_one,
    new_parameters,
    new_values,
)
from doorstep.stores.sql.schema import (
    DISABLED,
    HOURS_WITH_DEAD,
    circuit_history,
    circuits,
    counters,
    deliveries,
    endpoints,
    events,
    orgs,
    rollups,
)

_C, _D, _E, _P = circuits.c, deliveries.c, events.c, endpoints.c
_LIVING = _P.state != literal_column("'deleted'")
_TROUBLED = or_(_C.state == literal_column("'open'"), _C.state == literal_column("'half_open'"))
"""The same conditions as LIVING and TROUBLED in the partial indexes. With parameters instead of literals, the indexes
would not be used."""

# -- endpoints ---------------------------------------------------------------------------------------------

_ROUTED_ORGS = select(orgs.c.id, orgs.c.uid, orgs.c.routing, orgs.c.document).where(orgs.c.uid.in_(UIDS))
_LIVE_ENDPOINTS = select(_P.org_id, _P.document).where(_P.org_id.in_(KEYS), _LIVING).order_by(_P.id)
_CHANGED_ENDPOINTS = (
    select(_P.document).where(_P.org_id == bindparam("owner"), _P.changed > bindparam("known")).order_by(_P.id)
)
_ENDPOINTS_ANYWHERE = select(_P.document).where(_P.uid.in_(UIDS))
_THESE_ENDPOINTS = _ENDPOINTS_ANYWHERE.join(orgs).where(IN_ORG)
_LOCK_ENDPOINT = select(_P.id, _P.org_id, _P.version, _P.state).where(_P.uid == bindparam("endpoint")).with_for_update()
_REPLACE_ENDPOINT = (
    update(endpoints)
    .where(_P.id == bindparam("key"))
    .values(new_parameters(("state", "version", "changed", "name", "document")))
)
_ADD_ENDPOINT = insert(endpoints)
_NAMED = select(_P.uid).where(_P.org_id == bindparam("owner"), _P.name == bindparam("named", type_=String()))
_SOME_LIVING = (
    select(_P.id).where(_P.org_id == bindparam("owner"), _P.state != EndpointState.DELETED.value).limit(LIMIT)
)


def routing(known: Mapping[UUID, int]) -> Transaction[list[Routing]]:
    rows = yield from execute_in_parts(_ROUTED_ORGS, "uids", known)
    changed = [row for row in rows if row[2] != known[row[1]]]
    known_part = {key: known[uid] for key, uid, version, _ in changed if 0 <= known[uid] < version}
    unknown = [row[0] for row in changed if row[0] not in known_part]
    endpoints: defaultdict[int, list[Endpoint]] = defaultdict(list)
    for key, document in (yield from execute_in_parts(_LIVE_ENDPOINTS, "keys", unknown)):
        endpoints[key].append(decode_endpoint(document))
    for key, known_version in known_part.items():
        newer = yield execute(_CHANGED_ENDPOINTS, owner=key, known=known_version)
        endpoints[key] += [decode_endpoint(row[0]) for row in newer]
    return [Routing(decode_org(org), version, tuple(endpoints[key])) for key, _, version, org in changed]


def put_endpoint(endpoint: Endpoint, expected_version: int | None, limit: int | None) -> Transaction[bool]:
    org = yield from org_key(endpoint.org_id)
    key, version, state = yield from _lock_endpoint(org, endpoint.endpoint_id)
    if version != expected_version:
        return False
    changed = yield from mark_changed(org)
    new = msgspec.structs.replace(endpoint, version=version + 1)
    name = unique_name(new)
    document = msgspec.json.encode(new).decode()
    fields = {"state": new.state, "version": new.version, "changed": changed, "name": name, "document": document}
    yield from _check_name(org, name, new.endpoint_id)
    if key is None:
        yield from _check_room(org, limit)
        yield execute(_ADD_ENDPOINT, uid=new.endpoint_id, org_id=org, **fields)
    else:
        yield execute(_REPLACE_ENDPOINT, key=key, **new_values(fields))
    yield incident_step(org, endpoint_change_incident(state, new))
    return True


def _check_name(org: int, name: str | None, endpoint_id: UUID) -> Transaction[None]:
    """Raise Conflict if another endpoint has this name. Other writers of endpoints are locked out."""
    for (holder,) in (yield execute(_NAMED, owner=org, named=name)):
        if holder != endpoint_id:
            raise Conflict(notes.endpoint_name_taken(str(name), holder))


def _check_room(org: int, limit: int | None) -> Transaction[None]:
    """Raise Conflict if the organization has `limit` endpoints. Call this after incrementing the routing version, which
    locks out other writers of endpoints."""
    if limit is not None and len((yield execute(_SOME_LIVING, owner=org, limit=limit))) >= limit:
        raise Conflict(notes.too_many_endpoints(limit))


def _lock_endpoint(org: int, endpoint_id: UUID) -> Transaction[tuple[int | None, int, EndpointState | None]]:
    """Lock an endpoint and return its key, version and state, or (None, 0, None) if it does not exist yet."""
    present = yield execute(_LOCK_ENDPOINT, endpoint=endpoint_id)
    if not present:
        return None, 0, None
    key, owner, version, state = present[0]
    if owner != org:
        raise NotFound(f"no endpoint {endpoint_id}")
    return key, version, EndpointState(state)


def endpoint(org_id: UUID, endpoint_id: UUID) -> Transaction[Endpoint]:
    row = yield from execute_one(f"no endpoint {endpoint_id}", _THESE_ENDPOINTS, org=org_id, uids=[endpoint_id])
    return decode_endpoint(row[0])


def get_endpoints(org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> Transaction[list[Endpoint]]:
    statement = _ENDPOINTS_ANYWHERE if org_id is None else _THESE_ENDPOINTS
    rows = yield from execute_in_parts(statement, "uids", endpoint_ids, org=org_id)
    return [decode_endpoint(row[0]) for row in rows]


_STATE = bindparam("state", type_=String())
_LIST = index_scan(
    (_P.org_id == ORG,),
    (_P.uid,),
    select(_P.document),
    (or_(_P.state == _STATE, _STATE.is_(None) & _LIVING),),
)


def list_endpoints(org_id: UUID, query: EndpointFilter, cursor: str | None, limit: int) -> Transaction[Page[Endpoint]]:
    (reached,) = read_cursor(cursor, ID_MAX) or (0,)
    after, until = (UUID(int=reached),), (UUID(int=ID_MAX),)
    found = yield from read_slice(_LIST, after, until, limit, {"org": org_id, "state": query.state})
    return page_of(_LIST, [found], limit, lambda row: decode_endpoint(row[0]))


# -- circuits ----------------------------------------------------------------------------------------------

_CIRCUITS_ANYWHERE = (
    CIRCUIT.add_columns(_P.uid).select_from(circuits).join(endpoints, _P.id == _C.endpoint_id).where(_P.uid.in_(UIDS))
)
_CIRCUITS = _CIRCUITS_ANYWHERE.join(orgs, orgs.c.id == _P.org_id).where(IN_ORG)
_REPLACE_CIRCUIT = update(circuits).where(_C.endpoint_id == bindparam("key")).values(new_parameters(CIRCUIT_FIELDS))
_ADD_CIRCUIT = insert(circuits)
_ADD_CHANGE = insert(circuit_history)
_CHANGES = (
    select(circuit_history.c.at, circuit_history.c.old_state, circuit_history.c.new_state, circuit_history.c.reason)
    .join(endpoints)
    .where(_P.uid == bindparam("endpoint"))
    .order_by(circuit_history.c.version.desc())
    .limit(LIMIT)
)
_CHANGES_OF_ORG = _CHANGES.where(_P.org_id == ORG)
_ALL = 2**31 - 1
_ORG_ID = select(orgs.c.uid).where(orgs.c.id == bindparam("owner"))


def circuit(org_id: UUID | None, endpoint_id: UUID) -> Transaction[Circuit]:
    found = yield from get_circuits(org_id, [endpoint_id])
    return found[0] if found else Circuit(endpoint_id=endpoint_id)


def get_circuits(org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> Transaction[list[Circuit]]:
    statement = _CIRCUITS_ANYWHERE if org_id is None else _CIRCUITS
    rows = yield from execute_in_parts(statement, "uids", endpoint_ids, org=org_id)
    return [circuit_from(row[-1], row) for row in rows]


def put_circuit(new: Circuit, expected_version: int, reason: str) -> Transaction[bool]:
    key, org, *_ = yield from execute_one(f"no endpoint {new.endpoint_id}", _LOCK_ENDPOINT, endpoint=new.endpoint_id)
    old = yield from circuit(None, new.endpoint_id)
    if old.version != expected_version:
        return False
    fields = {name: getattr(new, name) for name in CIRCUIT_FIELDS} | {"version": expected_version + 1}
    if old.version:
        yield execute(_REPLACE_CIRCUIT, key=key, **new_values(fields))
    else:
        yield execute(_ADD_CIRCUIT, endpoint_id=key, org_id=org, **fields)
    if new.state is not old.state:
        change = {"at": new.changed_at, "old_state": old.state, "new_state": new.state, "reason": reason}
        yield execute(_ADD_CHANGE, endpoint_id=key, org_id=org, version=expected_version + 1, **change)
        yield from _add_circuit_incident(org, old, new, reason)
    return True


def _add_circuit_incident(org: int, old: Circuit, new: Circuit, reason: str) -> Transaction[None]:
    if circuit_incident(old.state, new.state) is not None:
        owner = yield execute(_ORG_ID, owner=org)
        yield incident_step(org, circuit_change_incident(old, new, owner[0][0], reason))


_TROUBLED_COUNTS = (
    select(_C.state, func.count()).join(endpoints, _P.id == _C.endpoint_id).where(_TROUBLED, _LIVING).group_by(_C.state)
)
_LIVING_COUNT = select(func.count()).select_from(endpoints).where(_LIVING)
_TROUBLED_COUNTS_OF_ORG = _TROUBLED_COUNTS.where(_C.org_id == ORG)
_LIVING_COUNT_OF_ORG = _LIVING_COUNT.where(_P.org_id == ORG)


def circuit_counts(org_id: UUID | None) -> Transaction[dict[CircuitState, int]]:
    if org_id is not None:
        return (yield from _counted(_TROUBLED_COUNTS_OF_ORG, _LIVING_COUNT_OF_ORG, org=org_id))
    total = yield from _counted(_TROUBLED_COUNTS, _LIVING_COUNT)
    channels = yield from circuit_counts(OPERATIONS_ORG)
    return {state: total[state] - channels[state] for state in CircuitState}


def _counted(troubled: Executable, living: Executable, **of: UUID) -> Transaction[dict[CircuitState, int]]:
    """Count the circuits that are not closed, which are few and have their own index. All other endpoints have a closed
    circuit."""
    rows, total = (yield execute(troubled, **of)), (yield execute(living, **of))
    counts = dict.fromkeys(CircuitState, 0) | {CircuitState(state): number for state, number in rows}
    counts[CircuitState.CLOSED] = total[0][0] - sum(counts.values())
    return counts


def circuit_changes(org_id: UUID | None, query: CircuitHistory) -> Transaction[list[CircuitChange]]:
    statement = _CHANGES if org_id is None else _CHANGES_OF_ORG
    limit = _ALL if query.newest is None else query.newest
    rows = yield execute(statement, org=org_id, endpoint=query.endpoint_id, limit=limit)
    return [CircuitChange(at, CircuitState(old), CircuitState(new), reason) for at, old, new, reason in reversed(rows)]


# -- waiting deliveries ------------------------------------------------------------------------------------

_OWED_AT = case((_E.deliver_at > _E.created_at, _E.deliver_at), else_=_E.created_at)
"""Computes `owed_since` (model/event.py) in SQL."""
_EXAMINED_FIRST = 8


def _first(state: DeliveryState) -> ColumnElement[int]:
    """The earliest `owed_since` among those deliveries of an endpoint that are due first.

    `owed_since` is never before the delivery's `created_at`, which is stored in the delivery's own row. So it is
    usually enough to read the events of the few deliveries that were created first. If these few are scheduled for
    later, the events of all the deliveries are read. For 50 endpoints with 200 deliveries each, reading all events
    every time was slower: 9 ms against 5 ms on SQLite, and 15 ms against 6 ms on PostgreSQL.
    """
    due = _due_first(state)
    few = select(due).order_by(due.c.created_at).limit(_EXAMINED_FIRST).correlate(endpoints).subquery()
    known = func.min(_OWED_AT) <= func.max(few.c.created_at)
    return func.coalesce(_owed(few, case((known, func.min(_OWED_AT)))), _owed(due, func.min(_OWED_AT)))


def _due_first(state: DeliveryState) -> FromClause:
    return (
        select(_D.event_id, _D.created_at)
        .where(_D.endpoint_id == _P.id, _in_state(state))
        .order_by(_D.due_at)
        .limit(WAITING_EXAMINED_MAX)
        .correlate(endpoints)
        .subquery()
    )


def _in_state(state: DeliveryState) -> TextClause:
    """The state is part of the SQL text, because the partial index is not used if the state is a parameter."""
    return text(f"doorstep_deliveries.state = '{state}'")


def _owed(waiting: FromClause, since: ColumnElement[int]) -> ScalarSelect[int]:
    return select(since).where(_E.id == waiting.c.event_id).correlate(endpoints).scalar_subquery()


_OLDEST = (
    select(_P.uid, _first(DeliveryState.PENDING), _first(DeliveryState.IN_PROGRESS))
    .select_from(endpoints)
    .join(orgs, orgs.c.id == _P.org_id)
    .where(IN_ORG, _P.uid.in_(UIDS))
)
_OWN_KEY = select(_P.id).join(orgs, orgs.c.id == _P.org_id).where(IN_ORG, _P.uid == bindparam("endpoint"))
_WAITING = (
    select(_D.created_at)
    .where(_D.endpoint_id == _OWN_KEY.scalar_subquery(), _in_state(DeliveryState.PENDING))
    .order_by(_D.due_at)
    .limit(LIMIT)
    .subquery()
)
_COUNT_WAITING = select(
    func.count(), func.coalesce(func.sum(case((_WAITING.c.created_at < bindparam("created_before"), 1), else_=0)), 0)
).select_from(_WAITING)


def waiting_since(org_id: UUID, endpoint_ids: Sequence[UUID]) -> Transaction[dict[UUID, Instant]]:
    oldest: dict[UUID, Instant] = {}
    for uid, *first in (yield from execute_in_parts(_OLDEST, "uids", endpoint_ids, org=org_id)):
        waiting = [at for at in first if at is not None]
        oldest |= {uid: min(waiting)} if waiting else {}
    return oldest


def count_waiting(org_id: UUID, query: WaitingDeliveries, limit: int) -> Transaction[Count]:
    values = {"org": org_id, "endpoint": query.endpoint_id, "created_before": query.created_before}
    ((examined, older),) = yield execute(_COUNT_WAITING, limit=limit + 1, **values)
    return count_up_to(limit, examined, older)


# -- unhealthy endpoints -----------------------------------------------------------------------------------

_T, _R = counters.c, rollups.c
_SINCE = bindparam("since", type_=BigInteger())
_DISABLED = select(_P.uid).where(_P.org_id == ORG, text(DISABLED)).order_by(_P.uid).limit(LIMIT)
_CIRCUIT_NOT_CLOSED = (
    select(_P.uid)
    .select_from(circuits)
    .join(endpoints, _P.id == _C.endpoint_id)
    .where(_C.org_id == ORG, _TROUBLED, _LIVING)
    .order_by(_C.state.desc(), _P.uid)
    .limit(LIMIT)
)
"""Open circuits come before half-open ones."""
_KEPT = (
    select(_R.endpoint_id, _R.at)
    .join(endpoints, _P.id == _R.endpoint_id)
    .where(_R.org_id == ORG, _R.at >= _SINCE, text(HOURS_WITH_DEAD), _LIVING)
    .order_by(_R.at.desc())
    .limit(bindparam("examined"))
    .subquery("kept")
)
_LATELY = (
    select(_T.endpoint_id, _T.minute - _T.minute % HOUR)
    .join(endpoints, _P.id == _T.endpoint_id)
    .where(_T.org_id == ORG, _T.minute >= _SINCE, _T.dead > 0, _LIVING)
)
_BOTH = union_all(select(_KEPT), _LATELY).subquery("both")
_WITH_DEAD_LETTERS = (
    select(_P.uid)
    .join(_BOTH, _BOTH.c.endpoint_id == _P.id)
    .group_by(_P.uid)
    .order_by(func.max(_BOTH.c.at).desc(), _P.uid)
    .limit(LIMIT)
)


def unhealthy(org_id: UUID, query: UnhealthyEndpoints) -> Transaction[list[UUID]]:
    """An endpoint has at most one roll-up per hour. Reading `hours * limit` roll-ups therefore covers at least `limit`
    endpoints, or all of them if fewer have roll-ups."""
    limit = query.limit
    dead_letters = {"since": query.since, "examined": query.hours * limit}
    found = [
        *(yield execute(_DISABLED, org=org_id, limit=limit)),
        *(yield execute(_CIRCUIT_NOT_CLOSED, org=org_id, limit=limit)),
        *(yield execute(_WITH_DEAD_LETTERS, org=org_id, limit=limit, **dead_letters)),
    ]
    return list(dict.fromkeys(row[0] for row in found))[:limit]
