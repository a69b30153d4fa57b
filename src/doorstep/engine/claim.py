"""Step three: take due deliveries under a lease, as many as there are places, fairly over orgs and endpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import MILLISECOND, SECOND, Clock, Instant, seconds
from doorstep.engine import facts
from doorstep.engine.buffer import ClaimBuffer
from doorstep.engine.circuits import Circuits
from doorstep.engine.directory import Directory, Tuning
from doorstep.model.attempt import Code
from doorstep.model.circuit import Circuit
from doorstep.model.claim import Claim, Lane, Quota
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.record import Record
from doorstep.policy.circuit import allowance, probing
from doorstep.policy.classification import DELETED_WHILE_WAITING
from doorstep.policy.fairness import Demand, byte_shares, shares
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

_FORCED_MAX = 64
_BURY_BATCH = 1_000
_FULL_ENDPOINT_PAUSE: Instant = 100 * MILLISECOND
"""An endpoint that is full over all workers may get a free place elsewhere, which nobody tells us: look again."""
_FAILING_AFTER = 5
_FAILING_STEP = 8
_FAILING_PAUSE: Instant = 5 * MILLISECOND
"""An endpoint that only ever fails, and whose circuit is told to stay closed, is tried again this many at a time. 64
tries that began together time out together too, and to write them down and begin the next kept the event loop from
everybody else for 7.7 ms of CPU at a stretch, every two seconds; by eights 1.7 to 2.7 ms (one dead endpoint with 5,000
waiting, longest turn in 16 s, two runs each)."""

_Due = tuple[Lane, Endpoint]


class Round(Record, frozen=True):
    """What one round of claiming brought, and when another can bring more."""

    claims: Sequence[Claim]
    next_at: Instant | None


class Claimer:
    def __init__(
        self,
        store: Store,
        directory: Directory,
        circuits: Circuits,
        hand: ClaimBuffer,
        clock: Clock,
        tuning: Tuning,
        telemetry: Telemetry,
        worker: str,
        serves_handler: Callable[[str, UUID], bool],
        handler_places: Callable[[str], int | None],
    ) -> None:
        self._store = store
        self._directory = directory
        self._circuits = circuits
        self._hand = hand
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry
        self._worker = worker
        self._serves_handler = serves_handler
        self._handler_places = handler_places

    async def claim(self) -> Round:
        """Look at the lanes, share out the places, and claim into the hand."""
        now = self._clock.now()
        lanes = await self._store.lanes(now)
        self._circuits.see(lanes)
        served = [(lane, endpoint) for lane in lanes if (endpoint := await self._served(lane, now))]
        due = [(lane, endpoint) for lane, endpoint in served if lane.due_at <= now]
        self._share_places(due, now)
        await self._take_probes(due, now)
        forced_max, quotas = self._within_bytes(self._quotas(due, now))
        until = self._clock.now() + seconds(self._tuning.lease_seconds)
        claims = await self._store.claim_due(quotas, now, until, self._worker, forced_max, self._unserved(lanes))
        self._hand.take(claims)
        if self._telemetry.heard:
            self._telemetry.emit_all(facts.claimed(claims))
        return Round(claims, _next_at(served, quotas, claims, now))

    async def _served(self, lane: Lane, now: Instant) -> Endpoint | None:
        """The lane's endpoint if its deliveries may go out; those of a deleted one are buried here."""
        endpoint = self._directory.endpoint(lane.endpoint_id)
        if endpoint is None:
            await self._directory.refresh()
            endpoint = self._directory.endpoint(lane.endpoint_id)
            if endpoint is None:
                await self._bury(lane.endpoint_id, now)
        if endpoint is None or endpoint.state is not EndpointState.ACTIVE or not self._serves(endpoint):
            return None
        return endpoint

    def _serves(self, endpoint: Endpoint) -> bool:
        """Python handlers live in some workers only, and what they handle is left to those."""
        return endpoint.handler is None or self._serves_handler(endpoint.handler, endpoint.org_id)

    def _unserved(self, lanes: Sequence[Lane]) -> list[UUID]:
        endpoints = (self._directory.endpoint(lane.endpoint_id) for lane in lanes)
        return [one.endpoint_id for one in endpoints if one and not (self._serves(one) and self._has_room(one))]

    def _has_room(self, endpoint: Endpoint) -> bool:
        """Operators' retries are taken ahead of every quota, but not without end into a hand that is full of them."""
        return self._hand.waiting_of(endpoint.endpoint_id) < _FORCED_MAX

    async def _bury(self, endpoint_id: UUID, now: Instant) -> None:
        buried = await self._store.bury(endpoint_id, Code.ENDPOINT_DELETED, DELETED_WHILE_WAITING, now, _BURY_BATCH)
        self._telemetry.emit_all(facts.moved(buried, now))

    def _share_places(self, due: Sequence[_Due], now: Instant) -> None:
        demands = [
            Demand(
                lane.endpoint_id,
                endpoint.org_id,
                lane.due_at,
                self._hand.busy_of(lane.endpoint_id),
                self._busy_max(lane, endpoint, now),
            )
            for lane, endpoint in due
        ]
        granted = shares(demands, self._tuning.places, self._busy_of_orgs())
        for demand in demands:
            self._hand[demand.endpoint_id].places = demand.busy + granted.get(demand.endpoint_id, 0)

    def _busy_of_orgs(self) -> Counter[UUID]:
        """Tries under way by organization; those of a deleted endpoint stand for themselves."""
        busy: Counter[UUID] = Counter()
        for endpoint_id, count in self._hand.busy_endpoints():
            endpoint = self._directory.endpoint(endpoint_id)
            busy[endpoint.org_id if endpoint else endpoint_id] += count
        return busy

    def _busy_max(self, lane: Lane, endpoint: Endpoint, now: Instant) -> int:
        if self._may_probe(lane, now):
            return 1
        limits = [
            endpoint.concurrency_max or self._tuning.connections_per_endpoint,
            allowance(lane.circuit, now),
            self._handler_places(endpoint.handler) if endpoint.handler else None,
        ]
        return min(limit for limit in limits if limit is not None)

    def _may_probe(self, lane: Lane, now: Instant) -> bool:
        circuit = lane.circuit
        return (
            circuit is not None and probing(circuit, now, now) is not None and not self._hand.busy_of(lane.endpoint_id)
        )

    async def _take_probes(self, due: Sequence[_Due], now: Instant) -> None:
        """Take the right to a probe, but only where there is a place to use it: it can be had once in a while."""
        for lane, endpoint in due:
            holding = self._hand[lane.endpoint_id]
            if lane.circuit and holding.places and self._may_probe(lane, now):
                holding.places = int(await self._circuits.let_probe(endpoint, lane.circuit, now))

    def _quotas(self, due: Sequence[_Due], now: Instant) -> list[tuple[UUID, Quota]]:
        """What may be claimed as far as places go, each with the organization it is for."""
        quotas = []
        for lane, endpoint in due:
            if count := self._wanted(lane, endpoint, now):
                rate = rate_of(endpoint, lane.due_at)
                quotas.append((endpoint.org_id, Quota(lane.endpoint_id, count, endpoint.concurrency_max, rate)))
        return quotas

    def _within_bytes(self, quotas: Sequence[tuple[UUID, Quota]]) -> tuple[int, list[Quota]]:
        """How many forced ones and which quotas fit into the memory that a worker may use for payloads."""
        one_max, held = self._tuning.payload_bytes_max, self._hand.bytes_of
        left = max(0, self._tuning.hand_bytes_max - held.total())
        forced_max = min(_FORCED_MAX, left // (4 * one_max), self._places_for_forced())
        rest = self._tuning.hand_bytes_max - forced_max * one_max
        given = byte_shares([org_id for org_id, _ in quotas], held, rest, one_max)
        bounded = zip(quotas, given, strict=True)
        return forced_max, [replace(quota, bytes_max=bytes_max) for (_, quota), bytes_max in bounded if bytes_max]

    def _places_for_forced(self) -> int:
        """Retries at many endpoints that hang would take every place: the last eighth is left, as in policy/fairness."""
        return max(0, self._tuning.places - self._hand.busy - self._tuning.places // 8)

    def _wanted(self, lane: Lane, endpoint: Endpoint, now: Instant) -> int:
        """How many more claims of this endpoint are worth holding; none while half of them are still in hand."""
        holding = self._hand[lane.endpoint_id]
        limited = endpoint.concurrency_max or rate_of(endpoint, lane.due_at) or _in_doubt(lane.circuit, now)
        holding.target = holding.places + (0 if limited or not holding.places else holding.ahead(now))
        if _failing(lane):
            return min(_FAILING_STEP, max(0, holding.target - holding.held))
        return holding.target - holding.held if holding.hungry else 0


def _in_doubt(circuit: Circuit | None, now: Instant) -> bool:
    """It has failed lately, or is only being let back in: no more is held for it than can be tried."""
    return circuit is not None and (circuit.failures > 0 or allowance(circuit, now) is not None)


def _failing(lane: Lane) -> bool:
    return lane.circuit is not None and lane.circuit.failures >= _FAILING_AFTER


def rate_of(endpoint: Endpoint, due_at: Instant) -> float | None:
    """The endpoint's rate limit; while a backlog is drained at a rate of its own, the lower of the two."""
    draining = endpoint.drain_before is not None and due_at < endpoint.drain_before
    rates = (endpoint.rate_per_second, endpoint.drain_per_second if draining else None)
    return min((rate for rate in rates if rate is not None), default=None)


def _next_at(
    served: Sequence[tuple[Lane, Endpoint]], quotas: Sequence[Quota], claims: Sequence[Claim], now: Instant
) -> Instant | None:
    """When it is worth looking again, apart from wake-ups: the next due time, or the next place or ration."""
    times = [lane.due_at for lane, _ in served if lane.due_at > now]
    times += [
        lane.circuit.until for lane, _ in served if lane.circuit and lane.circuit.until and lane.circuit.until > now
    ]
    failing = {lane.endpoint_id for lane, _ in served if _failing(lane)}
    for quota in quotas:
        if quota.rate_per_second:
            times.append(now + min(SECOND, int(SECOND / quota.rate_per_second)))
        elif quota.concurrency_max:
            times.append(now + _FULL_ENDPOINT_PAUSE)
        elif quota.endpoint_id in failing:
            times.append(now + _FAILING_PAUSE)
    return min(times, default=None)
