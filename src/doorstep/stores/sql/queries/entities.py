"""Entities of pipelines. Each write stores one step of an entity, together with its outbox messages, history entry and
audit entry."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product
from uuid import UUID

import msgspec
from sqlalchemy import (
    BindParameter,
    String,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    true,
    update,
)

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.claim import Moved
from doorstep.model.entity import (
    AwaitingEntities,
    Entity,
    EntityChange,
    EntityFilter,
    EntityHistory,
    EntityStatuses,
    OrphanedEntities,
    Phase,
    StaleEntities,
)
from doorstep.model.listing import Count, Page
from doorstep.model.outbox import OutboxMessage
from doorstep.stores import notes
from doorstep.stores.limits import KEY_MAX, check_storable, read_cursor, storable, write_cursor
from doorstep.stores.sql.queries.accounts import write_entry
from doorstep.stores.sql.queries.events import delete_event
from doorstep.stores.sql.queries.outbox import post
from doorstep.stores.sql.queries.paging import (
    ORG,
    Condition,
    IndexScan,
    Statement,
    count_up_to,
    index_scan,
    page_of,
    read_slice,
)
from doorstep.stores.sql.queries.rows import columns_of, fields_from, org_key
from doorstep.stores.sql.queries.transaction import (
    KEYS,
    LIMIT,
    UIDS,
    Row,
    Transaction,
    execute,
    execute_in_parts,
    execute_one,
    new_parameters,
    new_values,
)
from doorstep.stores.sql.schema import (
    AWAITING,
    FAILED_ENTITY,
    HIDDEN,
    RUNNING,
    deliveries,
    endpoints,
    entities,
    entity_history,
    events,
    outbox,
)

_E, _H = entities.c, entity_history.c
_PIPELINE: BindParameter[str] = bindparam("pipeline", type_=String())
OF_PIPELINE = (_E.org_id == ORG, _E.pipeline == _PIPELINE)
_NAMED = (*OF_PIPELINE, _E.entity_id == bindparam("entity"))

# -- writing -----------------------------------------------------------------------------------------------

_SAME = (*_NAMED, _E.created_at == bindparam("made_at"))
"""Selects the same entity, not a later entity with the same name. The name of a deleted entity can be reused; the
versions of the new entity start again at 1."""
_ADD = insert(entities).returning(_E.id)
_KNOWN = select(_E.id).where(*_NAMED)
_WRITTEN = ("status", "phase", "data", "error_reason", "metadata", "event_uid", "changed_at")
_WRITE = (
    update(entities)
    .where(*_SAME, _E.version == bindparam("expected"))
    .values(version=_E.version + 1, **new_parameters(_WRITTEN))
    .returning(_E.id)
)
_ADD_CHANGE = insert(entity_history)


def put_entity(
    entity: Entity,
    expected_version: int,
    change: EntityChange | None,
    messages: Sequence[OutboxMessage],
    entry: AuditEntry | None,
) -> Transaction[bool]:
    check_storable("entity_id", entity.entity_id)
    org = yield from org_key(entity.org_id)
    written = _columns(entity)
    key = yield from (_write(entity, expected_version, written) if expected_version else _add(org, entity, written))
    if key is None:
        return False
    if change is not None:
        yield execute(
            _ADD_CHANGE,
            entity_key=key,
            version=expected_version + 1,
            org_id=org,
            at=change.at,
            old_status=change.old_status,
            new_status=change.new_status,
            reason=storable(change.reason),
            event_uid=change.event_id,
        )
    yield from post(messages)
    if entry is not None:
        yield from write_entry(org, entry)
    return True


def _add(org: int, entity: Entity, written: dict[str, object]) -> Transaction[int | None]:
    """Returns the key of the new entity, or None if the entity exists already. If two processes create the same entity
    at the same time, the unique index on its name rejects the second. Its transaction is retried and then finds the
    entity."""
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
    name = _name(entity.org_id, entity.pipeline, entity.entity_id)
    values = new_values(written)
    rows = yield execute(_WRITE, expected=expected_version, made_at=entity.created_at, **name, **values)
    return int(rows[0][0]) if rows else None


_DELETE = delete(entities).where(*_SAME, _E.version == bindparam("expected")).returning(_E.id)
DELETE_HISTORY = delete(entity_history).where(_H.entity_key.in_(KEYS))


def delete_entity(entity: Entity, entry: AuditEntry, arrival: UUID | None) -> Transaction[Moved | None]:
    org = yield from org_key(entity.org_id)
    name = _name(entity.org_id, entity.pipeline, entity.entity_id)
    rows = yield execute(_DELETE, expected=entity.version, made_at=entity.created_at, **name)
    if not rows:
        return None
    yield execute(DELETE_HISTORY, keys=[rows[0][0]])
    moved = yield from _erase_arrival(entity.org_id, arrival, entry)
    yield from write_entry(org, entry)
    return moved


def _erase_arrival(org_id: UUID, event_id: UUID | None, entry: AuditEntry) -> Transaction[Moved]:
    if event_id is None:
        return Moved()
    try:
        return (yield from delete_event(org_id, event_id, entry.actor, entry.at))
    except NotFound:  # already deleted, or removed by retention
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


# -- reading -----------------------------------------------------------------------------------------------

_FIELDS = columns_of(Entity, entities, "org_id", event_id=_E.event_uid)
ENTITY = select(*_FIELDS.values())
_ONE = ENTITY.where(*_NAMED)
_HISTORY = (
    select(_H.at, _H.old_status, _H.new_status, _H.reason, _H.event_uid)
    .where(_H.entity_key == bindparam("key"))
    .order_by(_H.version)
)


def entity(org_id: UUID, key: tuple[str, str]) -> Transaction[Entity]:
    pipeline, entity_id = key
    name = _name(org_id, pipeline, entity_id)
    return entity_from(org_id, (yield from execute_one(notes.no_entity(pipeline, entity_id), _ONE, **name)))


def history_of(org_id: UUID, query: EntityHistory) -> Transaction[list[EntityChange]]:
    name = _name(org_id, query.pipeline, query.entity_id)
    (key,) = yield from execute_one(notes.no_entity(query.pipeline, query.entity_id), _KNOWN, **name)
    return [EntityChange(*row) for row in (yield execute(_HISTORY, key=key))]


def _name(org_id: UUID, pipeline: str, entity_id: str) -> dict[str, object]:
    return {"org": org_id, "pipeline": storable(pipeline), "entity": storable(entity_id)}


def entity_from(org_id: UUID, row: Row) -> Entity:
    fields = fields_from(_FIELDS, row)
    fields["phase"] = Phase(fields["phase"])
    for name in ("data", "metadata"):
        fields[name] = msgspec.json.decode(fields[name])
    return Entity(org_id=org_id, **fields)


# -- lists -------------------------------------------------------------------------------------------------

_STATUS: BindParameter[str] = bindparam("status", type_=String())
_IS_ARCHIVED = or_(
    _E.phase == literal_column("'archived'"),
    (_E.phase == literal_column("'dead'")) & (_E.changed_at < bindparam("archived_before")),
)


def _within(of_status: bool, archived: bool | None) -> tuple[Condition, ...]:
    """The part of the filter that an index can apply: one status, or (for archived entities) the condition HIDDEN, or
    no condition. `_matching` applies the rest."""
    return (*OF_PIPELINE, *((_E.status == _STATUS,) if of_status else (text(HIDDEN),) if archived else ()))


def _matching(archived: bool | None) -> tuple[Condition, ...]:
    return () if archived is None else (_IS_ARCHIVED,) if archived else (~_IS_ARCHIVED,)


def _scan(of_status: bool, archived: bool | None) -> IndexScan:
    return index_scan(_within(of_status, archived), (_E.id,), ENTITY, _matching(archived), newest_first=True)


_CHOICES = (*product((False, True), (None, False)), (False, True))
"""The combinations of two filter settings: whether a single status is requested, and the value of `archived`, where
None means that archived and other entities are selected alike."""
_SCANS = {choice: _scan(*choice) for choice in _CHOICES}


def list_entities(org_id: UUID, query: EntityFilter, cursor: str | None, limit: int) -> Transaction[Page[Entity]]:
    values = _values(org_id, query)
    after = read_cursor(cursor, KEY_MAX) or (KEY_MAX,)
    scan = _SCANS[query.status is not None, query.archived]
    found = yield from read_slice(scan, after, (0,), limit, values, filtered=query.archived is not None)
    return page_of(scan, [found], limit, lambda row: entity_from(org_id, row))


def _counting(of_status: bool, archived: bool | None) -> Statement:
    """A statement that counts the examined entries, up to `limit`, and how many of them match."""
    matching = [case((and_(true(), *_matching(archived)), 1)).label("matching")]
    entries = select(*matching).where(*_within(of_status, archived)).order_by(_E.id).limit(LIMIT).subquery()
    return select(func.count(), func.count(entries.c.matching)).select_from(entries)


_COUNTS = {choice: _counting(*choice) for choice in _CHOICES}


def count_entities(org_id: UUID, query: EntityFilter, limit: int) -> Transaction[Count]:
    statement = _COUNTS[query.status is not None, query.archived]
    rows = yield execute(statement, limit=limit + 1, **_values(org_id, query))
    return count_up_to(limit, *rows[0])


def _values(org_id: UUID, query: EntityFilter) -> dict[str, object]:
    check_storable("status", query.status)
    return {
        "org": org_id,
        "pipeline": storable(query.pipeline),
        "status": query.status,
        "archived_before": query.archived_before,
    }


# -- reconciliation and retention --------------------------------------------------------------------------

_WINDOW = (
    select(_E.id, _E.event_uid)
    .where(*OF_PIPELINE, text(RUNNING), _E.id > bindparam("after"))
    .order_by(_E.id)
    .limit(LIMIT)
)
_EVENTS = select(events.c.id, events.c.uid).where(events.c.org_id == ORG, events.c.uid.in_(UIDS))
_OWED = select(deliveries.c.event_id).where(
    deliveries.c.event_id.in_(KEYS),
    deliveries.c.due_at.is_not(None),
    deliveries.c.endpoint_id.in_(bindparam("targets", expanding=True)),
)
_TARGET_KEYS = select(endpoints.c.id).where(endpoints.c.uid.in_(UIDS))
_POSTED = select(outbox.c.uid).where(outbox.c.uid.in_(UIDS), outbox.c.refused_at.is_(None))
_ORPHANED = ENTITY.where(_E.id.in_(KEYS), text(RUNNING)).order_by(_E.id)
_AWAITING = ENTITY.where(*OF_PIPELINE, text(AWAITING), _E.event_uid.in_(UIDS)).order_by(_E.id)
_NEXT_STATUS = select(_E.status).where(*OF_PIPELINE, _E.status > bindparam("after")).order_by(_E.status).limit(1)
_AGED = (
    select(_E.id, _E.created_at, _E.changed_at, _E.phase)
    .where(*OF_PIPELINE, _E.status == _STATUS, _E.id > bindparam("after"))
    .order_by(_E.id)
    .limit(LIMIT)
)
_REMOVE = (
    delete(entities)
    .where(
        _E.id.in_(KEYS),
        _E.status == _STATUS,
        _E.phase.in_(bindparam("phases", expanding=True)),
        _E.changed_at < bindparam("before"),
    )
    .returning(_E.id)
)
_STALE = (
    ENTITY.where(*OF_PIPELINE, text(FAILED_ENTITY), _E.changed_at < bindparam("before"))
    .order_by(_E.changed_at, _E.id)
    .limit(LIMIT)
)


def orphaned(org_id: UUID, query: OrphanedEntities, cursor: str | None, limit: int) -> Transaction[Page[Entity]]:
    """Several statements that select by id are used here instead of one join, because PostgreSQL without table
    statistics executed the join by scanning all deliveries."""
    (after,) = read_cursor(cursor, KEY_MAX) or (0,)
    window = yield execute(_WINDOW, org=org_id, pipeline=query.pipeline, after=after, limit=limit)
    in_progress = yield from _in_progress(org_id, [uid for _, uid in window if uid is not None], query.endpoint_ids)
    orphans = [key for key, uid in window if uid not in in_progress]
    rows = yield from execute_in_parts(_ORPHANED, "keys", orphans)
    return Page(
        tuple(entity_from(org_id, row) for row in rows), write_cursor(window[-1][0]) if len(window) == limit else None
    )


def _in_progress(org_id: UUID, event_ids: Sequence[UUID], endpoint_ids: Sequence[UUID]) -> Transaction[set[UUID]]:
    """The events that are still in the outbox or have an open delivery to one of the endpoints.

    While an event is being forwarded, both conditions may apply, but there is no moment at which neither applies.
    """
    posted = {row[0] for row in (yield from execute_in_parts(_POSTED, "uids", event_ids))}
    accepted: dict[int, UUID] = dict((yield from execute_in_parts(_EVENTS, "uids", event_ids, org=org_id)))
    targets = [row[0] for row in (yield from execute_in_parts(_TARGET_KEYS, "uids", endpoint_ids))]
    if not targets:
        return posted
    owed = yield from execute_in_parts(_OWED, "keys", accepted, targets=targets)
    return posted | {accepted[row[0]] for row in owed}


def awaiting(org_id: UUID, query: AwaitingEntities) -> Transaction[list[Entity]]:
    rows = yield from execute_in_parts(_AWAITING, "uids", query.event_ids, org=org_id, pipeline=query.pipeline)
    return [entity_from(org_id, row) for row in rows]


def stale(org_id: UUID, query: StaleEntities) -> Transaction[list[Entity]]:
    before, limit = query.dead_before, query.limit
    rows = yield execute(_STALE, org=org_id, pipeline=query.pipeline, before=before, limit=limit)
    return [entity_from(org_id, row) for row in rows]


def entity_statuses(org_id: UUID, query: EntityStatuses) -> Transaction[list[str]]:
    """List the statuses with one index seek per status, regardless of the number of entities. A pipeline has about a
    dozen statuses."""
    found = [""]
    while rows := (yield execute(_NEXT_STATUS, org=org_id, pipeline=query.pipeline, after=found[-1])):
        found.append(rows[0][0])
    return found[1:]


def clean_entities(
    org_id: UUID,
    pipeline: str,
    status: str,
    phases: Collection[Phase],
    before: Instant,
    cursor: str | None,
    limit: int,
) -> Transaction[tuple[int, str | None]]:
    names = sorted(phases)
    (after,) = read_cursor(cursor, KEY_MAX) or (0,)
    window = yield execute(_AGED, org=org_id, pipeline=pipeline, status=status, after=after, limit=limit)
    old = [key for key, _, changed_at, phase in window if changed_at < before and phase in names]
    # The statement checks the conditions again, so that an entity that was retried meanwhile is kept.
    removed = yield from execute_in_parts(_REMOVE, "keys", old, status=status, phases=names, before=before)
    yield from execute_in_parts(DELETE_HISTORY, "keys", [row[0] for row in removed])
    more = len(window) == limit and window[-1][1] < before
    return len(removed), write_cursor(window[-1][0]) if more else None
