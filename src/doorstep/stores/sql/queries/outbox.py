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
from doorstep.stores.sql.queries.rows import IN_ORG, columns_of, fields_from
from doorstep.stores.sql.queries.transaction import (
    LIMIT,
    UIDS,
    Row,
    Transaction,
    execute,
    execute_each,
    execute_in_parts,
)
from doorstep.stores.sql.schema import FORWARDABLE, events, orgs
from doorstep.stores.sql.schema import outbox as outbox_rows

_decode_options = msgspec.json.Decoder(OutboxOptions).decode

_O = outbox_rows.c
_FIELDS = columns_of(OutboxMessage, outbox_rows, "flaw", event_id=_O.uid, org_id=_O.org_uid)
_MESSAGE = select(*_FIELDS.values()).select_from(outbox_rows)
_ABOVE = _O.id > bindparam("floor")
_SIZES = select(_O.id, func.length(_O.payload)).where(text(FORWARDABLE), _ABOVE).order_by(_O.id).limit(LIMIT)
_FIRST = _MESSAGE.where(text(FORWARDABLE), _ABOVE, _O.id <= bindparam("last")).order_by(_O.id)
_REJECTED = _MESSAGE.where(_O.refused_at.is_not(None)).order_by(_O.id).limit(LIMIT)
_IS_REJECTED = (_O.uid.in_(UIDS), _O.refused_at.is_not(None))
_LOCK_REJECTED = _MESSAGE.where(*_IS_REJECTED).order_by(_O.id).with_for_update()
REQUEUE = update(outbox_rows).where(*_IS_REJECTED).values(refused_at=null(), refusal=null())
DISCARD = delete(outbox_rows).where(*_IS_REJECTED)
_KNOWN_ORGS = select(orgs.c.uid).where(orgs.c.uid.in_(UIDS))
_ACCEPTED = exists().where(events.c.org_id == orgs.c.id, events.c.uid == _O.uid)
_PENDING = _MESSAGE.join(orgs, orgs.c.uid == _O.org_uid).where(IN_ORG, _O.uid.in_(UIDS), ~_ACCEPTED)

_POST = insert(outbox_rows)
_REJECT = (
    update(outbox_rows)
    .where(_O.uid == bindparam("event"), text(FORWARDABLE))
    .values(refused_at=bindparam("at"), refusal=bindparam("why"))
)


def post(messages: Sequence[OutboxMessage]) -> Transaction[None]:
    """Post messages in the transaction of another store method. For example, a pipeline step posts the message that
    starts the next stage."""
    yield execute_each(_POST, [dict(zip(COLUMNS, values_of(message), strict=True)) for message in messages])


def outbox(limit: int) -> Transaction[list[OutboxMessage]]:
    messages, _ = yield from outbox_above(0, limit)
    return messages


def outbox_above(floor: int, limit: int) -> Transaction[tuple[list[OutboxMessage], int]]:
    """The first messages with keys above `floor`, and the highest key among them.

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


def change_rejected(
    change: Update | Delete, event_ids: Sequence[UUID], entry: AuditEntry
) -> Transaction[list[OutboxMessage]]:
    """Requeue or discard rejected messages (`change` is REQUEUE or DISCARD). Returns the messages as they were before
    the change. The messages are locked first, so that only one of two concurrent calls changes and returns a
    message."""
    found = [message_from(row) for row in (yield from execute_in_parts(_LOCK_REJECTED, "uids", event_ids))]
    yield from execute_in_parts(change, "uids", event_ids)
    known = yield from execute_in_parts(_KNOWN_ORGS, "uids", [message.org_id for message in found])
    for one in notes.outbox_entries(entry, found, {org_id for (org_id,) in known}):
        yield from add_audit(one)
    return found


def pending_messages(org_id: UUID, event_ids: Sequence[UUID]) -> Transaction[list[OutboxMessage]]:
    """The messages of these events that are still in the outbox and have not been accepted."""
    return [message_from(row) for row in (yield from execute_in_parts(_PENDING, "uids", event_ids, org=org_id))]


def message_from(row: Row) -> OutboxMessage:
    fields = fields_from(_FIELDS, row)
    payload = fields["payload"]
    fields["payload"] = payload.encode() if isinstance(payload, str) else bytes(payload)
    fields["options"], flaw = _options_from(fields["options"])
    return OutboxMessage(flaw=flaw, **fields)


def _options_from(text: str) -> tuple[OutboxOptions, str | None]:
    """The decoded options, or default options and an error message. Any program can write to this table, and one
    unreadable row must not block the others."""
    try:
        return _decode_options(text), None
    except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
        return OutboxOptions(), f"cannot be read: {error}"
