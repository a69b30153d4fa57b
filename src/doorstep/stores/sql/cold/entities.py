"""Entities of pipelines: each write is a step of one, with the events it sends, its history and its audit line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from uuid import UUID

import msgspec
from sqlalchemy import BindParameter, String, bindparam, insert, literal_column, or_, select, text, update

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.act import AuditLine
from doorstep.model.entity import Entity, EntityChange, EntityFilter, Phase
from doorstep.model.listing import Page
from doorstep.model.posting import Posting
from doorstep.stores import cursor as cursors
from doorstep.stores import notes
from doorstep.stores.sql.cold.audit import audit_step
from doorstep.stores.sql.cold.listing.walking import ORG, Walk, page_of, stretch, walk_over
from doorstep.stores.sql.cold.moves import parts
from doorstep.stores.sql.cold.orgs import org_key
from doorstep.stores.sql.cold.outbox import post
from doorstep.stores.sql.cold.script import Row, Script, ask
from doorstep.stores.sql.schema import (
    EXPECTING,
    GIVEN_UP,
    HIDDEN,
    RUNNING,
    deliveries,
    endpoints,
    entities,
    entity_history,
    events,
    outbox,
)
from doorstep.stores.text import check_storable, storable

_E, _H = entities.c, entity_history.c
_PIPELINE: BindParameter[str] = bindparam("pipeline", type_=String())
_OF_PIPELINE = (_E.org_id == ORG, _E.pipeline == _PIPELINE)
_NAMED = (*_OF_PIPELINE, _E.entity_id == bindparam("entity"))

# -- writing -----------------------------------------------------------------------------------------------

_ADD = insert(entities).returning(_E.id)
_KNOWN = select(_E.id).where(*_NAMED)
_WRITTEN = ("status", "phase", "data", "error_reason", "metadata", "event_uid", "changed_at")
_WRITE = (
    update(entities)
    .where(*_NAMED, _E.version == bindparam("expected"))
    .values(version=_E.version + 1, **{name: bindparam(f"new_{name}") for name in _WRITTEN})
    .returning(_E.id)
)
_ADD_CHANGE = insert(entity_history)


def put_entity(
    entity: Entity,
    expected_version: int,
    change: EntityChange | None,
    posted: Sequence[Posting],
    line: AuditLine | None,
) -> Script[bool]:
    check_storable("entity_id", entity.entity_id)
    org = yield from org_key(entity.org_id)
    written = _columns(entity)
    key = yield from (_write(entity, expected_version, written) if expected_version else _add(org, entity, written))
    if key is None:
        return False
    if change is not None:
        yield ask(_ADD_CHANGE, entity_key=key, version=expected_version + 1, org_id=org, **_change_columns(change))
    yield from post(posted)
    if line is not None:
        yield audit_step(org, line)
    return True


def _add(org: int, entity: Entity, written: dict[str, object]) -> Script[int | None]:
    """Two that begin the same one at once collide on its name; the second is run again, and finds it."""
    if (yield ask(_KNOWN, **_name(entity.org_id, entity.pipeline, entity.entity_id))):
        return None
    rows = yield ask(
        _ADD,
        org_id=org,
        pipeline=entity.pipeline,
        entity_id=entity.entity_id,
        created_at=entity.created_at,
        version=1,
        **written,
    )
    return int(rows[0][0])


def _write(entity: Entity, expected_version: int, written: dict[str, object]) -> Script[int | None]:
    new = {f"new_{name}": value for name, value in written.items()}
    name = _name(entity.org_id, entity.pipeline, entity.entity_id)
    rows = yield ask(_WRITE, expected=expected_version, **name, **new)
    return int(rows[0][0]) if rows else None


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

_ENTITY = select(
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
_ONE = _ENTITY.where(*_NAMED)
_HISTORY = (
    select(_H.at, _H.old_status, _H.new_status, _H.reason, _H.event_uid)
    .where(_H.entity_key == bindparam("key"))
    .order_by(_H.version)
)


def entity(org_id: UUID, pipeline: str, entity_id: str) -> Script[Entity]:
    rows = yield ask(_ONE, **_name(org_id, pipeline, entity_id))
    if not rows:
        raise NotFound(notes.no_entity(pipeline, entity_id))
    return _entity_from(org_id, rows[0])


def history(org_id: UUID, pipeline: str, entity_id: str) -> Script[list[EntityChange]]:
    found = yield ask(_KNOWN, **_name(org_id, pipeline, entity_id))
    if not found:
        raise NotFound(notes.no_entity(pipeline, entity_id))
    return [EntityChange(*row) for row in (yield ask(_HISTORY, key=found[0][0]))]


def _name(org_id: UUID, pipeline: str, entity_id: str) -> dict[str, object]:
    return {"org": org_id, "pipeline": storable(pipeline), "entity": storable(entity_id)}


def _entity_from(org_id: UUID, row: Row) -> Entity:
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


# -- lists -------------------------------------------------------------------------------------------------

_STATUS: BindParameter[str] = bindparam("status", type_=String())
_IS_ARCHIVED = or_(
    _E.phase == literal_column("'archived'"),
    (_E.phase == literal_column("'dead'")) & (_E.changed_at < bindparam("archived_before")),
)


def _walk(of_status: bool, archived: bool | None) -> Walk:
    """The list of all entities or of one status, with or without those that are archived."""
    index = (_E.status == _STATUS,) if of_status else (text(HIDDEN),) if archived else ()
    matching = () if archived is None else (_IS_ARCHIVED,) if archived else (~_IS_ARCHIVED,)
    return walk_over((*_OF_PIPELINE, *index), (_E.id,), _ENTITY, matching, newest_first=True)


_WALKS = {choice: _walk(*choice) for choice in product((False, True), (None, False))} | {
    (False, True): _walk(False, True)
}
"""By whether a status is asked for, and which of the archived ones."""


def list_entities(org_id: UUID, wanted: EntityFilter, cursor: str | None, limit: int) -> Script[Page[Entity]]:
    check_storable("status", wanted.status)
    after = cursors.read(cursor, cursors.KEY_MAX) or (cursors.KEY_MAX,)
    walk = _WALKS[wanted.status is not None, wanted.archived]
    values: dict[str, object] = {"org": org_id, "pipeline": storable(wanted.pipeline)}
    if wanted.status is not None:
        values["status"] = wanted.status
    filtered = wanted.archived is not None
    found = yield from stretch(
        walk, after, (0,), limit, values | {"archived_before": wanted.archived_before}, filtered=filtered
    )
    return page_of(walk, [found], limit, lambda row: _entity_from(org_id, row))


# -- what the keeper looks for -----------------------------------------------------------------------------

_KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)
_TARGETS: BindParameter[list[int]] = bindparam("targets", expanding=True)
_UIDS: BindParameter[list[UUID]] = bindparam("uids", expanding=True)
_WINDOW = (
    select(_E.id, _E.event_uid)
    .where(*_OF_PIPELINE, text(RUNNING), _E.id > bindparam("after"))
    .order_by(_E.id)
    .limit(bindparam("most"))
)
_EVENTS = select(events.c.id, events.c.uid).where(events.c.org_id == ORG, events.c.uid.in_(_UIDS))
_OWED = select(deliveries.c.event_id).where(
    deliveries.c.event_id.in_(_KEYS), deliveries.c.due_at.is_not(None), deliveries.c.endpoint_id.in_(_TARGETS)
)
_TARGET_KEYS = select(endpoints.c.id).where(endpoints.c.uid.in_(_UIDS))
_POSTED = select(outbox.c.uid).where(outbox.c.uid.in_(_UIDS), outbox.c.refused_at.is_(None))
_ADRIFT = _ENTITY.where(_E.id.in_(_KEYS), text(RUNNING)).order_by(_E.id)
_EXPECTED = _ENTITY.where(*_OF_PIPELINE, text(EXPECTING), _E.event_uid.in_(bindparam("uids", expanding=True))).order_by(
    _E.id
)
_UNTOUCHED = (
    _ENTITY.where(*_OF_PIPELINE, text(GIVEN_UP), _E.changed_at < bindparam("before"))
    .order_by(_E.changed_at, _E.id)
    .limit(bindparam("most"))
)


def adrift(
    org_id: UUID, pipeline: str, endpoint_ids: Sequence[UUID], cursor: str | None, limit: int
) -> Script[Page[Entity]]:
    """One list of ids after the other: where statistics are missing, PostgreSQL made of all of it in one statement a
    walk through every delivery there is."""
    (after,) = cursors.read(cursor, cursors.KEY_MAX) or (0,)
    window = yield ask(_WINDOW, org=org_id, pipeline=pipeline, after=after, most=limit)
    found: list[Entity] = []
    for part in parts(window):
        carried = yield from _carried(org_id, [uid for _, uid in part if uid is not None], endpoint_ids)
        left = [key for key, uid in part if uid not in carried]
        rows = (yield ask(_ADRIFT, keys=left)) if left else []
        found += [_entity_from(org_id, row) for row in rows]
    return Page(tuple(found), cursors.write(window[-1][0]) if len(window) == limit else None)


def _carried(org_id: UUID, event_ids: Sequence[UUID], endpoint_ids: Sequence[UUID]) -> Script[set[UUID]]:
    """Those of the events that wait in the outbox, or that one of the endpoints still has to do.

    An event that is being forwarded is in both places for a moment, and never in neither.
    """
    if not event_ids:
        return set()
    posted = {row[0] for row in (yield ask(_POSTED, uids=event_ids))}
    accepted: dict[int, UUID] = dict((yield ask(_EVENTS, org=org_id, uids=event_ids)))
    targets = [row[0] for row in (yield ask(_TARGET_KEYS, uids=endpoint_ids))] if endpoint_ids else []
    if not accepted or not targets:
        return posted
    owed = yield ask(_OWED, keys=list(accepted), targets=targets)
    return posted | {accepted[row[0]] for row in owed}


def expecting(org_id: UUID, pipeline: str, event_ids: Sequence[UUID]) -> Script[list[Entity]]:
    found: list[Entity] = []
    for part in parts(list(event_ids)):
        rows = yield ask(_EXPECTED, org=org_id, pipeline=pipeline, uids=part)
        found += [_entity_from(org_id, row) for row in rows]
    return found


def untouched(org_id: UUID, pipeline: str, dead_before: Instant, limit: int) -> Script[list[Entity]]:
    rows = yield ask(_UNTOUCHED, org=org_id, pipeline=pipeline, before=dead_before, most=limit)
    return [_entity_from(org_id, row) for row in rows]
