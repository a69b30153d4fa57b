"""Retention: expires deliveries, archives old dead letters and removes old items, in small batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from doorstep.clock import SECOND, Instant
from doorstep.model.claim import Moved
from doorstep.model.delivery import DeliveryState
from doorstep.stores import notes
from doorstep.stores.dynamodb.actions import ActionVerbs
from doorstep.stores.dynamodb.client import key_from
from doorstep.stores.dynamodb.keys import WORKERS, audit_partition
from doorstep.stores.dynamodb.messages import DELAY_SECONDS_MAX
from doorstep.stores.dynamodb.queue import announcements
from doorstep.stores.dynamodb.rows import (
    DeliveryRow,
    attempt_prefix,
    delivery_key,
    event_from,
    event_key,
    instant,
    pointer_key,
)
from doorstep.stores.dynamodb.stored import change_from, worker_from
from doorstep.stores.dynamodb.tables import DUE_INDEX, SHARDS, STATUS_INDEX, WORK_INDEX
from doorstep.stores.dynamodb.unit import EventUnit, gather, in_parts
from doorstep.stores.dynamodb.writes import delete, delete_versioned
from doorstep.stores.store import Cleaned, Retention

_DELETED_AT_ONCE = 90
_SWEPT_MAX = 500
_SWEEP_EVERY: Instant = 60 * SECOND
_EXPIRING = "expiring#"


class RetentionVerbs(ActionVerbs):
    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        rows = await self._settled(["dead"], dead_before, limit)

        def change_of(delivery_id: UUID) -> Callable[[EventUnit], None]:
            def change(unit: EventUnit) -> None:
                row = unit.rows.get(delivery_id)
                if row is not None and row.delivery.state is DeliveryState.DEAD and not row.delivery.deleted:
                    unit.change(delivery_id, now, notes.ARCHIVED, state=DeliveryState.ARCHIVED)

            return change

        done = await gather(
            [
                self._units.change(one.event_id, [one.delivery_id], change_of(one.delivery_id))
                for one in (row.delivery for row in rows)
            ]
        )
        return Moved(tuple(move for one in done if one is not None for move in one[1].moves))

    async def expire(self, code: str, reason: str, since: Instant, now: Instant, limit: int) -> Moved:
        found = await gather(
            [
                self._aws.query(
                    f"{_EXPIRING}{shard}",
                    index=STATUS_INDEX,
                    after=instant(since + 1),
                    before=instant(now + 1),
                    limit=limit,
                )
                for shard in range(SHARDS)
            ]
        )
        order = STATUS_INDEX.sort_key
        items = sorted((item for items in found for item in items), key=lambda item: item[order]["S"])
        rows = await self._read_deliveries([key_from(item) for item in items])
        waiting = [row for row in rows if row.delivery.state is DeliveryState.PENDING]
        events = list(dict.fromkeys(row.delivery.event_id for row in waiting))[:limit]
        return await self._dead_letter_all(
            [row for row in waiting if row.delivery.event_id in set(events)], code, reason, now
        )

    async def sweep(self, now: Instant, limit: int = _SWEPT_MAX) -> int:
        """Announce what has no message: deliveries that were due more than a minute ago, and those that have come within
        900 seconds since the last sweep; and finish what killed processes left undone. Call this once a minute. Two
        sweepers at once only send more messages. Returns how many messages were sent."""
        await self.finish_fan_outs(now - _SWEEP_EVERY, limit)
        lanes = await self.due_lanes(now)
        soon = now + DELAY_SECONDS_MAX * SECOND
        rows = []
        for lane in lanes:
            rows += await self._waiting(lane.endpoint_id, 0, now - _SWEEP_EVERY, limit)
            rows += await self._waiting(lane.endpoint_id, soon - 2 * _SWEEP_EVERY, soon, limit)
        messages = announcements(rows, now)
        if self._queue is not None:
            await self._queue.send(messages)
        return len(messages)

    async def clean(self, retention: Retention, now: Instant, limit: int) -> Cleaned:
        await self.finish_fan_outs(now - _SWEEP_EVERY, limit)
        settled = await self._settled(["settled"], retention.settled_before, limit)
        archived = await self._settled(["archived"], retention.dead_before, limit)
        dead = (
            await self._settled(["dead"], retention.dead_before, limit - len(archived)) if len(archived) < limit else []
        )
        removed = await self._remove_all([*settled, *archived, *dead])
        inbox = await self._clean_inbox(retention, limit)
        return Cleaned(
            deliveries=len(settled),
            dead_letters=len(archived) + len(dead),
            attempts=sum(attempts for attempts, _ in removed),
            events=sum(events for _, events in removed) + inbox[0],
            inbox_events=inbox[1],
            circuit_changes=await self._clean_circuits(retention.settled_before, limit),
            audit_entries=await self._clean_audit(retention.audit_before, limit),
            workers=await self._clean_workers(retention.workers_before, limit),
        )

    async def _settled(self, kinds: Sequence[str], before: Instant, limit: int) -> list[DeliveryRow]:
        """Deliveries of these kinds that were settled before an instant, oldest first."""
        if not before:
            return []
        orgs = [org.org_id for org in await self._orgs()]
        found = await gather(
            [
                self._aws.query(f"{kind}#{org_id}#{shard}", index=WORK_INDEX, before=instant(before), limit=limit)
                for kind in kinds
                for org_id in orgs
                for shard in range(SHARDS)
            ]
        )
        order = WORK_INDEX.sort_key
        items = sorted((item for items in found for item in items), key=lambda item: item[order]["S"])[:limit]
        rows = await self._read_deliveries([key_from(item) for item in items])
        kept = [row for row in rows if row.delivery.settled_at is not None and row.delivery.settled_at < before]
        return sorted(kept, key=lambda row: (row.delivery.settled_at or 0, row.delivery.delivery_id))

    async def _remove_all(self, rows: Sequence[DeliveryRow]) -> list[tuple[int, int]]:
        """Remove deliveries, those of one event one after another, so that the last one takes the event with it."""
        of_event: defaultdict[UUID, list[DeliveryRow]] = defaultdict(list)
        for row in rows:
            of_event[row.delivery.event_id].append(row)

        async def remove(own: Sequence[DeliveryRow]) -> list[tuple[int, int]]:
            return [await self._remove(row) for row in own]

        return [one for removed in await gather([remove(own) for own in of_event.values()]) for one in removed]

    async def _remove(self, row: DeliveryRow) -> tuple[int, int]:
        """Remove a delivery with its attempts, and its event if it has no other delivery. Returns how many attempts and
        events were removed. If this is interrupted, the next round goes on: the delivery itself goes last."""
        one = row.delivery
        partition = event_key(one.event_id)[0]
        attempts = await self._aws.query(partition, prefix=attempt_prefix(one.delivery_id))
        for part in in_parts([key_from(item) for item in attempts], _DELETED_AT_ONCE):
            await self._aws.transact([delete(key) for key in part])
        found = await self._event_with_deliveries(one.event_id)
        last = found is not None and len(found[1]) <= 1
        writes = [
            delete_versioned(delivery_key(one.event_id, one.delivery_id), row.version),
            delete(pointer_key(one.delivery_id)),
        ]
        if last:
            writes.append(delete(event_key(one.event_id)))
        await self._aws.transact(writes)
        return len(attempts), int(last)

    async def _clean_inbox(self, retention: Retention, limit: int) -> tuple[int, int]:
        """Remove acknowledged inbox events, and those that nobody acknowledged. Returns how many of each."""
        acknowledged = await self._events_in(
            [f"acknowledged#{shard}" for shard in range(SHARDS)], WORK_INDEX, retention.settled_before, limit
        )
        old = [row for row in acknowledged if (row.acknowledged_at or row.event.created_at) < retention.settled_before]
        unread: list[Any] = []
        if retention.inbox_before:
            orgs = [org.org_id for org in await self._orgs()]
            partitions = [f"inbox#{org_id}#{shard}" for org_id in orgs for shard in range(SHARDS)]
            waiting = await self._events_in(partitions, DUE_INDEX, None, limit)
            unread = [row for row in waiting if row.in_inbox and row.event.created_at < retention.inbox_before][:limit]
        for row in (*old, *unread):
            await self._aws.delete(event_key(row.event.event_id))
        return len(old), len(unread)

    async def _events_in(self, partitions: Sequence[str], index: Any, before: Instant | None, limit: int) -> list[Any]:
        if before == 0:
            return []
        edge = None if before is None else instant(before)
        found = await gather([self._aws.query(one, index=index, before=edge, limit=limit) for one in partitions])
        items = sorted((item for items in found for item in items), key=lambda item: item[index.sort_key]["S"])
        stored = await self._aws.get_many([key_from(item) for item in items[:limit]]) if items else {}
        return [event_from(item) for item in stored.values()]

    async def _clean_circuits(self, before: Instant, limit: int) -> int:
        """Keep the newest change of each endpoint: it shows since when its circuit has been in its current state."""
        removed = 0
        for endpoint in await self._all_endpoints() if before else ():
            items = await self._aws.query(f"endpoint#{endpoint.endpoint_id}", prefix="change#")
            old = [item for item in items[:-1] if change_from(item).at < before][: limit - removed]
            for item in old:
                await self._aws.delete(key_from(item))
            removed += len(old)
        return removed

    async def _clean_audit(self, before: Instant, limit: int) -> int:
        removed = 0
        for org in await self._orgs() if before else ():
            items = await self._aws.query(audit_partition(org.org_id), before=instant(before), limit=limit - removed)
            for part in in_parts([key_from(item) for item in items], _DELETED_AT_ONCE):
                await self._aws.transact([delete(key) for key in part])
            removed += len(items)
            if removed >= limit:
                break
        return removed

    async def _clean_workers(self, before: Instant, limit: int) -> int:
        old = [key_from(item) for item in await self._aws.query(WORKERS) if worker_from(item).seen_at < before][:limit]
        for key in old:
            await self._aws.delete(key)
        return len(old)
