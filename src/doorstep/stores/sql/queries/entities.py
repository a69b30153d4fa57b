"""Entities of pipelines: each write is a step of one, with the events it sends, its history and its audit line."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from sqlalchemy import BindParameter, String, bindparam, delete, insert, select, update

from doorstep.errors import NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.claim import Moved
from doorstep.model.entity import Entity, EntityChange, Phase
from doorstep.model.outbox import OutboxMessage
from doorstep.stores import notes
from doorstep.stores.sql.queries.audit import write_line
from doorstep.stores.sql.queries.event_deletion import delete_event
from doorstep.stores.sql.queries.orgs import org_key
from doorstep.stores.sql.queries.outbox import post
from doorstep.stores.sql.queries.paging import ORG
from doorstep.stores.sql.queries.transaction import Row, Transaction, execute
from doorstep.stores.sql.schema import entities, entity_history
from doorstep.stores.text import check_storable, storable

_E, _H = entities.c, entity_history.c
_PIPELINE: BindParameter[str] = bindparam("pipeline", type_=String())
OF_PIPELINE = (_E.org_id == ORG, _E.pipeline == _PIPELINE)
_NAMED = (*OF_PIPELINE, _E.entity_id == bindparam("entity"))

# -- writing -----------------------------------------------------------------------------------------------

_SAME = (*_NAMED, _E.created_at == bindparam("made_at"))
"""Not a later one with its name: that of an entity that was deleted may be given again, and its versions begin anew."""
_ADD = insert(entities).returning(_E.id)
_KNOWN = select(_E.id).where(*_NAMED)
_WRITTEN = ("status", "phase", "data", "error_reason", "metadata", "event_uid", "changed_at")
_WRITE = (
    update(entities)
    .where(*_SAME, _E.version == bindparam("expected"))
    .values(version=_E.version + 1, **{name: bindparam(f"new_{name}") for name in _WRITTEN})
    .returning(_E.id)
)
_ADD_CHANGE = insert(entity_history)


def put_entity(
    entity: Entity,
    expected_version: int,
    change: EntityChange | None,
    posted: Sequence[OutboxMessage],
    line: AuditEntry | None,
) -> Transaction[bool]:
    check_storable("entity_id", entity.entity_id)
    org = yield from org_key(entity.org_id)
    written = _columns(entity)
    key = yield from (_write(entity, expected_version, written) if expected_version else _add(org, entity, written))
    if key is None:
        return False
    if change is not None:
        yield execute(_ADD_CHANGE, entity_key=key, version=expected_version + 1, org_id=org, **_change_columns(change))
    yield from post(posted)
    if line is not None:
        yield from write_line(org, line)
    return True


def _add(org: int, entity: Entity, written: dict[str, object]) -> Transaction[int | None]:
    """Two that begin the same one at once collide on its name; the second is run again, and finds it."""
    if (yield execute(_KNOWN, **_name(entity.org_id, entity.pipeline, entity.entity_id))):
        return None
    rows = yield execute(
        _ADD,
        org_id=org,
        pipeline=entity.pipeline,
        entity_id=entity.entity_id,
        created_at=entity.created_at,
        version=1,
        **written,
    )
    return int(rows[0][0])


def _write(entity: Entity, expected_version: int, written: dict[str, object]) -> Transaction[int | None]:
    new = {f"new_{name}": value for name, value in written.items()}
    name = _name(entity.org_id, entity.pipeline, entity.entity_id)
    rows = yield execute(_WRITE, expected=expected_version, made_at=entity.created_at, **name, **new)
    return int(rows[0][0]) if rows else None


_DELETE = delete(entities).where(*_SAME, _E.version == bindparam("expected")).returning(_E.id)
FORGET = delete(entity_history).where(_H.entity_key.in_(bindparam("keys", expanding=True)))


def delete_entity(entity: Entity, line: AuditEntry, arrival: UUID | None) -> Transaction[Moved | None]:
    org = yield from org_key(entity.org_id)
    name = _name(entity.org_id, entity.pipeline, entity.entity_id)
    rows = yield execute(_DELETE, expected=entity.version, made_at=entity.created_at, **name)
    if not rows:
        return None
    yield execute(FORGET, keys=[rows[0][0]])
    moved = yield from _erase_arrival(entity.org_id, arrival, line)
    yield from write_line(org, line)
    return moved


def _erase_arrival(org_id: UUID, event_id: UUID | None, line: AuditEntry) -> Transaction[Moved]:
    if event_id is None:
        return Moved()
    try:
        return (yield from delete_event(org_id, event_id, line.actor, line.at))
    except NotFound:  # deleted before, or cleaned away
        return Moved()


def _columns(entity: Entity) -> dict[str, object]:
    return {
        "status": entity.status,
        "phase": entity.phase.value,
        "data": msgspec.json.encode(entity.data).decode(),
        "error_reason": None if entity.error_reason is None else storable(entity.error_reason),
        "metadata": msgspec.json.encode(entity.metadata).decode(),
        "event_uid": entity.event_id,
        "changed_at": entity.changed_at,
    }


def _change_columns(change: EntityChange) -> dict[str, object]:
    return {
        "at": change.at,
        "old_status": change.old_status,
        "new_status": change.new_status,
        "reason": storable(change.reason),
        "event_uid": change.event_id,
    }


# -- reading -----------------------------------------------------------------------------------------------

ENTITY = select(
    _E.entity_id,
    _E.pipeline,
    _E.status,
    _E.phase,
    _E.data,
    _E.error_reason,
    _E.metadata,
    _E.event_uid,
    _E.created_at,
    _E.changed_at,
    _E.version,
)
_ONE = ENTITY.where(*_NAMED)
_HISTORY = (
    select(_H.at, _H.old_status, _H.new_status, _H.reason, _H.event_uid)
    .where(_H.entity_key == bindparam("key"))
    .order_by(_H.version)
)


def entity(org_id: UUID, pipeline: str, entity_id: str) -> Transaction[Entity]:
    rows = yield execute(_ONE, **_name(org_id, pipeline, entity_id))
    if not rows:
        raise NotFound(notes.no_entity(pipeline, entity_id))
    return entity_from(org_id, rows[0])


def history(org_id: UUID, pipeline: str, entity_id: str) -> Transaction[list[EntityChange]]:
    found = yield execute(_KNOWN, **_name(org_id, pipeline, entity_id))
    if not found:
        raise NotFound(notes.no_entity(pipeline, entity_id))
    return [EntityChange(*row) for row in (yield execute(_HISTORY, key=found[0][0]))]


def _name(org_id: UUID, pipeline: str, entity_id: str) -> dict[str, object]:
    return {"org": org_id, "pipeline": storable(pipeline), "entity": storable(entity_id)}


def entity_from(org_id: UUID, row: Row) -> Entity:
    return Entity(
        entity_id=row[0],
        org_id=org_id,
        pipeline=row[1],
        status=row[2],
        phase=Phase(row[3]),
        data=msgspec.json.decode(row[4]),
        error_reason=row[5],
        metadata=msgspec.json.decode(row[6]),
        event_id=row[7],
        created_at=row[8],
        changed_at=row[9],
        version=row[10],
    )
