"""The outbox: what programs posted in their own transactions, until it is forwarded."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from sqlalchemy import Delete, Update, bindparam, delete, exists, func, insert, null, select, text, update

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.outbox import OutboxMessage, OutboxOptions
from doorstep.stores import notes
from doorstep.stores.limits import OUTBOX_BYTES_MAX, fitting
from doorstep.stores.sql.posting.row import COLUMNS, values_of
from doorstep.stores.sql.queries.moves import parts
from doorstep.stores.sql.queries.orgs import add_audit
from doorstep.stores.sql.queries.rows import IN_ORG
from doorstep.stores.sql.queries.transaction import Row, Transaction, Values, execute, execute_each
from doorstep.stores.sql.schema import POSTED, events, orgs
from doorstep.stores.sql.schema import outbox as outbox_rows

_decode_options = msgspec.json.Decoder(OutboxOptions).decode

_O = outbox_rows.c
_UIDS = _O.uid.in_(bindparam("uids", expanding=True))

_POSTING = select(
    _O.uid, _O.org_uid, _O.event_type, _O.payload, _O.created_at, _O.options, _O.refused_at, _O.refusal
).select_from(outbox_rows)
_ABOVE = _O.id > bindparam("floor")
_SIZES = select(_O.id, func.length(_O.payload)).where(text(POSTED), _ABOVE).order_by(_O.id).limit(bindparam("most"))
_FIRST = _POSTING.where(text(POSTED), _ABOVE, _O.id <= bindparam("last")).order_by(_O.id)
_REFUSED = _POSTING.where(_O.refused_at.is_not(None)).order_by(_O.id).limit(bindparam("most"))
_OF_REFUSED = (_UIDS, _O.refused_at.is_not(None))
_LOCK_REFUSED = _POSTING.where(*_OF_REFUSED).order_by(_O.id).with_for_update()
_PUT_BACK = update(outbox_rows).where(*_OF_REFUSED).values(refused_at=null(), refusal=null())
_DISCARD = delete(outbox_rows).where(*_OF_REFUSED)
_KNOWN_ORGS = select(orgs.c.uid).where(orgs.c.uid.in_(bindparam("uids", expanding=True)))
_ACCEPTED = exists().where(events.c.org_id == orgs.c.id, events.c.uid == _O.uid)
_SHOWN = _POSTING.join(orgs, orgs.c.uid == _O.org_uid).where(IN_ORG, _UIDS, ~_ACCEPTED)

_POST = insert(outbox_rows)
_SET_ASIDE = (
    update(outbox_rows)
    .where(_O.uid == bindparam("event"), text(POSTED))
    .values(refused_at=bindparam("at"), refusal=bindparam("why"))
)


def post(postings: Sequence[OutboxMessage]) -> Transaction[None]:
    """Also a part of other verbs' transactions: of a pipeline that goes on to its next stage."""
    yield execute_each(_POST, [row_of(posting) for posting in postings])


def outbox(limit: int) -> Transaction[list[OutboxMessage]]:
    postings, _ = yield from outbox_above(0, limit)
    return postings


def outbox_above(floor: int, limit: int) -> Transaction[tuple[list[OutboxMessage], int]]:
    """The first rows with keys above `floor`, and the last key among them.

    First how long the payloads are, then no more of them than may be held at once.
    """
    sizes = yield execute(_SIZES, floor=floor, most=limit)
    if not sizes:
        return [], floor
    last = sizes[fitting((size for _, size in sizes), OUTBOX_BYTES_MAX) - 1][0]
    rows = yield execute(_FIRST, floor=floor, last=last)
    return [posting_from(row) for row in rows], last


def set_aside(event_id: UUID, refusal: str, now: Instant) -> Transaction[None]:
    yield execute(_SET_ASIDE, event=event_id, at=now, why=refusal)


def refused(limit: int) -> Transaction[list[OutboxMessage]]:
    return [posting_from(row) for row in (yield execute(_REFUSED, most=limit))]


def put_back(event_ids: Sequence[UUID], line: AuditEntry) -> Transaction[list[OutboxMessage]]:
    return (yield from _change_refused(_PUT_BACK, event_ids, line))


def discard(event_ids: Sequence[UUID], line: AuditEntry) -> Transaction[list[OutboxMessage]]:
    return (yield from _change_refused(_DISCARD, event_ids, line))


def _change_refused(
    change: Update | Delete, event_ids: Sequence[UUID], line: AuditEntry
) -> Transaction[list[OutboxMessage]]:
    """What was changed, as it was before. Locked first: two may do this at once, and each row counts for one of them."""
    found: list[OutboxMessage] = []
    for part in parts(list(dict.fromkeys(event_ids))):
        found += [posting_from(row) for row in (yield execute(_LOCK_REFUSED, uids=part))]
        yield execute(change, uids=part)
    yield from _audit(line, found)
    return found


def _audit(line: AuditEntry, done: Sequence[OutboxMessage]) -> Transaction[None]:
    known: set[UUID] = set()
    for part in parts(list({posting.org_id for posting in done})):
        known |= {org_id for (org_id,) in (yield execute(_KNOWN_ORGS, uids=part))}
    for one in notes.outbox_lines(line, done, known):
        yield from add_audit(one)


def shown_of(org_id: UUID, event_ids: Sequence[UUID]) -> Transaction[list[OutboxMessage]]:
    """Those of the events that are in the outbox and not accepted yet."""
    found: list[OutboxMessage] = []
    for part in parts(list(dict.fromkeys(event_ids))):
        found += [posting_from(row) for row in (yield execute(_SHOWN, org=org_id, uids=part))]
    return found


def row_of(posting: OutboxMessage) -> Values:
    return dict(zip(COLUMNS, values_of(posting), strict=True))


def posting_from(row: Row) -> OutboxMessage:
    event_id, org_id, event_type, payload, created_at, options, refused_at, refusal = row
    said, flaw = _options_from(options)
    return OutboxMessage(
        event_id=event_id,
        org_id=org_id,
        event_type=event_type,
        payload=payload.encode() if isinstance(payload, str) else bytes(payload),
        created_at=created_at,
        options=said,
        refused_at=refused_at,
        refusal=refusal,
        flaw=flaw,
    )


def _options_from(text: str) -> tuple[OutboxOptions, str | None]:
    """Anybody may write into the table: one row that cannot be read must not keep the others from being."""
    try:
        return _decode_options(text), None
    except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
        return OutboxOptions(), f"cannot be read: {error}"
