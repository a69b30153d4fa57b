"""`due_lanes`, `claim`, `settle`, `release` and `expired`. The delivery guarantees depend on these verbs and on `accept`.

`DueIndex` only proposes deliveries. An index is late, so every proposal is read from the table, and the claim itself is a
conditional write: of two workers that claim the same delivery, one is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from heapq import merge
from random import sample
from uuid import UUID, uuid4

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.claim import Claim, Lane, Quota, Settled, Settlement, StatusChange
from doorstep.model.delivery import DeliveryState, check_transition
from doorstep.model.endpoint import Circuit, EndpointState
from doorstep.stores import notes
from doorstep.stores.dynamodb.accept import AcceptVerbs, take
from doorstep.stores.dynamodb.attempts import attempt_item, attempt_of
from doorstep.stores.dynamodb.client import Key, key_from
from doorstep.stores.dynamodb.keys import endpoint_key
from doorstep.stores.dynamodb.messages import DueMessage
from doorstep.stores.dynamodb.rows import (
    DeliveryRow,
    EventRow,
    Held,
    claim_from,
    delivery_from,
    delivery_key,
    event_from,
    event_key,
    instant,
)
from doorstep.stores.dynamodb.stored import endpoint_from
from doorstep.stores.dynamodb.tables import DUE_INDEX, SHARDS
from doorstep.stores.dynamodb.unit import EventUnit, gather, in_parts
from doorstep.stores.dynamodb.variables import give_back, hold, read_circuits, reserve
from doorstep.stores.dynamodb.writes import put
from doorstep.stores.limits import count_within, storable
from doorstep.stores.store import Topic

REASON_MAX = 16 * 1024
"""How many characters of a reason a delivery keeps."""
_SETTLED_AT_ONCE = 24
"""How many deliveries of one event one transaction settles: each may take four of its 100 items."""
_WAITING_READ_MAX = 1_000
"""How many waiting deliveries of an endpoint are examined at most for one claim, in each shard."""
_ROUNDS_MAX = 20
"""How often a claim looks for further deliveries when other workers were faster. 40 workers that claim 7 of the same 200
deliveries at once need up to six rounds."""
_WAITING = [f"waiting#{shard}" for shard in range(SHARDS)]
_FORCED = "forced#0"
_IDLE = [f"idle#{shard}" for shard in range(SHARDS)]
"""Deliveries that wait for another delivery or for an operator, and have no due time."""
_LEASED = [f"leased#{shard}" for shard in range(SHARDS)]


class PathVerbs(AcceptVerbs):
    is_called = False
    """Whether SQS calls this process with messages, as a function on AWS: it then receives none itself."""

    async def due_lanes(self, now: Instant, later_max: int | None = None) -> list[Lane]:
        # Only workers that claim call this, so only they take messages.
        if self._queue is not None and not self.is_called:
            self._queue.receive(lambda: self._wake(Topic.DELIVERIES))
        found = await gather([self._lanes_in(shard) for shard in (*_WAITING, _FORCED)])
        first: dict[UUID, Instant] = {}
        for endpoint_id, due_at in (one for lanes in found for one in lanes):
            first[endpoint_id] = min(first.get(endpoint_id, due_at), due_at)
        circuits = await read_circuits(self._aws, first) if first else {}
        await self._learn_owners(first)
        ordered = sorted(first.items(), key=lambda one: one[1])
        lanes = await gather([self._lane(one, due_at, circuits.get(one)) for one, due_at in ordered])
        return lanes if later_max is None else await self._near(lanes, now, later_max)

    async def _near(self, lanes: Sequence[Lane], now: Instant, later_max: int) -> list[Lane]:
        """Leave out what a worker cannot attempt yet."""
        due = [lane for lane in lanes if lane.due_at <= now]
        later = [lane for lane in lanes if lane.due_at > now]
        recoverable = [lane for lane in later[later_max:] if lane.recoverable_at is not None]
        items = await self._aws.get_many([endpoint_key(lane.endpoint_id) for lane in due]) if due else {}
        states = {one.endpoint_id: one.state for one in map(endpoint_from, items.values())}
        held = (EndpointState.PAUSED, EndpointState.DISABLED)
        attemptable = [lane for lane in due if states.get(lane.endpoint_id) not in held]
        return [*attemptable, *later[:later_max], *recoverable]

    async def _lanes_in(self, shard: str) -> list[tuple[UUID, Instant]]:
        """Each endpoint with waiting deliveries in this shard and its first due time, with one seek per endpoint."""
        lanes: list[tuple[UUID, Instant]] = []
        after: str | None = None
        while found := await self._aws.query(shard, index=DUE_INDEX, after=after, limit=1):
            endpoint_id, due_at, *_ = found[0][DUE_INDEX.sort_key]["S"].split("#")
            lanes.append((UUID(endpoint_id), int(due_at)))
            after = f"{endpoint_id}#~"  # sorts after every due time
        return lanes

    async def _lane(self, endpoint_id: UUID, due_at: Instant, circuit: Circuit | None) -> Lane:
        if circuit is None or not circuit.changed_at:
            return Lane(endpoint_id, self._owners[endpoint_id], due_at, circuit)
        recoverable = _recoverable(await self._waiting(endpoint_id))
        recoverable_at = recoverable[0].delivery.last_attempt_at if recoverable else None
        return Lane(endpoint_id, self._owners[endpoint_id], due_at, circuit, recoverable_at)

    # -- claiming ------------------------------------------------------------------------------------------

    async def claim(
        self,
        quotas: Sequence[Quota],
        now: Instant,
        lease_until: Instant,
        worker: str,
        forced_max: int = 0,
        unserved: Sequence[UUID] = (),
    ) -> list[Claim]:
        claims: list[Claim] = []
        if forced_max:
            forced = await self._due_forced(now, forced_max, unserved)
            slots: set[UUID] = set()
            for quota in quotas:  # forced deliveries are not limited, but count
                own = [one for one in (row.delivery for row in forced) if one.endpoint_id == quota.endpoint_id]
                if quota.concurrency_max is not None and own:
                    ids = {one.delivery_id for one in own}
                    await hold(self._aws, quota.endpoint_id, ids, now, lease_until)
                    slots |= ids
            claims += await self._claim_all(forced, now, lease_until, worker, forced=True, slots=slots)
        for taken in await gather([self._claim_quota(quota, now, lease_until, worker) for quota in quotas]):
            claims += taken
        return _once_picked_up(claims)

    async def claim_announced(
        self, messages: Sequence[DueMessage], now: Instant, lease_until: Instant, worker: str
    ) -> list[Claim]:
        """Claim the deliveries that messages name, as far as they are due. The keys lead straight to the items, so that
        a late index does not matter. The limits and the circuit of the endpoint are the caller's to check."""
        keys = [delivery_key(one.event_id, one.delivery_id) for one in messages]
        rows = await self._read_deliveries(keys)
        due = [row for row in rows if _is_waiting(row) and (row.delivery.due_at or 0) <= now]
        return await self._claim_all(sorted(due, key=_due_position), now, lease_until, worker)

    async def _claim_quota(self, quota: Quota, now: Instant, lease_until: Instant, worker: str) -> list[Claim]:
        """Claim what the quota allows. If other workers are faster, try further deliveries, chosen by chance so that all
        of them do not meet again."""
        claims: list[Claim] = []
        for number in range(_ROUNDS_MAX):
            left = replace(quota, count=quota.count - len(claims))
            rows = (await self._offered(left, now, left.count * (8 if number else 1)))[: left.count * 8]
            rows = rows[: left.count] if number == 0 else _some_of(rows, left.count)
            taken = await self._claim_offered(left, rows, now, lease_until, worker)
            claims += taken
            limits = (quota.bytes_max, quota.concurrency_max, quota.rate_per_second)
            if len(taken) == len(rows) or limits != (None, None, None):
                break  # what is left within limits is for the next round of the worker
        return claims

    async def _claim_offered(
        self, quota: Quota, rows: list[DeliveryRow], now: Instant, lease_until: Instant, worker: str
    ) -> list[Claim]:
        if quota.bytes_max is not None:
            rows = await self._within_bytes(rows, quota.bytes_max)
        limited = quota.concurrency_max is not None or quota.rate_per_second is not None
        if not limited or not rows:
            return await self._claim_all(rows, now, lease_until, worker)
        ids = [row.delivery.delivery_id for row in rows]
        limits = (quota.concurrency_max, quota.rate_per_second)
        reserved = await reserve(self._aws, quota.endpoint_id, ids, now, lease_until, *limits)
        held = reserved if quota.concurrency_max is not None else ()
        wanted = [row for row in rows if row.delivery.delivery_id in set(reserved)]
        claims = await self._claim_all(wanted, now, lease_until, worker, slots=held)
        unused = set(reserved) - {claim.delivery_id for claim in claims}
        if held and unused:
            await give_back(self._aws, quota.endpoint_id, unused)
        return claims

    async def _offered(self, quota: Quota, now: Instant, limit: int) -> list[DeliveryRow]:
        """The deliveries that the quota selects, in order, as far as they are still waiting."""
        if quota.attempted_before is not None:
            rows = _recoverable(await self._waiting(quota.endpoint_id))
            return [row for row in rows if (row.delivery.last_attempt_at or 0) < quota.attempted_before]
        until = now if quota.due_until is None else min(now, quota.due_until)
        rows = await self._waiting(quota.endpoint_id, quota.due_after + 1, until, limit)
        return [row for row in rows if quota.due_after < (row.delivery.due_at or 0) <= until]

    async def _waiting(
        self,
        endpoint_id: UUID,
        due_from: Instant = 0,
        due_until: Instant | None = None,
        limit: int = _WAITING_READ_MAX,
    ) -> list[DeliveryRow]:
        """Waiting deliveries of an endpoint with a due time, those that are due first before the others."""
        # An index that is late still lists what was claimed a moment ago, so a few more are read than are wanted.
        limit += 32
        before = f"{endpoint_id}#~" if due_until is None else f"{endpoint_id}#{instant(due_until + 1)}"
        found = await gather(
            [
                self._aws.query(
                    shard, index=DUE_INDEX, after=f"{endpoint_id}#{instant(due_from)}", before=before, limit=limit
                )
                for shard in (*_WAITING, _FORCED)
            ]
        )
        items = merge(*found, key=lambda item: item[DUE_INDEX.sort_key]["S"])
        keys = [key_from(item) for item in items][:limit]
        return self._in_order(await self._read_deliveries(keys))

    @staticmethod
    def _in_order(rows: Iterable[DeliveryRow]) -> list[DeliveryRow]:
        """Those that wait, in the order in which they are due."""
        return sorted((row for row in rows if _is_waiting(row)), key=_due_position)

    async def _forced(self) -> Sequence[DeliveryRow]:
        found = await self._aws.query(_FORCED, index=DUE_INDEX, limit=_WAITING_READ_MAX)
        return await self._read_deliveries([key_from(item) for item in found])

    async def _due_forced(self, now: Instant, limit: int, unserved: Sequence[UUID]) -> list[DeliveryRow]:
        rows = await self._forced()
        due = [row for row in rows if _is_waiting(row) and row.delivery.forced and (row.delivery.due_at or 0) <= now]
        endpoints = await self._aws.get_many([endpoint_key(row.delivery.endpoint_id) for row in due]) if due else {}
        active = {
            one.endpoint_id
            for one in map(endpoint_from, endpoints.values())
            if one.state is EndpointState.ACTIVE and one.endpoint_id not in unserved
        }
        return sorted((row for row in due if row.delivery.endpoint_id in active), key=_due_position)[:limit]

    async def _within_bytes(self, rows: list[DeliveryRow], bytes_max: int) -> list[DeliveryRow]:
        events = await self._read_events({row.delivery.event_id for row in rows})
        known = [row for row in rows if row.delivery.event_id in events]
        sizes = [len(row.payload(events[row.delivery.event_id])) for row in known]
        return known[: count_within(sizes, bytes_max)]

    async def _claim_all(
        self,
        rows: Sequence[DeliveryRow],
        now: Instant,
        lease_until: Instant,
        worker: str,
        *,
        forced: bool = False,
        slots: Collection[UUID] = (),
    ) -> list[Claim]:
        """Claim these deliveries, except those that somebody else claims or changes at the same time."""
        events = await self._read_events({row.delivery.event_id for row in rows})
        of_event: defaultdict[UUID, list[DeliveryRow]] = defaultdict(list)
        for row in rows:
            if row.delivery.event_id in events:
                of_event[row.delivery.event_id].append(row)

        def change(unit: EventUnit) -> list[Claim]:
            wanted = [row for row in of_event[unit.event.event.event_id]]
            claims = []
            for row in wanted:
                newest = unit.rows.get(row.delivery.delivery_id)
                if newest is None or not _is_waiting(newest) or newest.delivery.due_at != row.delivery.due_at:
                    continue
                claim = take(unit, row.delivery.delivery_id, now, lease_until, worker)
                if row.delivery.delivery_id in slots:
                    unit.change(row.delivery.delivery_id, now, "", holds_slot=True)
                claims.append(claim._replace(was_due_at=None) if forced else claim)
            return claims

        parts = [(event_id, part) for event_id, own in of_event.items() for part in in_parts(own, _SETTLED_AT_ONCE)]
        results = await gather(
            [
                self._units.change(
                    event_id,
                    [row.delivery.delivery_id for row in part],
                    change,
                    EventUnit(events[event_id], part) if len(of_event[event_id]) == len(part) else None,
                )
                for event_id, part in parts
            ]
        )
        claimed: dict[UUID, Claim] = {}
        for result in results:
            if result is not None:
                claims, unit = result
                claimed |= {one.delivery_id: _as_written(one, unit) for one in claims}
        order = [row.delivery.delivery_id for row in rows]
        return [claimed[one] for one in order if one in claimed]

    # -- settling ------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        for settlement in settlements:
            check_transition(DeliveryState.IN_PROGRESS, settlement.state)
        of_event: defaultdict[UUID, list[Settlement]] = defaultdict(list)
        for settlement in settlements:
            of_event[settlement.claim.event_id].append(settlement)
        results = await gather([self._settle_event(one, own, now) for one, own in of_event.items()])
        late = {id(one) for lates, _ in results for one in lates}
        changes = tuple(change for _, change in results if change is not None)
        return Settled(tuple(one.claim for one in settlements if id(one) in late), changes)

    async def _settle_event(
        self, event_id: UUID, settlements: Sequence[Settlement], now: Instant
    ) -> tuple[list[Settlement], StatusChange | None]:
        """Settle claims of one event. Returns the settlements that were late, and the last change of its status."""
        late: list[Settlement] = []
        changed: StatusChange | None = None
        retries = 0
        for part in in_parts(settlements, _SETTLED_AT_ONCE):
            settled = await self._settle_part(event_id, part, now)
            if settled is None:
                late += part
                continue
            lates, change, used = settled
            late += lates
            retries = max(retries, used)
            if change is not None:
                old = changed.old_status if changed else change.old_status
                changed = replace(change, old_status=old, retry_attempts=retries)
        return late, changed

    async def _settle_part(
        self, event_id: UUID, settlements: Sequence[Settlement], now: Instant
    ) -> tuple[list[Settlement], StatusChange | None, int] | None:
        ids = list(dict.fromkeys(one.claim.delivery_id for one in settlements))

        def change(unit: EventUnit) -> tuple[list[Settlement], StatusChange | None, int, list[UUID]]:
            late: list[Settlement] = []
            slots: list[UUID] = []
            retries = 0
            for settlement in settlements:
                claim = settlement.claim
                row = unit.rows.get(claim.delivery_id)
                is_late = not _holds(row, claim)
                if row is not None:
                    attempt = attempt_of(settlement, is_late)
                    sequence = f"1#{instant(now)}#{uuid4().hex}" if is_late else "0"
                    unit.add(put(attempt_item(unit.event.event, attempt, sequence)))
                if is_late or row is None:
                    late.append(settlement)
                    continue
                if row.holds_slot:
                    slots.append(claim.delivery_id)
                _apply(unit, row, settlement, now)
                retries = max(retries, unit.rows[claim.delivery_id].delivery.retry_attempts)
            return late, unit.update_status(now, retries), retries, slots

        done = await self._units.change(event_id, ids, change, _unit_of(settlements))
        if done is None:
            return None
        (late, status, retries, slots), _ = done
        if slots:
            await give_back(self._aws, settlements[0].claim.endpoint_id, slots)
        return late, status, retries

    async def release(self, claims: Sequence[Claim], now: Instant) -> list[Claim]:
        results = await gather([self._release(claim, now) for claim in claims])
        return [claim for claim, released in zip(claims, results, strict=True) if released]

    async def _release(self, claim: Claim, now: Instant) -> bool:
        def change(unit: EventUnit) -> DeliveryRow | None:
            row = unit.rows.get(claim.delivery_id)
            if row is None or not _holds(row, claim):
                return None
            attempt = row.delivery.attempt - 1
            unit.change(
                claim.delivery_id,
                now,
                notes.released(claim.worker),
                state=DeliveryState.PENDING,
                due_at=max(now, claim.was_due_at or 0),
                attempt=attempt,
                retry_attempts=row.retries_used(attempt, row.delivery.retries_max),
                claimed_at=None,
                worker=None,
                holds_slot=False,
            )
            return row

        done = await self._units.change(claim.event_id, [claim.delivery_id], change)
        if done is None or done[0] is None:
            return False
        if done[0].holds_slot:
            await give_back(self._aws, claim.endpoint_id, [claim.delivery_id])
        return True

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        found = await gather(
            [self._aws.query(shard, index=DUE_INDEX, before=instant(now + 1), limit=limit) for shard in _LEASED]
        )
        items = sorted((item for items in found for item in items), key=lambda item: item[DUE_INDEX.sort_key]["S"])
        rows = [
            row
            for row in await self._read_deliveries([key_from(item) for item in items[: limit + 32]])
            if row.delivery.state is DeliveryState.IN_PROGRESS and (row.delivery.due_at or 0) <= now
        ]
        rows = sorted(rows, key=_due_position)[:limit]
        events = await self._read_events({row.delivery.event_id for row in rows})
        return [
            claim_from(row, events[row.delivery.event_id], picked_up=False, was_due_at=None)._replace(
                payload=b"", last_code=row.delivery.code
            )
            for row in rows
            if row.delivery.event_id in events
        ]

    # -- reading -------------------------------------------------------------------------------------------

    async def _idle(self, endpoint_id: UUID, limit: int) -> list[DeliveryRow]:
        """Waiting deliveries of an endpoint without a due time, in order of acceptance."""
        found = await gather(
            [self._aws.query(shard, index=DUE_INDEX, prefix=f"{endpoint_id}#", limit=limit) for shard in _IDLE]
        )
        rows = await self._read_deliveries([key_from(item) for items in found for item in items])
        idle = [row for row in rows if row.delivery.state is DeliveryState.PENDING and row.delivery.due_at is None]
        return sorted(idle, key=_due_position)[:limit]

    async def _in_progress(self, limit: int) -> list[DeliveryRow]:
        """Deliveries under a lease, those whose lease ends first before the others."""
        found = await gather([self._aws.query(shard, index=DUE_INDEX, limit=limit) for shard in _LEASED])
        rows = await self._read_deliveries([key_from(item) for items in found for item in items])
        return [row for row in rows if row.delivery.state is DeliveryState.IN_PROGRESS]

    async def _read_deliveries(self, keys: Iterable[Key]) -> list[DeliveryRow]:
        wanted = list(keys)
        return [delivery_from(item) for item in (await self._aws.get_many(wanted)).values()] if wanted else []

    async def _read_events(self, event_ids: Iterable[UUID]) -> dict[UUID, EventRow]:
        wanted = [event_key(one) for one in event_ids]
        rows = map(event_from, (await self._aws.get_many(wanted)).values()) if wanted else ()
        return {row.event.event_id: row for row in rows}


def _apply(unit: EventUnit, row: DeliveryRow, settlement: Settlement, now: Instant) -> None:
    outcome, reply = settlement.outcome, settlement.outcome.reply
    delivery = row.delivery
    used = delivery.retry_attempts if settlement.counted else row.retries_used(delivery.attempt - 1, 2**31)
    first_failed_at = delivery.first_failed_at
    if not outcome.succeeded and first_failed_at is None:
        first_failed_at = reply.finished_at
    unit.change(
        delivery.delivery_id,
        now,
        storable(notes.settled(settlement)),
        on_recovery=settlement.on_recovery,
        uncounted=row.uncounted + (not settlement.counted),
        holds_slot=False,
        state=settlement.state,
        due_at=settlement.due_at,
        retries_max=settlement.retries_max,
        retry_attempts=min(used, settlement.retries_max),
        forced=False,
        claimed_at=None,
        worker=None,
        first_failed_at=first_failed_at,
        last_attempt_at=reply.finished_at,
        settled_at=None if settlement.state is DeliveryState.PENDING else now,
        category=outcome.category,
        code=outcome.code and storable(outcome.code),
        reason=None if outcome.succeeded else storable(outcome.reason[:REASON_MAX]),
        response_code=reply.status,
    )


def _some_of(rows: list[DeliveryRow], count: int) -> list[DeliveryRow]:
    return sorted(sample(rows, min(count, len(rows))), key=_due_position)


def _holds(row: DeliveryRow | None, claim: Claim) -> bool:
    """Whether the claim still holds its delivery: it is the newest, and was not settled."""
    return row is not None and row.token == claim.token and row.delivery.state is DeliveryState.IN_PROGRESS


def _unit_of(settlements: Sequence[Settlement]) -> EventUnit | None:
    """The rows as they were claimed. Of several claims, the newest event row is likely still current; if not, the write
    is refused and the rows are read."""
    held = [one.claim.key for one in settlements]
    if len({one.claim.delivery_id for one in settlements}) < len(held) or not all(
        isinstance(one, Held) for one in held
    ):
        return None
    known = [one for one in held if isinstance(one, Held)]
    newest = max((one.event for one in known), key=lambda row: row.version)
    return EventUnit(newest, [one.delivery for one in known])


def _as_written(claim: Claim, unit: EventUnit) -> Claim:
    return claim._replace(key=Held(unit.rows[claim.delivery_id], unit.event))


def _once_picked_up(claims: list[Claim]) -> list[Claim]:
    """Of several claims of one event, only the first one is marked `picked_up`."""
    seen: set[UUID] = set()
    marked = []
    picked = {claim.event_id for claim in claims if claim.picked_up}
    for claim in claims:
        first = claim.event_id in picked and claim.event_id not in seen
        seen.add(claim.event_id)
        marked.append(claim._replace(picked_up=first))
    return marked


def _is_waiting(row: DeliveryRow) -> bool:
    return row.delivery.state is DeliveryState.PENDING and row.delivery.due_at is not None


def _due_position(row: DeliveryRow) -> tuple[Instant, Instant, int, UUID]:
    return row.delivery.due_at or 0, row.delivery.created_at, row.ordinal, row.delivery.delivery_id


def _recoverable(rows: Iterable[DeliveryRow]) -> list[DeliveryRow]:
    """The deliveries that wait for a recovery, the least recently attempted one first."""
    return sorted((row for row in rows if row.on_recovery), key=lambda row: row.delivery.last_attempt_at or 0)
