"""Claim due deliveries under a lease, as slots allow, and fairly across organizations and endpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import MILLISECOND, SECOND, Clock, Instant, seconds
from doorstep.engine import facts
from doorstep.engine.buffer import ClaimBuffer
from doorstep.engine.capacity import Capacity
from doorstep.engine.circuits import Circuits
from doorstep.engine.directory import Directory, Tuning
from doorstep.model.attempt import Code
from doorstep.model.claim import Claim, Lane, Quota
from doorstep.model.endpoint import Circuit, Endpoint, EndpointState
from doorstep.policy.circuit import allowance, attemptable, parts_of, probing
from doorstep.policy.classification import DELETED_WHILE_WAITING
from doorstep.policy.fairness import Demand, byte_shares, shares
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry
from doorstep.transports.transport import Transport

_FORCED_MAX = 64
_DEAD_LETTER_BATCH = 1_000
_FULL_ENDPOINT_PAUSE: Instant = 100 * MILLISECOND
"""How soon to recheck an endpoint that is at its concurrency limit. Another worker may finish an attempt at any time,
and no wake-up reports that."""
_LATER_MAX = 100
"""How many endpoints without a due delivery a round looks at, those first that are due first."""
_FAILING_AFTER = 5
_FAILING_STEP = 8
_FAILING_PAUSE: Instant = 5 * MILLISECOND
"""An endpoint may keep failing without opening its circuit, if the circuit is configured to stay closed. After
`_FAILING_AFTER` failures in a row, it gets `_FAILING_STEP` claims at a time, with this pause in between. If 64 attempts
start together, they also time out together. Settling them and starting the next 64 blocked the event loop for 7.7 ms of
CPU time every two seconds. With steps of eight attempts, the longest block was 1.7 to 2.7 ms. (Measured with one dead
endpoint and 5,000 waiting deliveries: the longest block in 16 s, two runs each.)"""

_Due = tuple[Lane, Endpoint]


class Claimer:
    """Claims due deliveries into the buffer, as many as there are slots for."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        circuits: Circuits,
        buffer: ClaimBuffer,
        clock: Clock,
        tuning: Tuning,
        telemetry: Telemetry,
        worker: str,
        transports: Mapping[str, Transport],
        capacity: Capacity,
    ) -> None:
        self._store = store
        self._directory = directory
        self._circuits = circuits
        self._buffer = buffer
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry
        self._worker = worker
        self._transports = transports
        self._capacity = capacity
        self.backlogged: frozenset[UUID] = frozenset()
        """The endpoints that had deliveries to attempt in the last round, and may have more."""
        self.short_of_slots = False
        """Whether one of these could use more slots than it could be given."""

    async def claim(self) -> Instant | None:
        """Read the lanes, share out the slots, and claim. Returns the time at which another round may claim more."""
        now = self._clock.now()
        lanes = await self._store.due_lanes(now, _LATER_MAX)
        self._circuits.observe(lanes)
        await self._directory.load({lane.org_id for lane in lanes})
        served = [
            (self._circuits.in_force(lane, endpoint), endpoint)
            for lane in lanes
            if (endpoint := await self._served(lane, now))
        ]
        due = [(lane, endpoint) for lane, endpoint in served if attemptable(lane, now)]
        self.backlogged = frozenset(lane.endpoint_id for lane, _ in due if lane.due_at <= now)
        self._share_slots(due, now)
        probes = await self._acquire_probes(due, now)
        forced_max, quotas = self._within_bytes(self._quotas(due, now), now)
        if not quotas and all(lane.due_at > now for lane in lanes):  # nothing is due, not even an operator's retry
            return _next_at(served, quotas, now, _looked_until(lanes, now))
        parts = self._parts(quotas, due, now)
        until = self._clock.now() + seconds(self._tuning.lease_seconds)
        first = [part for part, *_ in parts]
        promises = {quota.endpoint_id: quota.count for quota in quotas}
        self._buffer.promise(promises)
        try:
            claims = await self._store.claim(first, now, until, self._worker, forced_max, self._unserved(lanes))
            if probes:
                claims = [claim._replace(probe=_is_probe(claim, probes)) for claim in claims]
            self._take(claims)
            if any(later for _, *later in parts):
                await self._claim_rest(quotas, parts, claims, now, until)
        finally:
            self._buffer.withdraw(promises)
        return _next_at(served, quotas, now, _looked_until(lanes, now))

    def _take(self, claims: Sequence[Claim]) -> None:
        """Put claims into the buffer. Each call of the store is taken at once: if the next call of the round fails,
        these claims must not wait until their leases end."""
        self._buffer.add(claims)
        if self._telemetry.has_subscribers:
            self._telemetry.emit_all(facts.claimed(claims))

    def _parts(self, quotas: Sequence[Quota], due: Sequence[_Due], now: Instant) -> list[list[Quota]]:
        """The parts of each quota, in order; only the quota of a recovering endpoint has several."""
        lanes = {lane.endpoint_id: lane for lane, _ in due if lane.circuit}
        if not lanes:
            return [[quota] for quota in quotas]
        return [self._parts_in(quota, lanes.get(quota.endpoint_id), now) for quota in quotas]

    def _parts_in(self, quota: Quota, lane: Lane | None, now: Instant) -> list[Quota]:
        if lane is None:
            return [quota]
        buffer = self._buffer[quota.endpoint_id]
        buffer.fresh_first ^= bool(quota.count % 2)
        return parts_of(quota, lane, now, buffer.fresh_first)

    async def _claim_rest(
        self,
        quotas: Sequence[Quota],
        parts: Sequence[Sequence[Quota]],
        claims: Sequence[Claim],
        now: Instant,
        until: Instant,
    ) -> None:
        """Claim the later parts of quotas, as far as the `claims` of earlier parts have left room."""
        taken = Counter(claim.endpoint_id for claim in claims if claim.was_due_at is not None)
        for turn in range(1, max(map(len, parts))):
            left = [
                replace(part[turn], count=quota.count - taken[quota.endpoint_id])
                for quota, part in zip(quotas, parts, strict=True)
                if len(part) > turn and quota.count > taken[quota.endpoint_id]
            ]
            more = await self._store.claim(left, now, until, self._worker) if left else []
            taken.update(claim.endpoint_id for claim in more)
            self._take(more)

    async def _served(self, lane: Lane, now: Instant) -> Endpoint | None:
        """The endpoint of the lane, if this worker may attempt its deliveries.

        If the endpoint was deleted, its waiting deliveries become dead letters here.
        """
        endpoint = self._directory.endpoint(lane.endpoint_id)
        if endpoint is None:
            await self._directory.refresh()
            endpoint = self._directory.endpoint(lane.endpoint_id)
            if endpoint is None:
                await self._dead_letter(lane.endpoint_id, now)
        if endpoint is None or endpoint.state is not EndpointState.ACTIVE or not self._serves(endpoint):
            return None
        return endpoint

    def _serves(self, endpoint: Endpoint) -> bool:
        """Whether this worker can deliver to the endpoint. A Python handler may be registered in some workers only."""
        if endpoint.endpoint_id in self._directory.unsealable:
            return False
        transport = self._transports.get(endpoint.destination.kind)
        return transport is not None and transport.serves(endpoint.destination.target, endpoint.org_id)

    def _unserved(self, lanes: Sequence[Lane]) -> list[UUID]:
        endpoints = (self._directory.endpoint(lane.endpoint_id) for lane in lanes)
        return [one.endpoint_id for one in endpoints if one and not (self._serves(one) and self._has_room(one))]

    def _has_room(self, endpoint: Endpoint) -> bool:
        """Whether the buffer can hold more forced claims, which are limited here because they bypass all quotas."""
        return self._buffer.waiting_of(endpoint.endpoint_id) < _FORCED_MAX

    async def _dead_letter(self, endpoint_id: UUID, now: Instant) -> None:
        moved = await self._store.dead_letter_waiting(
            endpoint_id, Code.ENDPOINT_DELETED, DELETED_WHILE_WAITING, now, _DEAD_LETTER_BATCH
        )
        self._telemetry.emit_all(facts.moved(moved, now))

    def _share_slots(self, due: Sequence[_Due], now: Instant) -> None:
        demands = [
            Demand(
                lane.endpoint_id,
                endpoint.org_id,
                min(lane.due_at, now),
                self._buffer.busy_of(lane.endpoint_id),
                self._busy_max(lane, endpoint, now),
            )
            for lane, endpoint in due
        ]
        self.short_of_slots = False
        granted = shares(demands, self._capacity.slots(now), self._busy_of_orgs())
        for demand in demands:
            buffer, more = self._buffer[demand.endpoint_id], granted.get(demand.endpoint_id, 0)
            buffer.slots = buffer.busy + more
            self.short_of_slots |= more < demand.busy_max - demand.busy and demand.endpoint_id in self.backlogged

    def _busy_of_orgs(self) -> Counter[UUID]:
        """Attempts in flight per organization."""
        return self._by_org(self._buffer.busy_endpoints())

    def _by_org(self, of_endpoints: Iterable[tuple[UUID, int]]) -> Counter[UUID]:
        """The sums per organization. A deleted endpoint counts as an organization of its own."""
        sums: Counter[UUID] = Counter()
        for endpoint_id, count in of_endpoints:
            endpoint = self._directory.endpoint(endpoint_id)
            sums[endpoint.org_id if endpoint else endpoint_id] += count
        return sums

    def _busy_max(self, lane: Lane, endpoint: Endpoint, now: Instant) -> int:
        if self._may_probe(lane, now):
            return 1
        limits = [
            endpoint.concurrency_max or self._tuning.connections_per_endpoint,
            allowance(lane.circuit, now),
            self._slots_in_transport(endpoint),
        ]
        return min(limit for limit in limits if limit is not None)

    def slots_of(self, endpoint_id: UUID, now: Instant) -> tuple[int, int]:
        """How many claims of this endpoint the worker holds, and up to how many of its new deliveries may be claimed
        while they are accepted. If the endpoint has older deliveries or a shared limit, or is in doubt, this is 0."""
        endpoint, held = self._directory.endpoint(endpoint_id), self._buffer.held_of(endpoint_id)
        if endpoint is None or endpoint.state is not EndpointState.ACTIVE or endpoint_id in self.backlogged:
            return held, 0
        if endpoint.concurrency_max is not None or rate_of(endpoint, now) is not None:
            return held, 0
        if not (self._circuits.is_healthy(endpoint_id) and self._serves(endpoint)):
            return held, 0
        limits = (self._tuning.connections_per_endpoint, self._slots_in_transport(endpoint))
        return held, min(limit for limit in limits if limit is not None)

    def held_by_orgs(self) -> Counter[UUID]:
        """How many claims of each organization this worker holds."""
        return self._by_org(self._buffer.held_endpoints())

    def _slots_in_transport(self, endpoint: Endpoint) -> int | None:
        return self._transports[endpoint.destination.kind].slots(endpoint.destination.target)

    def _may_probe(self, lane: Lane, now: Instant) -> bool:
        circuit = lane.circuit
        return (
            circuit is not None
            and probing(circuit, now, now) is not None
            and not self._buffer.busy_of(lane.endpoint_id)
        )

    async def _acquire_probes(self, due: Sequence[_Due], now: Instant) -> set[UUID]:
        """Acquire the right to probe endpoints that have a free slot. After each pause, a circuit allows one probe.
        Returns the endpoints to probe."""
        probes = set()
        for lane, endpoint in due:
            buffer = self._buffer[lane.endpoint_id]
            if lane.circuit and buffer.slots and self._may_probe(lane, now):
                buffer.slots = int(await self._circuits.acquire_probe(endpoint, lane.circuit, now))
                if buffer.slots:
                    probes.add(lane.endpoint_id)
        return probes

    def _quotas(self, due: Sequence[_Due], now: Instant) -> list[tuple[UUID, Quota]]:
        """The quota of each endpoint that needs more claims, together with its organization."""
        quotas = []
        for lane, endpoint in due:
            if count := self._claims_needed(lane, endpoint, now):
                rate = rate_of(endpoint, lane.due_at)
                quotas.append((endpoint.org_id, Quota(lane.endpoint_id, count, endpoint.concurrency_max, rate)))
        return quotas

    def _within_bytes(self, quotas: Sequence[tuple[UUID, Quota]], now: Instant) -> tuple[int, list[Quota]]:
        """How many forced claims, and which quotas, fit into the memory that a worker may use for payloads."""
        one_max, held = self._tuning.payload_bytes_max, self._buffer.bytes_of
        left = max(0, self._tuning.buffer_bytes_max - held.total())
        forced_max = min(_FORCED_MAX, left // (4 * one_max), self._forced_slots(now))
        rest = self._tuning.buffer_bytes_max - forced_max * one_max
        given = byte_shares([org_id for org_id, _ in quotas], held, rest, one_max)
        bounded = zip(quotas, given, strict=True)
        return forced_max, [replace(quota, bytes_max=bytes_max) for (_, quota), bytes_max in bounded if bytes_max]

    def _forced_slots(self, now: Instant) -> int:
        """How many slots operators' retries may use. An eighth of all slots stays free, as in policy/fairness, because
        otherwise retries to many hanging endpoints could take every slot."""
        slots = self._capacity.slots(now)
        return max(0, slots - self._buffer.busy - slots // 8)

    def _claims_needed(self, lane: Lane, endpoint: Endpoint, now: Instant) -> int:
        """How many more claims to take for this endpoint. A healthy endpoint gets none until its buffer is low."""
        buffer = self._buffer[lane.endpoint_id]
        limited = endpoint.concurrency_max or rate_of(endpoint, lane.due_at) or _in_doubt(lane.circuit, now)
        buffer.target = buffer.slots + (0 if limited or not buffer.slots else buffer.ahead(now))
        if _failing(lane):
            return min(_FAILING_STEP, max(0, buffer.target - buffer.held))
        return buffer.target - buffer.held if buffer.low else 0


def _is_probe(claim: Claim, probes: Collection[UUID]) -> bool:
    """Whether this is the claim for which the right to a probe was acquired. An operator's retry is an ordinary
    attempt."""
    return claim.was_due_at is not None and claim.endpoint_id in probes


def _in_doubt(circuit: Circuit | None, now: Instant) -> bool:
    """Whether the endpoint failed recently or is still ramping up. If so, hold no more claims than there are slots."""
    return circuit is not None and (circuit.failures > 0 or allowance(circuit, now) is not None)


def _failing(lane: Lane) -> bool:
    return lane.circuit is not None and lane.circuit.failures >= _FAILING_AFTER


def rate_of(endpoint: Endpoint, due_at: Instant) -> float | None:
    """The rate limit of the endpoint, or its drain rate if that is lower and a backlog is being drained."""
    draining = endpoint.drain_before is not None and due_at < endpoint.drain_before
    rates = (endpoint.rate_per_second, endpoint.drain_per_second if draining else None)
    return min((rate for rate in rates if rate is not None), default=None)


def _looked_until(lanes: Sequence[Lane], now: Instant) -> list[Instant]:
    """The due time until which the lanes are complete; empty if none was left out."""
    later = sorted(lane.due_at for lane in lanes if lane.due_at > now)
    return later[_LATER_MAX - 1 : _LATER_MAX]


def _next_at(
    served: Sequence[_Due], quotas: Sequence[Quota], now: Instant, looked_until: Sequence[Instant]
) -> Instant | None:
    """When to check again without a wake-up: at the next due time, when limits or circuits may allow more, or when
    lanes may become due that this round has not seen."""
    times = [*looked_until, *(lane.due_at for lane, _ in served if lane.due_at > now)]
    circuits = [lane.circuit for lane, _ in served if lane.circuit]
    times += [circuit.until for circuit in circuits if circuit.until and circuit.until > now]
    failing = {lane.endpoint_id for lane, _ in served if _failing(lane)}
    for quota in quotas:
        if quota.rate_per_second:
            times.append(now + min(SECOND, int(SECOND / quota.rate_per_second)))
        elif quota.concurrency_max:
            times.append(now + _FULL_ENDPOINT_PAUSE)
        elif quota.endpoint_id in failing:
            times.append(now + _FAILING_PAUSE)
    return min(times, default=None)
