"""Lists of entities, for people; and what the keeper looks for among them, and removes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product
from uuid import UUID

from sqlalchemy import BindParameter, String, bindparam, delete, literal_column, or_, select, text

from doorstep.clock import Instant
from doorstep.model.entity import Entity, EntityFilter, Phase
from doorstep.model.listing import Page
from doorstep.stores import cursor as cursors
from doorstep.stores.sql.cold.entities import ENTITY, FORGET, OF_PIPELINE, entity_from
from doorstep.stores.sql.cold.listing.walking import ORG, Walk, page_of, stretch, walk_over
from doorstep.stores.sql.cold.moves import parts
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import (
    EXPECTING,
    GIVEN_UP,
    HIDDEN,
    RUNNING,
    deliveries,
    endpoints,
    entities,
    events,
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


def _walk(of_status: bool, archived: bool | None) -> Walk:
    """The list of all entities or of one status, with or without those that are archived."""
    index = (_E.status == _STATUS,) if of_status else (text(HIDDEN),) if archived else ()
    matching = () if archived is None else (_IS_ARCHIVED,) if archived else (~_IS_ARCHIVED,)
    return walk_over((*OF_PIPELINE, *index), (_E.id,), ENTITY, matching, newest_first=True)


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
    return page_of(walk, [found], limit, lambda row: entity_from(org_id, row))


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
        found += [entity_from(org_id, row) for row in rows]
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
        found += [entity_from(org_id, row) for row in rows]
    return found


def untouched(org_id: UUID, pipeline: str, dead_before: Instant, limit: int) -> Script[list[Entity]]:
    rows = yield ask(_UNTOUCHED, org=org_id, pipeline=pipeline, before=dead_before, most=limit)
    return [entity_from(org_id, row) for row in rows]


def entity_statuses(org_id: UUID, pipeline: str) -> Script[list[str]]:
    """From one to the next in their index: there are a dozen of them, however many entities."""
    found = [""]
    while rows := (yield ask(_NEXT_STATUS, org=org_id, pipeline=pipeline, after=found[-1])):
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
) -> Script[tuple[int, str | None]]:
    names = sorted(phases)
    (after,) = cursors.read(cursor, cursors.KEY_MAX) or (0,)
    window = yield ask(_AGED, org=org_id, pipeline=pipeline, status=status, after=after, most=limit)
    removed = 0
    for part in parts([key for key, _, changed_at, phase in window if changed_at < before and phase in names]):
        # Looked at again: one that was retried meanwhile stays, with its history.
        gone = [row[0] for row in (yield ask(_REMOVE, keys=part, status=status, phases=names, before=before))]
        if gone:
            yield ask(FORGET, keys=gone)
        removed += len(gone)
    more = len(window) == limit and window[-1][1] < before
    return removed, cursors.write(window[-1][0]) if more else None
