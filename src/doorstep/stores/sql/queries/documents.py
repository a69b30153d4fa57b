"""Documents: `Store.write`, which stores changes and their audit entry in one transaction, and the queries for workers
and declared pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from sqlalchemy import bindparam, delete, insert, select, text

from doorstep.clock import Instant
from doorstep.errors import DoorstepError
from doorstep.model.action import AuditEntry
from doorstep.model.alert import AlertRule, Channel, ChannelTests, Silence
from doorstep.model.bulk import Bulk
from doorstep.model.claim import WorkerEntry
from doorstep.model.endpoint import Endpoint
from doorstep.model.entity import PipelineDeclaration, PipelineDeclarations
from doorstep.model.listing import KeyChecks, Workers
from doorstep.model.org import ApiKey, KeyCheck, Org
from doorstep.stores.sql.queries.accounts import add_audit, put_key, put_org
from doorstep.stores.sql.queries.alerts import delete_config, put_config
from doorstep.stores.sql.queries.bulk import add_bulk
from doorstep.stores.sql.queries.endpoints import put_endpoint
from doorstep.stores.sql.queries.transaction import LIMIT, Transaction, execute
from doorstep.stores.sql.schema import variables, workers
from doorstep.stores.store import Delete, Put


class VersionConflict(DoorstepError):
    """A document is not at its expected version. The transaction is rolled back."""


def write(changes: Sequence[Put | Delete], entry: AuditEntry | None) -> Transaction[None]:
    # Write endpoints and organizations first, because every transaction locks the routing version before an
    # organization's row.
    for change in sorted(changes, key=lambda change: not isinstance(change.document, Endpoint | Org)):
        if not (yield from _put(change, entry) if isinstance(change, Put) else _delete(change, entry)):
            raise VersionConflict
    if entry is not None:
        yield from add_audit(entry)


def _put(put: Put, entry: AuditEntry | None) -> Transaction[bool]:
    match put.document:
        case Endpoint() as endpoint:
            return (yield from put_endpoint(endpoint, put.expected_version, put.limit))
        case AlertRule() | Silence() | Channel() | ChannelTests() as config:
            assert entry is not None, "the audit entry says when an alert setting changed"
            return (yield from put_config(config, put.expected_version, put.limit, entry.at))
        case Bulk() as bulk:
            return (yield from add_bulk(bulk))
        case Org() as org:
            yield from put_org(org)
        case ApiKey() as key:
            yield from put_key(key)
        case KeyCheck() as check:
            return (yield from put_key_check(check, put.expected_version))
        case WorkerEntry() as worker:
            yield from put_worker(worker)
        case PipelineDeclaration() as declaration:
            yield from put_declaration(declaration)
    return True


def _delete(delete: Delete, entry: AuditEntry | None) -> Transaction[bool]:
    if isinstance(delete.document, WorkerEntry):
        return bool((yield execute(_DELETE, worker=delete.document.name)))
    assert entry is not None, "the audit entry says when an alert setting was removed"
    return (yield from delete_config(delete.document, entry.at))


def scope_of(changes: Sequence[Put | Delete], entry: AuditEntry | None) -> UUID | None:
    """The organization of a write, if the write changes nothing but alert settings and the audit log of one
    organization; None for all other writes."""
    owners = {
        change.document.org_id if isinstance(change.document, AlertRule | Silence | Channel | ChannelTests) else None
        for change in changes
    }
    if entry is not None:
        owners.add(entry.org_id)
    return owners.pop() if len(owners) == 1 else None


def is_heartbeat(changes: Sequence[Put | Delete]) -> bool:
    """Whether the write changes only workers. If a crash undoes such a write, no harm is done."""
    return bool(changes) and all(isinstance(change.document, WorkerEntry) for change in changes)


# -- workers -----------------------------------------------------------------------------------------------

_decode = msgspec.json.Decoder(WorkerEntry).decode

_W = workers.c
_PUT = text(
    "INSERT INTO doorstep_workers (name, seen_at, document) VALUES (:name, :seen_at, :document) "
    "ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, document = excluded.document"
)
_SEEN = (
    select(_W.document).where(_W.seen_at > bindparam("seen_after")).order_by(_W.seen_at.desc(), _W.name).limit(LIMIT)
)
_DELETE = delete(workers).where(_W.name == bindparam("worker")).returning(_W.name)


def put_worker(worker: WorkerEntry) -> Transaction[None]:
    document = msgspec.json.encode(worker).decode()
    yield execute(_PUT, name=worker.name, seen_at=worker.seen_at, document=document)


def workers_seen(_: UUID | None, query: Workers) -> Transaction[list[WorkerEntry]]:
    rows = yield execute(_SEEN, seen_after=query.seen_after, limit=query.limit)
    return [_decode(row[0]) for row in rows]


# -- the check of the secret key ---------------------------------------------------------------------------

_CHECK = "secret_key"
_DELETE_VARIABLE = delete(variables).where(variables.c.name == bindparam("variable"))
_ADD_CHECK = text(
    "INSERT INTO doorstep_variables (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING RETURNING name"
)
_CHECKS = select(variables.c.value).where(variables.c.name == _CHECK)


def put_key_check(check: KeyCheck, expected_version: int | None) -> Transaction[bool]:
    if expected_version is None:
        yield execute(_DELETE_VARIABLE, variable=_CHECK)
    return bool((yield execute(_ADD_CHECK, name=_CHECK, value=check.fingerprint)))


def key_checks(_: UUID | None, __: KeyChecks) -> Transaction[list[KeyCheck]]:
    return [KeyCheck(fingerprint=row[0]) for row in (yield execute(_CHECKS))]


# -- declared pipelines ------------------------------------------------------------------------------------

_PREFIX = "pipeline:"
_V = variables.c
_ADD_DECLARATION = insert(variables)
_DECLARATIONS = select(_V.name, _V.value).where(_V.name.like(f"{_PREFIX}%"))


def put_declaration(declaration: PipelineDeclaration) -> Transaction[None]:
    """The row is deleted and inserted again, because on PostgreSQL, an update of `variables` would wait for every
    accept in progress."""
    name = f"{_PREFIX}{declaration.org_id}:{declaration.pipeline}"
    yield execute(_DELETE_VARIABLE, variable=name)
    yield execute(_ADD_DECLARATION, name=name, value=declaration.declared_at)


def declarations(_: UUID | None, __: PipelineDeclarations) -> Transaction[list[PipelineDeclaration]]:
    return [_declaration(name, value) for name, value in (yield execute(_DECLARATIONS))]


def _declaration(name: str, declared_at: Instant) -> PipelineDeclaration:
    org_id, _, pipeline = name.removeprefix(_PREFIX).partition(":")
    return PipelineDeclaration(org_id=UUID(org_id), pipeline=pipeline, declared_at=declared_at)
