"""What the store keeps about itself and about endpoints: the routing version, circuits and the use of limits."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.endpoint import Circuit
from doorstep.model.record import Record
from doorstep.stores.dynamodb.client import Aws, ConditionFailed, Item, Key, key_of
from doorstep.stores.dynamodb.writes import Write, put, put_versioned
from doorstep.stores.limits import admit

ROUTING: Key = ("variable", "routing")

_encode = msgspec.json.Encoder().encode
_decode_circuit = msgspec.json.Decoder(Circuit).decode


ORG_ROUTING = "routing"
"""The partition with the routing version of each organization."""


def org_routing_key(org_id: UUID) -> Key:
    return ORG_ROUTING, str(org_id)


def number_of(item: Item | None) -> int:
    return 0 if item is None else int(item["number"]["N"])


def number_item(key: Key, number: int) -> Item:
    return {**key_of(key), "number": {"N": str(number)}}


def next_change(number: int, org_ids: Collection[UUID]) -> list[Write]:
    """Give organizations the routing version `number`, which follows the last one of all organizations."""
    counted: dict[str, object] = {"Item": number_item(ROUTING, number)}
    if number == 1:
        counted["ConditionExpression"] = "attribute_not_exists(pk)"
    else:
        counted |= {"ConditionExpression": "#n = :n", "ExpressionAttributeNames": {"#n": "number"}}
        counted["ExpressionAttributeValues"] = {":n": {"N": str(number - 1)}}
    return [{"Put": counted}, *(put(number_item(org_routing_key(one), number)) for one in org_ids)]


# -- circuits ----------------------------------------------------------------------------------------------


def circuit_key(endpoint_id: UUID) -> Key:
    return f"endpoint#{endpoint_id}", "circuit"


def circuit_item(circuit: Circuit) -> Item:
    key = key_of(circuit_key(circuit.endpoint_id))
    document = _encode(circuit).decode()
    return {**key, "version": {"N": str(circuit.version)}, "document": {"S": document}}


def circuit_from(item: Item) -> Circuit:
    return _decode_circuit(item["document"]["S"])


async def read_circuits(aws: Aws, endpoint_ids: Collection[UUID]) -> dict[UUID, Circuit]:
    """The stored circuits of these endpoints."""
    found = await aws.get_many([circuit_key(one) for one in endpoint_ids])
    circuits = map(circuit_from, found.values())
    return {circuit.endpoint_id: circuit for circuit in circuits}


# -- limits that all workers share ---------------------------------------------------------------------------


_ANY_NUMBER = 2**31


class Usage(Record, frozen=True, kw_only=True):
    """How much of its limits an endpoint uses. Only endpoints with limits have it."""

    version: int = 0
    rate_next_at: Instant = 0
    slots: dict[str, Instant] = msgspec.field(default_factory=dict)
    """The deliveries that hold a slot, with the end of their lease. A slot whose lease has ended is free again: its
    worker is lost, or its claim was never written."""


_decode_usage = msgspec.json.Decoder(Usage).decode


def usage_key(endpoint_id: UUID) -> Key:
    return f"endpoint#{endpoint_id}", "usage"


async def reserve(
    aws: Aws,
    endpoint_id: UUID,
    delivery_ids: list[UUID],
    now: Instant,
    lease_until: Instant,
    concurrency_max: int | None,
    rate_per_second: float | None,
) -> list[UUID]:
    """Reserve slots for these deliveries in order, and admit them under the rate; as many as the limits allow."""
    while True:
        item = await aws.get(usage_key(endpoint_id))
        usage = Usage() if item is None else _decode_usage(item["document"]["S"])
        slots = {one: until for one, until in usage.slots.items() if until > now}
        # A slot of one of these deliveries belongs to a worker that is claiming it now.
        taken = [one for one in delivery_ids if str(one) not in slots]
        if concurrency_max is not None:
            taken = taken[: max(0, concurrency_max - len(slots))]
        next_at = usage.rate_next_at
        if rate_per_second is not None:
            admitted, next_at = admit(rate_per_second, next_at, now, len(taken))
            taken = taken[:admitted]
        if not taken:
            return []
        if concurrency_max is not None:
            slots |= {str(one): lease_until for one in taken}
        changed = replace(usage, version=usage.version + 1, rate_next_at=next_at, slots=slots)
        if await _write_usage(aws, endpoint_id, changed):
            return taken


async def hold(aws: Aws, endpoint_id: UUID, delivery_ids: Collection[UUID], now: Instant, lease_until: Instant) -> None:
    """Let these deliveries hold slots, whether or not any are free."""
    await reserve(aws, endpoint_id, list(delivery_ids), now, lease_until, _ANY_NUMBER, None)


async def give_back(aws: Aws, endpoint_id: UUID, delivery_ids: Collection[UUID]) -> None:
    """Free the slots of deliveries whose attempt has ended. If this fails, they are free when the lease ends."""
    ended = {str(one) for one in delivery_ids}
    while True:
        item = await aws.get(usage_key(endpoint_id))
        usage = Usage() if item is None else _decode_usage(item["document"]["S"])
        slots = {one: until for one, until in usage.slots.items() if one not in ended}
        if slots == usage.slots or await _write_usage(
            aws, endpoint_id, replace(usage, version=usage.version + 1, slots=slots)
        ):
            return


async def _write_usage(aws: Aws, endpoint_id: UUID, usage: Usage) -> bool:
    document = _encode(usage).decode()
    item = {**key_of(usage_key(endpoint_id)), "version": {"N": str(usage.version)}, "document": {"S": document}}
    try:
        await aws.transact([put_versioned(item, usage.version - 1)])
    except ConditionFailed:
        return False
    return True
