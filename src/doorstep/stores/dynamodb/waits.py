"""Locks of tasks, and the repair of what was written while a clock was wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import JUMP, Instant
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Circuit
from doorstep.stores.dynamodb.client import ConditionFailed, key_of
from doorstep.stores.dynamodb.keys import lock_key
from doorstep.stores.dynamodb.retention import RetentionVerbs
from doorstep.stores.dynamodb.rows import DeliveryRow
from doorstep.stores.dynamodb.unit import EventUnit, gather
from doorstep.stores.dynamodb.variables import circuit_item, read_circuits
from doorstep.stores.dynamodb.writes import put_versioned
from doorstep.stores.store import LOCK_MAX, Task

_LEASES_MAX = 10_000
"""How many leases are examined."""

Change = Callable[[Delivery, Instant | None], dict[str, Instant | None] | None]
"""The fields to change in a delivery, given its event's `deliver_at`; None to leave it as it is."""


class WaitVerbs(RetentionVerbs):
    async def renew_leases(self, worker: str, now: Instant) -> None:
        def renewed(one: Delivery, _: Instant | None) -> dict[str, Instant | None] | None:
            held = one.state is DeliveryState.IN_PROGRESS and one.worker == worker
            if not held or one.claimed_at is None or one.claimed_at >= now:
                return None
            return {"due_at": (one.due_at or 0) - one.claimed_at + now, "claimed_at": now}

        rows = await self._in_progress(_LEASES_MAX)
        await self._adjust([row for row in rows if row.delivery.worker == worker], renewed, now)

    async def shift_waits(self, now: Instant, limit: int) -> int:
        leased = await self._in_progress(_LEASES_MAX)
        ahead = [row for row in leased if (row.delivery.claimed_at or 0) > now + JUMP]
        await self._adjust(ahead, _shifted_lease(now), now)
        endpoints = await self._all_endpoints()
        circuits = await read_circuits(self._aws, [one.endpoint_id for one in endpoints]) if endpoints else {}
        await gather([self._shift_circuit(one, now) for one in circuits.values() if one.changed_at > now + JUMP])
        await gather([self._release_later(task, now) for task in Task])
        return await self._shift_waiting(now, limit)

    async def _shift_waiting(self, now: Instant, limit: int) -> int:
        shifted = 0
        for lane in await self.due_lanes(now):
            later = await self._waiting(lane.endpoint_id, now + 1)
            shifted += await self._adjust(later, _shifted_wait(now), now, limit - shifted)
            if shifted >= limit:
                break
        return shifted

    async def _adjust(self, rows: Sequence[DeliveryRow], change: Change, now: Instant, limit: int | None = None) -> int:
        """Apply a change to deliveries, up to `limit` of them. Returns how many were changed."""
        events = await self._read_events({row.delivery.event_id for row in rows})
        wanted: list[tuple[UUID, UUID]] = []
        for row in rows:
            event = events.get(row.delivery.event_id)
            if event is not None and change(row.delivery, event.event.deliver_at) is not None:
                wanted.append((row.delivery.event_id, row.delivery.delivery_id))
        wanted = wanted[:limit]

        def change_of(delivery_id: UUID) -> Callable[[EventUnit], None]:
            def apply(unit: EventUnit) -> None:
                row = unit.rows.get(delivery_id)
                fields = None if row is None else change(row.delivery, unit.event.event.deliver_at)
                if fields is not None:
                    unit.change(delivery_id, now, "", **fields)

            return apply

        await gather([self._units.change(event_id, [one], change_of(one)) for event_id, one in wanted])
        return len(wanted)

    async def _shift_circuit(self, circuit: Circuit, now: Instant) -> None:
        until = None if circuit.until is None else circuit.until - circuit.changed_at + now
        since = None if circuit.failing_since is None else min(circuit.failing_since, now)
        shifted = replace(circuit, until=until, failing_since=since, changed_at=now, version=circuit.version + 1)
        try:
            await self._aws.transact([put_versioned(circuit_item(shifted), circuit.version)])
        except ConditionFailed:
            return  # it has been written since, at a time that is right

    async def _release_later(self, task: Task, now: Instant) -> None:
        """Release a lock that was acquired while the clock was ahead."""
        item = await self._aws.get(lock_key(task))
        if item is not None and int(item["until"]["N"]) > now + LOCK_MAX:
            await self.release_lock(task, item["holder"]["S"])

    async def acquire_lock(self, task: Task, holder: str, now: Instant, until: Instant) -> bool:
        item = {**key_of(lock_key(task)), "holder": {"S": holder}, "until": {"N": str(until)}}
        free = "attribute_not_exists(pk) OR #u <= :now OR #h = :h"
        values = {":now": {"N": str(now)}, ":h": {"S": holder}}
        put = {"Item": item, "ConditionExpression": free, "ExpressionAttributeNames": {"#u": "until", "#h": "holder"}}
        try:
            await self._aws.transact([{"Put": put | {"ExpressionAttributeValues": values}}])
        except ConditionFailed:
            return False
        return True

    async def release_lock(self, task: Task, holder: str) -> None:
        held = {"ConditionExpression": "#h = :h", "ExpressionAttributeNames": {"#h": "holder"}}
        delete = {"Key": key_of(lock_key(task)), **held, "ExpressionAttributeValues": {":h": {"S": holder}}}
        try:
            await self._aws.transact([{"Delete": delete}])
        except ConditionFailed:
            return


def _shifted_lease(now: Instant) -> Change:
    def shifted(one: Delivery, _: Instant | None) -> dict[str, Instant | None] | None:
        if one.state is not DeliveryState.IN_PROGRESS or one.claimed_at is None or one.claimed_at <= now + JUMP:
            return None
        return {"due_at": (one.due_at or 0) - one.claimed_at + now, "claimed_at": now}

    return shifted


def _shifted_wait(now: Instant) -> Change:
    def shifted(one: Delivery, deliver_at: Instant | None) -> dict[str, Instant | None] | None:
        due_at = _due_by(one, deliver_at or 0, now)
        if due_at is None:
            return None
        attempted_at = now if (one.last_attempt_at or 0) > now + JUMP else one.last_attempt_at
        return {"due_at": due_at, "last_attempt_at": attempted_at}

    return shifted


def _due_by(one: Delivery, deliver_at: Instant, now: Instant) -> Instant | None:
    """When a waiting delivery is due if its wait began no later than now; None if that changes nothing."""
    if one.state is not DeliveryState.PENDING or one.due_at is None or one.due_at <= now:
        return None
    if one.last_attempt_at is not None and one.last_attempt_at > now + JUMP:
        return one.due_at - one.last_attempt_at + now
    untouched = one.last_attempt_at is None or one.forced
    return max(now, deliver_at) if untouched and one.due_at > deliver_at else None
