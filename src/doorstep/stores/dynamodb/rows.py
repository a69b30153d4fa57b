"""Events and deliveries as items: their fields, their keys, and the entries of the indexes.

An event, its deliveries and their attempts share one partition. The event item has the attributes of the triggers
profile under their own names, so that people and dashboards can read it. Everything else of a row is one JSON document.
Each row has a version, which every write increases and requires: nobody overwrites what they have not read.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID
from zlib import crc32

import msgspec
from msgspec.structs import replace

from doorstep.clock import Instant, to_iso
from doorstep.model.attempt import Attempt
from doorstep.model.claim import Claim
from doorstep.model.delivery import (
    DEAD_STATES,
    Delivery,
    DeliveryState,
    HistoryEntry,
    NewDelivery,
)
from doorstep.model.event import Event, EventStatus
from doorstep.model.record import Record
from doorstep.stores import notes
from doorstep.stores.dynamodb.client import Item, Key, key_of
from doorstep.stores.dynamodb.tables import DUE_INDEX, LIST_INDEX, SHARDS, STATUS_INDEX, WORK_INDEX, TableIndex

HISTORY_KEPT = 1_000
"""How many history entries a delivery item keeps: its first and its newest ones. They take some 100 KB of the 400 KB that
an item may have."""
EVENT = "event"
_DELIVERY = "delivery#"


class EventRow(Record, frozen=True, kw_only=True):
    """An event, its status, and how many of its deliveries are open, dead and done."""

    event: Event
    status: EventStatus = EventStatus.RECEIVED
    version: int = 0
    deliveries: int = 0
    """How many were accepted."""
    open_count: int = 0
    dead_count: int = 0
    done_count: int = 0
    failed_at: Instant | None = None
    deleted: bool = False
    retry_attempts: int = 0
    last_retry_at: Instant | None = None
    receive_count: int = 0
    leased_by: str | None = None
    visible_at: Instant | None = None
    acknowledged_at: Instant | None = None
    missing: tuple[tuple[int, NewDelivery], ...] = ()
    """Deliveries that did not fit into the accepting transaction and may not be stored yet, with their ordinals."""

    @property
    def in_inbox(self) -> bool:
        return not self.deliveries and not self.deleted and self.status is EventStatus.RECEIVED

    @property
    def leasable_at(self) -> Instant:
        """When an event of the inbox may be leased."""
        times = (self.visible_at, self.event.deliver_at, self.event.created_at)
        return next(at for at in times if at is not None)


class DeliveryRow(Record, frozen=True, kw_only=True):
    """A delivery as readers see it, plus the fields that only the store uses."""

    delivery: Delivery
    version: int = 0
    ordinal: int = 0
    """Its position among the deliveries that were accepted in the same call."""
    token: int = 0
    """The token of the newest claim; it never decreases."""
    round_base: int = 0
    """The number of the attempt after which the current round of retries began."""
    uncounted: int = 0
    on_recovery: bool = False
    expires_at: Instant | None = None
    """When its event expires."""
    holds_slot: bool = False
    """Whether it has one of the slots of an endpoint with a concurrency limit."""
    own_payload: bytes | None = None
    history: tuple[HistoryEntry, ...] = ()

    def retries_used(self, attempt: int, retries_max: int) -> int:
        """How many retries an attempt with this number stands for; the first attempt of a round is no retry."""
        return min(max(attempt - 1 - self.round_base - self.uncounted, 0), retries_max)

    def payload(self, event: EventRow) -> bytes:
        return event.event.payload if self.own_payload is None else self.own_payload


# -- keys --------------------------------------------------------------------------------------------------


def event_key(event_id: UUID) -> Key:
    return f"event#{event_id}", EVENT


def delivery_key(event_id: UUID, delivery_id: UUID) -> Key:
    return f"event#{event_id}", f"{_DELIVERY}{delivery_id}"


def pointer_key(delivery_id: UUID) -> Key:
    """The item that leads from a delivery to its event."""
    return f"delivery#{delivery_id}", "event"


def attempt_prefix(delivery_id: UUID) -> str:
    return f"attempt#{delivery_id}#"


def attempt_key(event_id: UUID, attempt: Attempt, sequence: int | str) -> Key:
    """In-time results come before late ones with the same number."""
    return f"event#{event_id}", f"{attempt_prefix(attempt.delivery_id)}{attempt.number:08d}#{sequence}"


def is_delivery(item: Item) -> bool:
    return bool(item["sk"]["S"].startswith(_DELIVERY))


def shard_of(item_id: UUID) -> int:
    return item_id.int % SHARDS


def owner_shard(org_id: UUID, user_id: str | None, event_id: UUID) -> str:
    """The partition of StatusIndex. All events of a user are in one, so that a user's inbox is read from one."""
    shard = shard_of(event_id) if user_id is None else crc32(user_id.encode()) % SHARDS
    return f"{org_id}#{shard}"


def instant(at: Instant) -> str:
    """An instant in a sort key."""
    return f"{max(at, 0):019d}"


def due_order(row: DeliveryRow) -> str:
    """By endpoint, then by due time, then in order of acceptance."""
    one = row.delivery
    return f"{one.endpoint_id}#{instant(one.due_at or 0)}#{instant(one.created_at)}#{row.ordinal:06d}#{one.delivery_id}"


# -- events ------------------------------------------------------------------------------------------------


_encode = msgspec.json.Encoder().encode
_decode_event = msgspec.json.Decoder(EventRow).decode
_decode_delivery = msgspec.json.Decoder(DeliveryRow).decode


def event_item(row: EventRow) -> Item:
    event = row.event
    item: Item = {
        **key_of(event_key(event.event_id)),
        "event_id": {"S": str(event.event_id)},
        "event_type": {"S": event.event_type},
        "timestamp": {"S": _iso(event.created_at)},
        "payload": _text_or_bytes(event.payload),
        "status": {"S": row.status.value},
        "retry_attempts": {"N": str(row.retry_attempts)},
        "version": {"N": str(row.version)},
        "document": {"S": _encode(replace(row, event=replace(event, payload=b""))).decode()},
    }
    times = {"last_retry_at": row.last_retry_at, "failed_at": row.failed_at}
    item |= {name: {"S": _iso(at)} for name, at in times.items() if at is not None}
    if event.user_id is not None:
        item["user_id"] = {"S": event.user_id}
    if not row.deleted:
        listed = f"events#{event.org_id}#{shard_of(event.event_id)}"
        item |= _entry(LIST_INDEX, listed, str(event.event_id))
        if row.status is EventStatus.FAILED or row.in_inbox:
            owner = owner_shard(event.org_id, event.user_id, event.event_id)
            item |= _entry(STATUS_INDEX, owner, f"{row.status.value}#{event.event_id}#{event.user_id or ''}")
    if row.missing:
        item |= _entry(DUE_INDEX, "fanout", f"{instant(event.created_at)}#{event.event_id}")
    elif row.in_inbox:
        inbox = f"inbox#{event.org_id}#{shard_of(event.event_id)}"
        item |= _entry(DUE_INDEX, inbox, f"{instant(row.leasable_at)}#{event.event_id}")
    if not row.deliveries and (row.acknowledged_at is not None or row.deleted):
        at = row.acknowledged_at or row.event.created_at
        item |= _entry(WORK_INDEX, f"acknowledged#{shard_of(event.event_id)}", f"{instant(at)}#{event.event_id}")
    return item


def _iso(at: Instant) -> str:
    """ISO 8601 in UTC; the number itself for an instant after the year 9999."""
    try:
        return to_iso(at)
    except ValueError:
        return str(at)


def event_from(item: Item) -> EventRow:
    row = _decode_event(item["document"]["S"])
    return replace(row, event=replace(row.event, payload=_bytes_from(item["payload"])))


# -- deliveries --------------------------------------------------------------------------------------------


def delivery_item(row: DeliveryRow) -> Item:
    one = row.delivery
    item: Item = {
        **key_of(delivery_key(one.event_id, one.delivery_id)),
        "delivery_id": {"S": str(one.delivery_id)},
        "endpoint_id": {"S": str(one.endpoint_id)},
        "state": {"S": one.state.value},
        "version": {"N": str(row.version)},
        "document": {"S": _encode(replace(row, own_payload=None)).decode()},
    }
    if row.own_payload is not None:
        item["own_payload"] = _text_or_bytes(row.own_payload)
    if one.state is DeliveryState.PENDING and row.expires_at is not None:
        item |= _entry(
            STATUS_INDEX, f"expiring#{shard_of(one.delivery_id)}", f"{instant(row.expires_at)}#{one.delivery_id}"
        )
    return item | _due_entry(row) | _work_entry(row) | _list_entry(row)


def delivery_from(item: Item) -> DeliveryRow:
    row = _decode_delivery(item["document"]["S"])
    own = item.get("own_payload")
    return row if own is None else replace(row, own_payload=_bytes_from(own))


def _due_entry(row: DeliveryRow) -> Item:
    one = row.delivery
    shard = shard_of(one.delivery_id)
    if one.due_at is None:
        return _entry(DUE_INDEX, f"idle#{shard}", due_order(row)) if one.state is DeliveryState.PENDING else {}
    if one.state is DeliveryState.IN_PROGRESS:
        return _entry(DUE_INDEX, f"leased#{shard}", f"{instant(one.due_at)}#{one.delivery_id}")
    kind = "forced" if one.forced else "waiting"
    return _entry(DUE_INDEX, f"{kind}#{0 if one.forced else shard}", due_order(row))


def _work_entry(row: DeliveryRow) -> Item:
    """The entry in the retry queue, in the dead letters, or among the other settled deliveries."""
    one = row.delivery
    if one.settled_at is None:
        if one.first_failed_at is None:
            return {}
        kind, at = "retry", one.due_at or 0
    else:
        dead = one.state in DEAD_STATES and not one.deleted
        kind, at = one.state.value if dead else "settled", one.settled_at
    return _entry(WORK_INDEX, f"{kind}#{one.org_id}#{shard_of(one.delivery_id)}", f"{instant(at)}#{one.delivery_id}")


def _list_entry(row: DeliveryRow) -> Item:
    one = row.delivery
    if one.deleted:
        return {}
    return _entry(LIST_INDEX, f"deliveries#{one.org_id}#{shard_of(one.delivery_id)}", str(one.delivery_id))


def _entry(index: TableIndex, partition: str, order: str) -> Item:
    return {index.partition_key: {"S": partition}, index.sort_key: {"S": order}}


def _text_or_bytes(payload: bytes) -> dict[str, Any]:
    """Text where the payload is text, so that people can read it. Reading returns the same bytes."""
    try:
        return {"S": payload.decode()}
    except UnicodeDecodeError:
        return {"B": payload}


def _bytes_from(value: dict[str, Any]) -> bytes:
    return value["S"].encode() if "S" in value else bytes(value["B"])


def new_delivery_row(event: Event, new: NewDelivery, ordinal: int) -> DeliveryRow:
    """A delivery just after acceptance: waiting, with the creation time of its event."""
    return DeliveryRow(
        delivery=Delivery(
            delivery_id=new.delivery_id,
            event_id=event.event_id,
            endpoint_id=new.endpoint_id,
            org_id=event.org_id,
            event_type=event.event_type,
            state=DeliveryState.PENDING,
            due_at=new.due_at,
            created_at=event.created_at,
            retries_max=new.retries_max,
            batch=new.batch,
        ),
        ordinal=ordinal,
        expires_at=event.expires_at,
        history=(HistoryEntry(event.created_at, None, DeliveryState.PENDING, 0, notes.ACCEPTED),),
    )


class Held:
    """The rows of a claimed delivery as they were written. Equal if they belong to the same claim."""

    __slots__ = ("delivery", "event")

    def __init__(self, delivery: DeliveryRow, event: EventRow) -> None:
        self.delivery, self.event = delivery, event

    @property
    def _claim(self) -> tuple[UUID, int]:
        return self.delivery.delivery.delivery_id, self.delivery.token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and other._claim == self._claim

    def __hash__(self) -> int:
        return hash(self._claim)


def claim_from(row: DeliveryRow, event: EventRow, *, picked_up: bool, was_due_at: Instant | None) -> Claim:
    """The claim that holds a delivery in progress. It carries the rows as they were written, so that settling it needs
    no read unless somebody else has written since."""
    one, sent = row.delivery, event.event
    assert one.claimed_at is not None and one.due_at is not None and one.worker is not None
    return Claim(
        key=Held(row, event),
        event_key=sent.event_id,
        token=row.token,
        delivery_id=one.delivery_id,
        event_id=sent.event_id,
        endpoint_id=one.endpoint_id,
        org_id=sent.org_id,
        event_type=sent.event_type,
        payload=row.payload(event),
        correlation_id=sent.correlation_id,
        accepted_at=sent.created_at,
        expires_at=sent.expires_at,
        attempt=one.attempt,
        retry_attempts=one.retry_attempts,
        retries_max=one.retries_max,
        first_failed_at=one.first_failed_at,
        claimed_at=one.claimed_at,
        lease_until=one.due_at,
        worker=one.worker,
        picked_up=picked_up,
        ordering_key=sent.ordering_key,
        metadata=sent.metadata,
        trace=sent.trace,
        deliver_at=sent.deliver_at,
        was_due_at=was_due_at,
        uncounted=row.uncounted,
        user_id=sent.user_id,
    )
