"""Who sends and who receives: organizations, keys, endpoints and their circuits."""

from __future__ import annotations

from uuid import UUID

import msgspec
from sqlalchemy import bindparam, insert, select, update

from doorstep.errors import NotFound
from doorstep.model.circuit import Circuit, CircuitChange, CircuitState
from doorstep.model.endpoint import Endpoint, EndpointState, Routing
from doorstep.model.org import ApiKey, Org
from doorstep.stores.sql.cold.rows import (
    API_KEY,
    CIRCUIT,
    IN_ORG,
    api_key_from,
    circuit_from,
    decode_endpoint,
    decode_org,
)
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import circuit_history, circuits, endpoints, keys, marks, orgs

# -- organizations and keys --------------------------------------------------------------------------------

ORG_KEY = select(orgs.c.id).where(IN_ORG)
_ORGS = select(orgs.c.document).order_by(orgs.c.id)
_REPLACE_ORG = update(orgs).where(IN_ORG).values(document=bindparam("new_document")).returning(orgs.c.id)
_ADD_ORG = insert(orgs)
_REPLACE_KEY = (
    update(keys)
    .where(keys.c.uid == bindparam("key"))
    .values({name: bindparam(f"new_{name}") for name in ("org_id", "name", "role", "prefix", "digest")})
    .values({name: bindparam(f"new_{name}") for name in ("created_at", "expires_at", "revoked_at")})
    .returning(keys.c.id)
)
_ADD_KEY = insert(keys)
_KEY = API_KEY.where(keys.c.digest == bindparam("digest"))
_KEYS = API_KEY.where(IN_ORG).order_by(keys.c.id)


def org_key(org_id: UUID) -> Script[int]:
    """The integer that names an organization inside; NotFound for an unknown one."""
    rows = yield ask(ORG_KEY, org=org_id)
    if not rows:
        raise NotFound(f"no organization {org_id}")
    return int(rows[0][0])


def put_org(org: Org) -> Script[None]:
    document = msgspec.json.encode(org).decode()
    if (yield ask(_REPLACE_ORG, org=org.org_id, new_document=document)):
        yield ask(_BUMP_VERSION)
    else:
        yield ask(_ADD_ORG, uid=org.org_id, document=document)


def all_orgs() -> Script[list[Org]]:
    return [decode_org(row[0]) for row in (yield ask(_ORGS))]


def put_key(key: ApiKey) -> Script[None]:
    fields = {
        "org_id": (yield from org_key(key.org_id)),
        "name": key.name,
        "role": key.role,
        "prefix": key.prefix,
        "digest": key.digest,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }
    if not (yield ask(_REPLACE_KEY, key=key.key_id, **{f"new_{name}": value for name, value in fields.items()})):
        yield ask(_ADD_KEY, uid=key.key_id, **fields)


def keys_of(org_id: UUID) -> Script[list[ApiKey]]:
    return [api_key_from(row) for row in (yield ask(_KEYS, org=org_id))]


def find_key(digest: bytes) -> Script[ApiKey | None]:
    rows = yield ask(_KEY, digest=digest)
    return api_key_from(rows[0]) if rows else None


# -- endpoints ---------------------------------------------------------------------------------------------

_VERSION = select(marks.c.value).where(marks.c.name == "routing")
_BUMP_VERSION = update(marks).where(marks.c.name == "routing").values(value=marks.c.value + 1)
_LIVE_ENDPOINTS = (
    select(endpoints.c.document).where(endpoints.c.state != EndpointState.DELETED.value).order_by(endpoints.c.id)
)
_ENDPOINT = select(endpoints.c.document).join(orgs).where(IN_ORG, endpoints.c.uid == bindparam("endpoint"))
_LOCK_ENDPOINT = (
    select(endpoints.c.id, endpoints.c.org_id).where(endpoints.c.uid == bindparam("endpoint")).with_for_update()
)
_REPLACE_ENDPOINT = (
    update(endpoints)
    .where(endpoints.c.id == bindparam("key"))
    .values(state=bindparam("new_state"), document=bindparam("new_document"))
)
_ADD_ENDPOINT = insert(endpoints)


def routing() -> Script[Routing]:
    version = yield from routing_version()
    rows = yield ask(_LIVE_ENDPOINTS)
    return Routing(version, tuple(decode_endpoint(row[0]) for row in rows))


def routing_version() -> Script[int]:
    rows = yield ask(_VERSION)
    return int(rows[0][0])


def put_endpoint(endpoint: Endpoint) -> Script[None]:
    # The version first: its row is the lock that keeps two writers of endpoints, and every accept, apart.
    yield ask(_BUMP_VERSION)
    org = yield from org_key(endpoint.org_id)
    present = yield ask(_LOCK_ENDPOINT, endpoint=endpoint.endpoint_id)
    document = msgspec.json.encode(endpoint).decode()
    if not present:
        yield ask(_ADD_ENDPOINT, uid=endpoint.endpoint_id, org_id=org, state=endpoint.state, document=document)
    elif present[0][1] != org:
        raise NotFound(f"no endpoint {endpoint.endpoint_id}")
    else:
        yield ask(_REPLACE_ENDPOINT, key=present[0][0], new_state=endpoint.state, new_document=document)


def endpoint(org_id: UUID, endpoint_id: UUID) -> Script[Endpoint]:
    rows = yield ask(_ENDPOINT, org=org_id, endpoint=endpoint_id)
    if not rows:
        raise NotFound(f"no endpoint {endpoint_id}")
    return decode_endpoint(rows[0][0])


# -- circuits ----------------------------------------------------------------------------------------------

_OF_ENDPOINT = endpoints.c.uid == bindparam("endpoint")
_CIRCUIT = CIRCUIT.join(endpoints).where(_OF_ENDPOINT)
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
    .order_by(circuit_history.c.version)
)


def circuit(endpoint_id: UUID) -> Script[Circuit]:
    rows = yield ask(_CIRCUIT, endpoint=endpoint_id)
    return circuit_from(endpoint_id, rows[0]) if rows else Circuit(endpoint_id=endpoint_id)


def put_circuit(new: Circuit, expected_version: int, reason: str) -> Script[bool]:
    locked = yield ask(_LOCK_ENDPOINT, endpoint=new.endpoint_id)
    if not locked:
        raise NotFound(f"no endpoint {new.endpoint_id}")
    key, org = locked[0]
    old = yield from circuit(new.endpoint_id)
    if old.version != expected_version:
        return False
    fields = {name: getattr(new, name) for name in _CIRCUIT_FIELDS} | {"version": expected_version + 1}
    if old.version:
        yield ask(_REPLACE_CIRCUIT, key=key, **{f"new_{name}": value for name, value in fields.items()})
    else:
        yield ask(_ADD_CIRCUIT, endpoint_id=key, org_id=org, **fields)
    if new.state is not old.state:
        change = {"at": new.changed_at, "old_state": old.state, "new_state": new.state, "reason": reason}
        yield ask(_ADD_CHANGE, endpoint_id=key, org_id=org, version=expected_version + 1, **change)
    return True


def circuit_changes(endpoint_id: UUID) -> Script[list[CircuitChange]]:
    rows = yield ask(_CHANGES, endpoint=endpoint_id)
    return [CircuitChange(at, CircuitState(old), CircuitState(new), reason) for at, old, new, reason in rows]
