"""`accept`: one transaction per event.

A DynamoDB transaction has at most 100 items, so a call with many events is not one transaction but one for each. A call
that fails may therefore have stored some of its events; repeating it, as every caller may, adds nothing twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import DAY, SECOND, Instant
from doorstep.errors import InvalidInput, StaleRouting, StoreUnavailable
from doorstep.model.claim import Claim, Lease
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import RAMP, Circuit, CircuitState
from doorstep.model.event import EventStatus, Receipt, Submission, Verdict, any_left
from doorstep.model.record import Record
from doorstep.stores import notes
from doorstep.stores.dynamodb.client import ITEM_BYTES_MAX, ConditionFailed, Item, Key, key_of
from doorstep.stores.dynamodb.context import Context
from doorstep.stores.dynamodb.groups import group_key, member_of, read_groups
from doorstep.stores.dynamodb.rows import (
    DeliveryRow,
    EventRow,
    claim_from,
    delivery_item,
    event_from,
    event_item,
    event_key,
    instant,
    new_delivery_row,
    pointer_key,
)
from doorstep.stores.dynamodb.tables import DUE_INDEX, TTL_ATTRIBUTE
from doorstep.stores.dynamodb.unit import RACES_MAX, EventUnit, gather, in_parts
from doorstep.stores.dynamodb.variables import number_of, org_routing_key, read_circuits
from doorstep.stores.dynamodb.writes import Write, put, put_new
from doorstep.stores.limits import check_submission
from doorstep.stores.store import Topic

DELIVERIES_AT_ONCE = 45
"""How many deliveries the accepting transaction stores. Each takes two items, and an ordering key one more, of 100."""
_DELIVERIES_LATER = 49
"""How many deliveries each further transaction stores."""
EVENT_BYTES_MAX = ITEM_BYTES_MAX - 80 * 1024
"""How large the payload and metadata of an event may be: an item has 400 KB, and the rest of the row needs some."""


class _Key(Record, frozen=True):
    """A stored idempotency key."""

    expires_at: Instant
    fingerprint: bytes
    receipt: tuple[UUID, Instant, int]


_encode = msgspec.json.Encoder().encode
_decode_key = msgspec.json.Decoder(_Key).decode


class AcceptVerbs(Context):
    async def accept(
        self, submissions: Sequence[Submission], routing: Mapping[UUID, int], now: Instant, lease: Lease | None = None
    ) -> list[Receipt]:
        for submission in submissions:
            check_submission(submission)
            _check_size(submission)
        await self._check_owners(submissions)
        await self._check_routing({one.event.org_id for one in submissions}, routing)
        healthy = await self._healthy(submissions, now) if lease is not None else frozenset()
        receipts = await self._accept_all(submissions, now, lease, healthy)
        if any_left(submissions, receipts):
            self._wake(Topic.DELIVERIES)
        return receipts

    async def _accept_all(
        self, submissions: Sequence[Submission], now: Instant, lease: Lease | None, healthy: Collection[UUID]
    ) -> list[Receipt]:
        """Events that share an id, an idempotency key or an ordering key are stored one after another, in order."""
        chains: defaultdict[object, list[int]] = defaultdict(list)
        keys = [one.idempotency_key for one in submissions if one.idempotency_key is not None]
        ids = {one.event.event_id for one in submissions}
        alone = len(set(keys)) < len(keys) or len(ids) < len(submissions)
        for at, one in enumerate(submissions):
            chains[None if alone else one.event.ordering_key or one.event.event_id].append(at)
        receipts: dict[int, Receipt] = {}

        async def accept_chain(chain: Sequence[int]) -> None:
            for at in chain:
                receipts[at] = await self._accept(submissions[at], now, lease, healthy)

        await gather([accept_chain(chain) for chain in chains.values()])
        return [receipts[at] for at in range(len(submissions))]

    async def _check_routing(self, org_ids: Collection[UUID], routing: Mapping[UUID, int]) -> None:
        """Raise StaleRouting unless these are the current versions."""
        found = await self._aws.get_many(map(org_routing_key, org_ids)) if org_ids else {}
        if any(routing.get(one) != number_of(found.get(org_routing_key(one))) for one in org_ids):
            raise StaleRouting("endpoints changed since the routing was read; read it again and recompute")

    async def _check_owners(self, submissions: Sequence[Submission]) -> None:
        for org_id in {one.event.org_id for one in submissions}:
            await self._check_org(org_id)
        wanted = {(owed.endpoint_id, one.event.org_id) for one in submissions for owed in one.deliveries}
        await self._check_endpoints(wanted)

    async def _healthy(self, submissions: Sequence[Submission], now: Instant) -> frozenset[UUID]:
        """The endpoints whose deliveries may be claimed at once: their circuits are closed and count no failures."""
        wanted = {owed.endpoint_id for one in submissions for owed in one.deliveries if owed.claimable}
        circuits = await read_circuits(self._aws, wanted) if wanted else {}
        return frozenset(one for one in wanted if _is_healthy(circuits.get(one), now))

    async def _accept(
        self, submission: Submission, now: Instant, lease: Lease | None, healthy: Collection[UUID]
    ) -> Receipt:
        for _ in range(RACES_MAX):
            first = await self._first_receipt(submission, now)
            if first is not None:
                return first
            new = _New(submission, now, lease, healthy)
            groups = await self._group_writes(new)  # which may block some of its deliveries
            try:
                await self._aws.transact([*new.writes, *groups])
            except ConditionFailed:
                known = await self._aws.get(event_key(submission.event.event_id))
                if known is not None:
                    return await self._known(submission, event_from(known), now)
                continue  # another event with this idempotency key or ordering key was faster
            await self._complete(new.event, new.later)
            self._announce([*new.rows, *new.later], now)
            return new.receipt
        raise StoreUnavailable("events with the same idempotency key or ordering key keep being accepted; try again")

    async def _first_receipt(self, submission: Submission, now: Instant) -> Receipt | None:
        """The first receipt for this idempotency key, until the key expires."""
        if submission.idempotency_key is None:
            return None
        item = await self._aws.get(idempotency_key(submission.event.org_id, submission.idempotency_key))
        stored = None if item is None else _decode_key(item["document"]["S"])
        if stored is None or stored.expires_at <= now:
            return None
        same = stored.fingerprint == submission.fingerprint
        return Receipt(Verdict.REPEATED if same else Verdict.CONFLICT, *stored.receipt)

    async def _known(self, submission: Submission, stored: EventRow, now: Instant) -> Receipt:
        """The receipt of an event that was stored before. What the earlier call left undone is done now."""
        if stored.missing:
            await self.finish_fan_out(stored)
        known = stored.event
        receipt = Receipt(Verdict.ACCEPTED, known.event_id, known.created_at, stored.deliveries, known=True)
        if submission.idempotency_key is not None:
            await self._aws.put(_key_item(submission, receipt, now))
        return receipt

    # -- ordering groups -----------------------------------------------------------------------------------

    async def _group_writes(self, new: _New) -> list[Write]:
        """Add the deliveries to their groups. All but the first of each group are blocked."""
        event = new.event.event
        if event.ordering_key is None:
            return []
        groups = await read_groups(
            self._aws, [group_key(row.delivery.endpoint_id, event.ordering_key) for row in new.rows]
        )
        for at, row in enumerate(new.rows):
            key = group_key(row.delivery.endpoint_id, event.ordering_key)
            if groups[key].members:
                new.block(at)
            groups[key] = groups[key].with_member(member_of(new.event, row.delivery.delivery_id))
        return [group.write() for group in groups.values()]

    # -- more endpoints than a transaction holds -------------------------------------------------------------

    async def _complete(self, event: EventRow, later: Sequence[DeliveryRow]) -> None:
        """Store the deliveries that did not fit, then remove the marker from the event. Repeating this is harmless."""
        if not later:
            return
        await gather([self._store_later(part) for part in in_parts(later, _DELIVERIES_LATER)])
        await self._units.change(event.event.event_id, (), lambda unit: unit.change_event(missing=()))

    async def _store_later(self, rows: Sequence[DeliveryRow]) -> None:
        writes = [write for row in rows for write in _delivery_writes(row)]
        try:
            await self._aws.transact(writes)
        except ConditionFailed:  # an earlier call has stored all of this part, because parts are always the same
            return

    async def finish_fan_out(self, event: EventRow) -> None:
        """Store what a process that was killed did not store."""
        await self._complete(event, [new_delivery_row(event.event, new, ordinal) for ordinal, new in event.missing])

    async def finish_fan_outs(self, accepted_before: Instant, limit: int) -> int:
        """Finish the fan-outs of events accepted before an instant. Returns how many there were."""
        found = await self._aws.query("fanout", index=DUE_INDEX, before=instant(accepted_before), limit=limit)
        events = await self._aws.get_many([(one["pk"]["S"], one["sk"]["S"]) for one in found])
        rows = [row for row in map(event_from, events.values()) if row.missing]
        await gather([self.finish_fan_out(row) for row in rows])
        return len(rows)


class _New:
    """The rows of a new event, as its first transaction stores them."""

    def __init__(self, submission: Submission, now: Instant, lease: Lease | None, healthy: Collection[UUID]) -> None:
        event, owed = submission.event, submission.deliveries
        self._submission, self._now = submission, now
        rows = [new_delivery_row(event, one, at) for at, one in enumerate(owed)]
        at_once = min(len(rows), DELIVERIES_AT_ONCE)
        self.rows, self.later = rows[:at_once], rows[at_once:]
        if self.later and event.ordering_key is not None:
            raise InvalidInput(
                "ordering_key",
                f"an event with an ordering key can have {DELIVERIES_AT_ONCE} deliveries on DynamoDB, got {len(owed)};"
                " omit the key, or let fewer endpoints receive it",
            )
        self.event = EventRow(
            event=event,
            deliveries=len(owed),
            open_count=len(owed),
            missing=tuple((row.ordinal, owed[row.ordinal]) for row in self.later),
        )
        unit = EventUnit(self.event, self.rows)
        taken = [
            one.delivery_id
            for one in owed[:at_once]
            if one.claimable and one.endpoint_id in healthy and event.ordering_key is None
        ]
        claims = [] if lease is None else [take(unit, one, now, lease.until, lease.worker) for one in taken]
        self.event = replace(unit.event, version=1)
        self.rows = [replace(unit.rows[row.delivery.delivery_id], version=1) for row in self.rows]
        self._claims = claims
        self._receipt = Receipt(Verdict.ACCEPTED, event.event_id, event.created_at, len(owed))

    def block(self, at: int) -> None:
        row = self.rows[at]
        self.rows[at] = replace(row, delivery=replace(row.delivery, due_at=None, blocked=True))

    @property
    def receipt(self) -> Receipt:
        rows = {row.delivery.delivery_id: row for row in self.rows}
        claims = [
            claim_from(rows[one.delivery_id], self.event, picked_up=one.picked_up, was_due_at=one.was_due_at)
            for one in self._claims
        ]
        return replace(self._receipt, claims=tuple(claims))

    @property
    def writes(self) -> list[Write]:
        writes: list[Write] = [put_new(event_item(self.event))]
        if self._submission.idempotency_key is not None:
            writes.append(_put_key(_key_item(self._submission, self._receipt, self._now), self._now))
        return writes + [write for row in self.rows for write in _delivery_writes(row)]


def take(unit: EventUnit, delivery_id: UUID, now: Instant, lease_until: Instant, worker: str) -> Claim:
    """Claim a waiting delivery, within a unit. The claim still has to be written."""
    row = unit.rows[delivery_id]
    attempt, was_due_at = row.delivery.attempt + 1, row.delivery.due_at
    unit.change(
        delivery_id,
        now,
        notes.claimed(worker),
        token=row.token + 1,
        state=DeliveryState.IN_PROGRESS,
        due_at=lease_until,
        attempt=attempt,
        retry_attempts=row.retries_used(attempt, row.delivery.retries_max),
        claimed_at=now,
        worker=worker,
    )
    picked_up = unit.event.status is EventStatus.RECEIVED
    if picked_up:
        unit.set_status(EventStatus.QUEUED, now)
    return claim_from(unit.rows[delivery_id], unit.event, picked_up=picked_up, was_due_at=was_due_at)


def idempotency_key(org_id: UUID, key: str) -> Key:
    """The key may be longer than the 2 KB that a partition key may have, so it is hashed."""
    return f"idempotency#{org_id}#{sha256(key.encode()).hexdigest()}", "key"


def _key_item(submission: Submission, receipt: Receipt, now: Instant) -> Item:
    assert submission.idempotency_key is not None
    expires_at = now + DAY
    stored = _Key(expires_at, submission.fingerprint, (receipt.event_id, receipt.created_at, receipt.deliveries))
    return {
        **key_of(idempotency_key(submission.event.org_id, submission.idempotency_key)),
        "document": {"S": _encode(stored).decode()},
        "valid_until": {"N": str(expires_at)},
        TTL_ATTRIBUTE: {"N": str(expires_at // SECOND + 1)},
    }


def receipt_of_key(item: Item) -> tuple[UUID, Instant, int]:
    """The event that was first sent with an idempotency key, its time, and the number of its deliveries."""
    return _decode_key(item["document"]["S"]).receipt


def _put_key(item: Item, now: Instant) -> Write:
    """Write the key unless another event has it."""
    return {
        "Put": {
            "Item": item,
            "ConditionExpression": "attribute_not_exists(pk) OR valid_until <= :now",
            "ExpressionAttributeValues": {":now": {"N": str(now)}},
        }
    }


def _delivery_writes(row: DeliveryRow) -> list[Write]:
    one = row.delivery
    row = row if row.version else replace(row, version=1)
    pointer = {**key_of(pointer_key(one.delivery_id)), "event_id": {"S": str(one.event_id)}}
    return [put_new(delivery_item(row)), put(pointer)]


def _is_healthy(circuit: Circuit | None, now: Instant) -> bool:
    return circuit is None or (
        circuit.state is CircuitState.CLOSED and not circuit.failures and circuit.changed_at <= now - RAMP
    )


def _check_size(submission: Submission) -> None:
    size = len(submission.event.payload) + len(submission.event.metadata)
    if size > EVENT_BYTES_MAX:
        raise InvalidInput(
            "payload",
            f"an event on DynamoDB may have {EVENT_BYTES_MAX} bytes of payload and metadata, got {size}; send less,"
            " or send a link",
        )
