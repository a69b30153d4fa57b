"""Ordering groups: the open deliveries of one endpoint whose events share an ordering key.

One item per group lists its open deliveries in the order of acceptance. Only the first may be attempted; the others are
blocked. The transaction that ends a delivery removes it from the list and makes the next one due.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import Overloaded
from doorstep.model.record import Record
from doorstep.stores.dynamodb.client import Aws, Item, Key, key_of
from doorstep.stores.dynamodb.rows import EventRow, delivery_from, delivery_item, delivery_key
from doorstep.stores.dynamodb.writes import Write, delete_versioned, put_versioned

MEMBERS_MAX = 2_000
"""How many open deliveries an ordering group may have. They take some 170 KB of the 400 KB that an item may have."""

Member = tuple[Instant, UUID, UUID, Instant]
"""The acceptance of an event, the event, its delivery, and the time before which the delivery may not be attempted."""


class Group(Record, frozen=True, kw_only=True):
    key: Key
    version: int = 0
    members: tuple[Member, ...] = ()

    def with_member(self, member: Member) -> Group:
        if len(self.members) >= MEMBERS_MAX:
            raise Overloaded(
                f"an ordering key may have {MEMBERS_MAX} open deliveries to one endpoint on DynamoDB, which are all taken;"
                " send more when some have ended, or spread events over more keys"
            )
        later = [at for at, one in enumerate(self.members) if one[:2] > member[:2]]
        at = later[0] if later else len(self.members)  # a dead letter that is retried returns to its old place
        return replace(self, members=(*self.members[:at], member, *self.members[at:]))

    def without(self, delivery_ids: Sequence[UUID]) -> Group:
        return replace(self, members=tuple(one for one in self.members if one[2] not in delivery_ids))

    def write(self) -> Write:
        """The write that replaces the version that was read. An empty group needs no item."""
        if not self.members:
            return delete_versioned(self.key, self.version)
        return put_versioned(_item(replace(self, version=self.version + 1)), self.version)


def group_key(endpoint_id: UUID, ordering_key: str) -> Key:
    return f"group#{endpoint_id}#{sha256(ordering_key.encode()).hexdigest()[:32]}", "group"


async def read_groups(aws: Aws, keys: Sequence[Key]) -> dict[Key, Group]:
    found = await aws.get_many(keys)
    return {key: _group(key, found.get(key)) for key in keys}


def member_of(event: EventRow, delivery_id: UUID) -> Member:
    one = event.event
    return one.created_at, one.event_id, delivery_id, one.deliver_at or 0


async def move(
    aws: Aws,
    event: EventRow,
    ended: Sequence[tuple[UUID, UUID]],
    reopened: Sequence[tuple[UUID, UUID]],
    at: Instant,
) -> list[Write]:
    """The writes by which deliveries of an event, given as (endpoint, delivery), leave their groups or return to them."""
    ordering_key = event.event.ordering_key
    assert ordering_key is not None, "the event has an ordering key"
    keys = [group_key(endpoint_id, ordering_key) for endpoint_id, _ in (*ended, *reopened)]
    before = await read_groups(aws, keys)
    after = dict(before)
    for endpoint_id, delivery_id in ended:
        key = group_key(endpoint_id, ordering_key)
        after[key] = after[key].without([delivery_id])
    for endpoint_id, delivery_id in reopened:
        key = group_key(endpoint_id, ordering_key)
        after[key] = after[key].with_member(member_of(event, delivery_id))
    writes: list[Write] = []
    for key, group in after.items():
        if group.members != before[key].members:
            writes.append(group.write())
            if group.members and group.members[:1] != before[key].members[:1]:
                writes += await _unblock(aws, group.members[0], at, but=[one for _, one in reopened])
    return writes


async def _unblock(aws: Aws, member: Member, at: Instant, but: Sequence[UUID]) -> list[Write]:
    """Make the first delivery of a group due, unless it is one that the same transaction writes."""
    _, event_id, delivery_id, not_before = member
    if delivery_id in but:
        return []
    item = await aws.get(delivery_key(event_id, delivery_id))
    row = None if item is None else delivery_from(item)
    if row is None or not row.delivery.blocked:
        return []
    due_at = at if row.delivery.forced else max(at, not_before)
    freed = replace(row, version=row.version + 1, delivery=replace(row.delivery, blocked=False, due_at=due_at))
    return [put_versioned(delivery_item(freed), row.version)]


_encode = msgspec.json.Encoder().encode
_decode_members = msgspec.json.Decoder(tuple[Member, ...]).decode


def _item(group: Group) -> Item:
    members = _encode(group.members).decode()
    return {**key_of(group.key), "version": {"N": str(group.version)}, "members": {"S": members}}


def _group(key: Key, item: Item | None) -> Group:
    if item is None:
        return Group(key=key)
    return Group(key=key, version=int(item["version"]["N"]), members=_decode_members(item["members"]["S"]))
