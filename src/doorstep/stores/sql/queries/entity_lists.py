"""Lists of entities, for people; and what the keeper looks for among them, and removes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product
from uuid import UUID

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
)

from doorstep.clock import Instant
from doorstep.model.entity import Entity, EntityFilter, Phase
from doorstep.model.listing import Count, Page
from doorstep.stores import cursor as cursors
from doorstep.stores.sql.queries.entities import ENTITY, FORGET, OF_PIPELINE, entity_from
from doorstep.stores.sql.queries.moves import parts
from doorstep.stores.sql.queries.paging import ORG, Condition, Statement, Walk, count_up_to, page_of, stretch, walk_over
from doorstep.stores.sql.queries.transaction import Transaction, execute
from doorstep.stores.sql.schema import (
    EXPECTING,
    GIVEN_UP,
    HIDDEN,
    RUNNING,
    deliveries,
    endpoints,
    entities,
    events,
    marks,
    outbox,
)
from doorstep.stores.text import check_storable, storable

_E = entities.c

# -- lists -------------------------------------------------------------------------------------------------

_STATUS: BindParameter[str] = bindparam("status", type_=String())
_IS_ARCHIVED = or_(
    _E.phase == literal_column("'archived'"),
    (_E.phase == literal_column("'dead'")) & (_E.changed_at < bindparam("archived_before")),
)


def _within(of_status: bool, archived: bool | None) -> tuple[Condition, ...]:
    """All entities or those of one status, with or without those that are archived, as far as an index tells."""
    return (*OF_PIPELINE, *((_E.status == _STATUS,) if of_status else (text(HIDDEN),) if archived else ()))


def _matching(archived: bool | None) -> tuple[Condition, ...]:
    return () if archived is None else (_IS_ARCHIVED,) if archived else (~_IS_ARCHIVED,)


def _walk(of_status: bool, archived: bool | None) -> Walk:
    return walk_over(_within(of_status, archived), (_E.id,), ENTITY, _matching(archived), newest_first=True)


_CHOICES = (*product((False, True), (None, False)), (False, True))
"""By whether a status is asked for, and which of the archived ones."""
_WALKS = {choice: _walk(*choice) for choice in _CHOICES}


def list_entities(org_id: UUID, wanted: EntityFilter, cursor: str | None, limit: int) -> Transaction[Page[Entity]]:
    check_storable("status", wanted.status)
    after = cursors.read(cursor, cursors.KEY_MAX) or (cursors.KEY_MAX,)
    walk = _WALKS[wanted.status is not None, wanted.archived]
    values = _values(org_id, wanted) | {"archived_before": wanted.archived_before}
    found = yield from stretch(walk, after, (0,), limit, values, filtered=wanted.archived is not None)
    return page_of(walk, [found], limit, lambda row: entity_from(org_id, row))


def _counting(of_status: bool, archived: bool | None) -> Statement:
    """How many entries were looked at, and how many of them match."""
    matching = [case((and_(true(), *_matching(archived)), 1)).label("wanted")]
    entries = select(*matching).where(*_within(of_status, archived)).order_by(_E.id).limit(bindparam("most")).subquery()
    return select(func.count(), func.count(entries.c.wanted)).select_from(entries)


_COUNTS = {choice: _counting(*choice) for choice in _CHOICES}


def count_entities(org_id: UUID, wanted: Sequence[EntityFilter], limit: int) -> Transaction[list[Count]]:
    counts: list[Count] = []
    for one in wanted:
        check_storable("status", one.status)
        values = _values(org_id, one) | {"archived_before": one.archived_before, "most": limit + 1}
        rows = yield execute(_COUNTS[one.status is not None, one.archived], **values)
        counts.append(count_up_to(limit, *rows[0]))
    return counts


def _values(org_id: UUID, wanted: EntityFilter) -> dict[str, object]:
    values: dict[str, object] = {"org": org_id, "pipeline": storable(wanted.pipeline)}
    return values if wanted.status is None else values | {"status": wanted.status}


# -- what the keeper looks for -----------------------------------------------------------------------------

_KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)
_TARGETS: BindParameter[list[int]] = bindparam("targets", expanding=True)
_UIDS: BindParameter[list[UUID]] = bindparam("uids", expanding=True)
_WINDOW = (
    select(_E.id, _E.event_uid)
    .where(*OF_PIPELINE, text(RUNNING), _E.id > bindparam("after"))
    .order_by(_E.id)
    .limit(bindparam("most"))
)
_EVENTS = select(events.c.id, events.c.uid).where(events.c.org_id == ORG, events.c.uid.in_(_UIDS))
_OWED = select(deliveries.c.event_id).where(
    deliveries.c.event_id.in_(_KEYS), deliveries.c.due_at.is_not(None), deliveries.c.endpoint_id.in_(_TARGETS)
)
_TARGET_KEYS = select(endpoints.c.id).where(endpoints.c.uid.in_(_UIDS))
_POSTED = select(outbox.c.uid).where(outbox.c.uid.in_(_UIDS), outbox.c.refused_at.is_(None))
_ADRIFT = ENTITY.where(_E.id.in_(_KEYS), text(RUNNING)).order_by(_E.id)
_EXPECTED = ENTITY.where(*OF_PIPELINE, text(EXPECTING), _E.event_uid.in_(bindparam("uids", expanding=True))).order_by(
    _E.id
)
_NEXT_STATUS = select(_E.status).where(*OF_PIPELINE, _E.status > bindparam("after")).order_by(_E.status).limit(1)
_AGED = (
    select(_E.id, _E.created_at, _E.changed_at, _E.phase)
    .where(*OF_PIPELINE, _E.status == _STATUS, _E.id > bindparam("after"))
    .order_by(_E.id)
    .limit(bindparam("most"))
)
_REMOVE = (
    delete(entities)
    .where(
        _E.id.in_(_KEYS),
        _E.status == _STATUS,
        _E.phase.in_(bindparam("phases", expanding=True)),
        _E.changed_at < bindparam("before"),
    )
    .returning(_E.id)
)
_UNTOUCHED = (
    ENTITY.where(*OF_PIPELINE, text(GIVEN_UP), _E.changed_at < bindparam("before"))
    .order_by(_E.changed_at, _E.id)
    .limit(bindparam("most"))
)


def orphaned(
    org_id: UUID, pipeline: str, endpoint_ids: Sequence[UUID], cursor: str | None, limit: int
) -> Transaction[Page[Entity]]:
    """One list of ids after the other: where statistics are missing, PostgreSQL made of all of it in one statement a
    walk through every delivery there is."""
    (after,) = cursors.read(cursor, cursors.KEY_MAX) or (0,)
    window = yield execute(_WINDOW, org=org_id, pipeline=pipeline, after=after, most=limit)
    found: list[Entity] = []
    for part in parts(window):
        carried = yield from _carried(org_id, [uid for _, uid in part if uid is not None], endpoint_ids)
        left = [key for key, uid in part if uid not in carried]
        rows = (yield execute(_ADRIFT, keys=left)) if left else []
        found += [entity_from(org_id, row) for row in rows]
    return Page(tuple(found), cursors.write(window[-1][0]) if len(window) == limit else None)


def _carried(org_id: UUID, event_ids: Sequence[UUID], endpoint_ids: Sequence[UUID]) -> Transaction[set[UUID]]:
    """Those of the events that wait in the outbox, or that one of the endpoints still has to do.

    An event that is being forwarded is in both places for a moment, and never in neither.
    """
    if not event_ids:
        return set()
    posted = {row[0] for row in (yield execute(_POSTED, uids=event_ids))}
    accepted: dict[int, UUID] = dict((yield execute(_EVENTS, org=org_id, uids=event_ids)))
    targets = [row[0] for row in (yield execute(_TARGET_KEYS, uids=endpoint_ids))] if endpoint_ids else []
    if not accepted or not targets:
        return posted
    owed = yield execute(_OWED, keys=list(accepted), targets=targets)
    return posted | {accepted[row[0]] for row in owed}


def expecting(org_id: UUID, pipeline: str, event_ids: Sequence[UUID]) -> Transaction[list[Entity]]:
    found: list[Entity] = []
    for part in parts(list(event_ids)):
        rows = yield execute(_EXPECTED, org=org_id, pipeline=pipeline, uids=part)
        found += [entity_from(org_id, row) for row in rows]
    return found


def untouched(org_id: UUID, pipeline: str, dead_before: Instant, limit: int) -> Transaction[list[Entity]]:
    rows = yield execute(_UNTOUCHED, org=org_id, pipeline=pipeline, before=dead_before, most=limit)
    return [entity_from(org_id, row) for row in rows]


def entity_statuses(org_id: UUID, pipeline: str) -> Transaction[list[str]]:
    """From one to the next in their index: there are a dozen of them, however many entities."""
    found = [""]
    while rows := (yield execute(_NEXT_STATUS, org=org_id, pipeline=pipeline, after=found[-1])):
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
    (after,) = cursors.read(cursor, cursors.KEY_MAX) or (0,)
    window = yield execute(_AGED, org=org_id, pipeline=pipeline, status=status, after=after, most=limit)
    removed = 0
    for part in parts([key for key, _, changed_at, phase in window if changed_at < before and phase in names]):
        # Looked at again: one that was retried meanwhile stays, with its history.
        gone = [row[0] for row in (yield execute(_REMOVE, keys=part, status=status, phases=names, before=before))]
        if gone:
            yield execute(FORGET, keys=gone)
        removed += len(gone)
    more = len(window) == limit and window[-1][1] < before
    return removed, cursors.write(window[-1][0]) if more else None


_PREFIX = "pipeline:"
_M = marks.c
_FORGET = delete(marks).where(_M.name == bindparam("mark"))
_NOTE = insert(marks)
_NOTED = select(_M.name, _M.value).where(_M.name.like(f"{_PREFIX}%"))


def declare_pipelines(names: Sequence[tuple[UUID, str]], now: Instant) -> Transaction[None]:
    """Removed and put anew: on PostgreSQL an update of `marks` waits for every accept that is under way."""
    for org_id, pipeline in sorted(names):
        mark = f"{_PREFIX}{org_id}:{pipeline}"
        yield execute(_FORGET, mark=mark)
        yield execute(_NOTE, name=mark, value=now)


def declared_pipelines() -> Transaction[dict[tuple[UUID, str], Instant]]:
    return {_read(name): value for name, value in (yield execute(_NOTED))}


def _read(mark: str) -> tuple[UUID, str]:
    org_id, _, pipeline = mark.removeprefix(_PREFIX).partition(":")
    return UUID(org_id), pipeline
