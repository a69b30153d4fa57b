"""Endpoints and their circuits."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from sqlalchemy import Executable, String, bindparam, func, insert, literal_column, or_, select, update

from doorstep.errors import Conflict, NotFound
from doorstep.model.alert import OPERATIONS_ORG, circuit_incident
from doorstep.model.endpoint import Circuit, CircuitChange, CircuitState, Endpoint, EndpointState, Routing
from doorstep.model.listing import CircuitHistory, EndpointFilter, Page
from doorstep.stores import cursor as cursors
from doorstep.stores import notes
from doorstep.stores.incidents import circuit_change_incident, endpoint_change_incident
from doorstep.stores.sql.queries.accounts import BUMP_VERSION
from doorstep.stores.sql.queries.alerts import incident_step
from doorstep.stores.sql.queries.paging import ORG, index_scan, page_of, read_slice
from doorstep.stores.sql.queries.rows import CIRCUIT, IN_ORG, circuit_from, decode_endpoint, org_key
from doorstep.stores.sql.queries.transaction import Transaction, execute, parts
from doorstep.stores.sql.schema import circuit_history, circuits, endpoints, orgs, variables

# -- endpoints ---------------------------------------------------------------------------------------------

_VERSION = select(variables.c.value).where(variables.c.name == "routing")
_LIVE_ENDPOINTS = (
    select(endpoints.c.document).where(endpoints.c.state != EndpointState.DELETED.value).order_by(endpoints.c.id)
)
_ENDPOINT = select(endpoints.c.document).join(orgs).where(IN_ORG, endpoints.c.uid == bindparam("endpoint"))
_THESE_ENDPOINTS = (
    select(endpoints.c.document).join(orgs).where(IN_ORG, endpoints.c.uid.in_(bindparam("uids", expanding=True)))
)
_LOCK_ENDPOINT = (
    select(endpoints.c.id, endpoints.c.org_id, endpoints.c.version, endpoints.c.state)
    .where(endpoints.c.uid == bindparam("endpoint"))
    .with_for_update()
)
_REPLACE_ENDPOINT = (
    update(endpoints)
    .where(endpoints.c.id == bindparam("key"))
    .values({name: bindparam(f"new_{name}") for name in ("state", "version", "document")})
)
_ADD_ENDPOINT = insert(endpoints)
_SOME_LIVING = (
    select(endpoints.c.id)
    .where(endpoints.c.org_id == bindparam("owner"), endpoints.c.state != EndpointState.DELETED.value)
    .limit(bindparam("limit"))
)


def routing(known_version: int | None) -> Transaction[Routing | None]:
    ((version,),) = yield execute(_VERSION)
    if version == known_version:
        return None
    rows = yield execute(_LIVE_ENDPOINTS)
    return Routing(version, tuple(decode_endpoint(row[0]) for row in rows))


def put_endpoint(endpoint: Endpoint, expected_version: int | None, limit: int | None) -> Transaction[bool]:
    org = yield from org_key(endpoint.org_id)
    key, version, state = yield from _lock_endpoint(org, endpoint.endpoint_id)
    if version != expected_version:
        return False
    yield execute(BUMP_VERSION)
    new = msgspec.structs.replace(endpoint, version=version + 1)
    fields = {"state": new.state, "version": new.version, "document": msgspec.json.encode(new).decode()}
    if key is None:
        yield from _check_room(org, limit)
        yield execute(_ADD_ENDPOINT, uid=new.endpoint_id, org_id=org, **fields)
    else:
        yield execute(_REPLACE_ENDPOINT, key=key, **{f"new_{name}": value for name, value in fields.items()})
    yield incident_step(org, endpoint_change_incident(state, new))
    return True


def _check_room(org: int, limit: int | None) -> Transaction[None]:
    """Conflict if the organization has `limit` endpoints. Call this after incrementing the routing version, which locks
    out other writers of endpoints."""
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
    rows = yield execute(_ENDPOINT, org=org_id, endpoint=endpoint_id)
    if not rows:
        raise NotFound(f"no endpoint {endpoint_id}")
    return decode_endpoint(rows[0][0])


def get_endpoints(org_id: UUID, endpoint_ids: Sequence[UUID]) -> Transaction[list[Endpoint]]:
    found: list[Endpoint] = []
    for part in parts(list(dict.fromkeys(endpoint_ids))):
        found += [decode_endpoint(row[0]) for row in (yield execute(_THESE_ENDPOINTS, org=org_id, uids=part))]
    return found


# -- circuits ----------------------------------------------------------------------------------------------

_OF_ENDPOINT = endpoints.c.uid == bindparam("endpoint")
_OF_ORG = endpoints.c.org_id == select(orgs.c.id).where(IN_ORG).scalar_subquery()
_CIRCUIT = CIRCUIT.join(endpoints).where(_OF_ENDPOINT)
_CIRCUIT_OF_ORG = _CIRCUIT.where(_OF_ORG)
_CIRCUIT_FIELDS = ("state", "failures", "failing_since", "changed_at", "until", "version")
_REPLACE_CIRCUIT = (
    update(circuits)
    .where(circuits.c.endpoint_id == bindparam("key"))
    .values({name: bindparam(f"new_{name}") for name in _CIRCUIT_FIELDS})
)
_ADD_CIRCUIT = insert(circuits)
_ADD_CHANGE = insert(circuit_history)
_CHANGES = (
    select(circuit_history.c.at, circuit_history.c.old_state, circuit_history.c.new_state, circuit_history.c.reason)
    .join(endpoints)
    .where(_OF_ENDPOINT)
    .order_by(circuit_history.c.version.desc())
    .limit(bindparam("limit"))
)
_CHANGES_OF_ORG = _CHANGES.where(_OF_ORG)
_ALL = 2**31 - 1


_ORG_ID = select(orgs.c.uid).where(orgs.c.id == bindparam("owner"))


def circuit(org_id: UUID | None, endpoint_id: UUID) -> Transaction[Circuit]:
    statement = _CIRCUIT if org_id is None else _CIRCUIT_OF_ORG
    rows = yield execute(statement, org=org_id, endpoint=endpoint_id)
    return circuit_from(endpoint_id, rows[0]) if rows else Circuit(endpoint_id=endpoint_id)


def put_circuit(new: Circuit, expected_version: int, reason: str) -> Transaction[bool]:
    locked = yield execute(_LOCK_ENDPOINT, endpoint=new.endpoint_id)
    if not locked:
        raise NotFound(f"no endpoint {new.endpoint_id}")
    key, org, *_ = locked[0]
    old = yield from circuit(None, new.endpoint_id)
    if old.version != expected_version:
        return False
    fields = {name: getattr(new, name) for name in _CIRCUIT_FIELDS} | {"version": expected_version + 1}
    if old.version:
        yield execute(_REPLACE_CIRCUIT, key=key, **{f"new_{name}": value for name, value in fields.items()})
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
    select(circuits.c.state, func.count())
    .join(endpoints, endpoints.c.id == circuits.c.endpoint_id)
    .where(
        or_(circuits.c.state == literal_column("'open'"), circuits.c.state == literal_column("'half_open'")),
        endpoints.c.state != literal_column("'deleted'"),
    )
    .group_by(circuits.c.state)
)
"""Exactly the conditions TROUBLED and LIVING: with parameters, their partial indexes would not be used."""
_LIVING_COUNT = select(func.count()).select_from(endpoints).where(endpoints.c.state != literal_column("'deleted'"))
_CIRCUIT_IN_ORG = circuits.c.org_id == select(orgs.c.id).where(IN_ORG).scalar_subquery()
_TROUBLED_COUNTS_OF_ORG, _LIVING_COUNT_OF_ORG = _TROUBLED_COUNTS.where(_CIRCUIT_IN_ORG), _LIVING_COUNT.where(_OF_ORG)


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


_STATE = bindparam("state", type_=String())
_LIVING = endpoints.c.state != literal_column(f"'{EndpointState.DELETED}'")
_LIST = index_scan(
    (endpoints.c.org_id == ORG,),
    (endpoints.c.uid,),
    select(endpoints.c.document),
    (or_(endpoints.c.state == _STATE, _STATE.is_(None) & _LIVING),),
)


def list_endpoints(org_id: UUID, query: EndpointFilter, cursor: str | None, limit: int) -> Transaction[Page[Endpoint]]:
    (reached,) = cursors.read(cursor, cursors.ID_MAX) or (0,)
    after, until = (UUID(int=reached),), (UUID(int=cursors.ID_MAX),)
    found = yield from read_slice(_LIST, after, until, limit, {"org": org_id, "state": query.state})
    return page_of(_LIST, [found], limit, lambda row: decode_endpoint(row[0]))
