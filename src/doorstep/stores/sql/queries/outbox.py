"""The outbox: messages that programs posted in their own transactions and that have not been forwarded yet."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from sqlalchemy import Delete, Update, bindparam, delete, exists, func, insert, null, select, text, update

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.listing import RejectedMessages
from doorstep.model.outbox import OutboxMessage, OutboxOptions
from doorstep.stores import notes
from doorstep.stores.limits import OUTBOX_BYTES_MAX, count_within
from doorstep.stores.sql.outbox_insert import COLUMNS, values_of
from doorstep.stores.sql.queries.accounts import add_audit
from doorstep.stores.sql.queries.rows import IN_ORG
from doorstep.stores.sql.queries.transaction import Row, Transaction, Values, execute, execute_each, parts
from doorstep.stores.sql.schema import FORWARDABLE, events, orgs
from doorstep.stores.sql.schema import outbox as outbox_rows

_decode_options = msgspec.json.Decoder(OutboxOptions).decode

_O = outbox_rows.c
_UIDS = _O.uid.in_(bindparam("uids", expanding=True))

_MESSAGE = select(
    _O.uid, _O.org_uid, _O.event_type, _O.payload, _O.created_at, _O.options, _O.refused_at, _O.refusal
).select_from(outbox_rows)
_ABOVE = _O.id > bindparam("floor")
_SIZES = (
    select(_O.id, func.length(_O.payload)).where(text(FORWARDABLE), _ABOVE).order_by(_O.id).limit(bindparam("limit"))
)
_FIRST = _MESSAGE.where(text(FORWARDABLE), _ABOVE, _O.id <= bindparam("last")).order_by(_O.id)
_REJECTED = _MESSAGE.where(_O.refused_at.is_not(None)).order_by(_O.id).limit(bindparam("limit"))
_IS_REJECTED = (_UIDS, _O.refused_at.is_not(None))
_LOCK_REJECTED = _MESSAGE.where(*_IS_REJECTED).order_by(_O.id).with_for_update()
_REQUEUE = update(outbox_rows).where(*_IS_REJECTED).values(refused_at=null(), refusal=null())
_DISCARD = delete(outbox_rows).where(*_IS_REJECTED)
_KNOWN_ORGS = select(orgs.c.uid).where(orgs.c.uid.in_(bindparam("uids", expanding=True)))
_ACCEPTED = exists().where(events.c.org_id == orgs.c.id, events.c.uid == _O.uid)
_PENDING = _MESSAGE.join(orgs, orgs.c.uid == _O.org_uid).where(IN_ORG, _UIDS, ~_ACCEPTED)

_POST = insert(outbox_rows)
_REJECT = (
    update(outbox_rows)
    .where(_O.uid == bindparam("event"), text(FORWARDABLE))
    .values(refused_at=bindparam("at"), refusal=bindparam("why"))
)


def post(messages: Sequence[OutboxMessage]) -> Transaction[None]:
    """Post messages in the transaction of another verb, such as a pipeline step that starts the next stage."""
    yield execute_each(_POST, [row_of(message) for message in messages])


def outbox(limit: int) -> Transaction[list[OutboxMessage]]:
    messages, _ = yield from outbox_above(0, limit)
    return messages


def outbox_above(floor: int, limit: int) -> Transaction[tuple[list[OutboxMessage], int]]:
    """The first messages with keys above `floor`, and the highest of their keys.

    Reads the sizes of the payloads first, then only as many payloads as OUTBOX_BYTES_MAX allows in memory.
    """
    sizes = yield execute(_SIZES, floor=floor, limit=limit)
    if not sizes:
        return [], floor
    last = sizes[count_within((size for _, size in sizes), OUTBOX_BYTES_MAX) - 1][0]
    rows = yield execute(_FIRST, floor=floor, last=last)
    return [message_from(row) for row in rows], last


def reject(event_id: UUID, reason: str, now: Instant) -> Transaction[None]:
    yield execute(_REJECT, event=event_id, at=now, why=reason)


def rejected(_: UUID | None, query: RejectedMessages) -> Transaction[list[OutboxMessage]]:
    return [message_from(row) for row in (yield execute(_REJECTED, limit=query.limit))]


def requeue(event_ids: Sequence[UUID], entry: AuditEntry) -> Transaction[list[OutboxMessage]]:
    return (yield from _change_rejected(_REQUEUE, event_ids, entry))


def discard(event_ids: Sequence[UUID], entry: AuditEntry) -> Transaction[list[OutboxMessage]]:
    return (yield from _change_rejected(_DISCARD, event_ids, entry))


def _change_rejected(
    change: Update | Delete, event_ids: Sequence[UUID], entry: AuditEntry
) -> Transaction[list[OutboxMessage]]:
    """Change rejected messages and return them as they were before. They are locked first, so that only one of two
    concurrent calls changes and returns a message."""
    found: list[OutboxMessage] = []
    for part in parts(list(dict.fromkeys(event_ids))):
        found += [message_from(row) for row in (yield execute(_LOCK_REJECTED, uids=part))]
        yield execute(change, uids=part)
    yield from _audit(entry, found)
    return found


def _audit(entry: AuditEntry, done: Sequence[OutboxMessage]) -> Transaction[None]:
    known: set[UUID] = set()
    for part in parts(list({message.org_id for message in done})):
        known |= {org_id for (org_id,) in (yield execute(_KNOWN_ORGS, uids=part))}
    for one in notes.outbox_entries(entry, done, known):
        yield from add_audit(one)


def pending_messages(org_id: UUID, event_ids: Sequence[UUID]) -> Transaction[list[OutboxMessage]]:
    """The messages of these events that are still in the outbox and have not been accepted."""
    found: list[OutboxMessage] = []
    for part in parts(list(dict.fromkeys(event_ids))):
        found += [message_from(row) for row in (yield execute(_PENDING, org=org_id, uids=part))]
    return found


def row_of(message: OutboxMessage) -> Values:
    return dict(zip(COLUMNS, values_of(message), strict=True))


def message_from(row: Row) -> OutboxMessage:
    event_id, org_id, event_type, payload, created_at, options, refused_at, refusal = row
    decoded, flaw = _options_from(options)
    return OutboxMessage(
        event_id=event_id,
        org_id=org_id,
        event_type=event_type,
        payload=payload.encode() if isinstance(payload, str) else bytes(payload),
        created_at=created_at,
        options=decoded,
        refused_at=refused_at,
        refusal=refusal,
        flaw=flaw,
    )


def _options_from(text: str) -> tuple[OutboxOptions, str | None]:
    """The decoded options, or default options and an error message. Any program can write to this table, and one
    unreadable row must not block the others."""
    try:
        return _decode_options(text), None
    except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
        return OutboxOptions(), f"cannot be read: {error}"
