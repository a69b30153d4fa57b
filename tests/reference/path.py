"""The path of an event: accept, claim, settle, release. The delivery guarantees depend on these methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import DAY, JUMP, Instant
from doorstep.errors import NotFound, StaleRouting
from doorstep.model.claim import Claim, Lane, Lease, Quota, Settled, Settlement
from doorstep.model.delivery import DeliveryState, check_transition
from doorstep.model.endpoint import RAMP, Circuit, CircuitState, EndpointState
from doorstep.model.event import EventStatus, Receipt, Submission, Verdict, any_left
from doorstep.stores import notes
from doorstep.stores.limits import admit, check_storable, count_within, storable
from doorstep.stores.store import LOCK_MAX, Topic
from doorstep.stores.tally import Tally
from tests.reference.projections import attempt_of, claim_of, new_delivery
from tests.reference.tables import DeliveryRow, EventRow, Tables


class PathVerbs:
    """The life of a delivery, step by step."""

    _tables: Tables

    async def accept(
        self, submissions: Sequence[Submission], routing: Mapping[UUID, int], now: Instant, lease: Lease | None = None
    ) -> list[Receipt]:
        for org_id in {submission.event.org_id for submission in submissions}:
            self._tables.check_org(org_id)
            if routing.get(org_id) != self._tables.routing[org_id]:
                raise StaleRouting("endpoints changed since the routing was read; read it again and recompute")
        for submission in submissions:
            self._check(submission)
        receipts = [self._accept(submission, now, lease) for submission in submissions]
        if any_left(submissions, receipts):
            self._tables.wake(Topic.DELIVERIES)
        return receipts

    async def due_lanes(self, now: Instant, later_max: int | None = None) -> list[Lane]:
        first: dict[UUID, Instant] = {}
        for row in self._tables.by_due(DeliveryState.PENDING):
            if row.delivery.due_at is not None:
                first.setdefault(row.delivery.endpoint_id, row.delivery.due_at)
        lanes = [self._lane(one, due_at) for one, due_at in first.items()]
        return lanes if later_max is None else self._near(lanes, now, later_max)

    def _near(self, lanes: list[Lane], now: Instant, later_max: int) -> list[Lane]:
        held = (EndpointState.PAUSED, EndpointState.DISABLED)
        due = [lane for lane in lanes if lane.due_at <= now]
        later = [lane for lane in lanes if lane.due_at > now]
        recoverable = [lane for lane in later[later_max:] if lane.recoverable_at is not None]
        attemptable = [lane for lane in due if self._tables.endpoints[lane.endpoint_id].state not in held]
        return [*attemptable, *later[:later_max], *recoverable]

    def _lane(self, endpoint_id: UUID, due_at: Instant) -> Lane:
        circuit = self._tables.circuits.get(endpoint_id)
        recoverable = self._recoverable(endpoint_id) if circuit and circuit.changed_at else []
        recoverable_at = recoverable[0].delivery.last_attempt_at if recoverable else None
        return Lane(endpoint_id, self._tables.endpoints[endpoint_id].org_id, due_at, circuit, recoverable_at)

    def _recoverable(self, endpoint_id: UUID) -> list[DeliveryRow]:
        """The deliveries that wait for a recovery, the least recently attempted one first."""
        rows = [row for row in self._tables.by_due(DeliveryState.PENDING, endpoint_id) if row.on_recovery]
        return sorted(rows, key=lambda row: (row.delivery.last_attempt_at or 0, row.key))

    async def claim(
        self,
        quotas: Sequence[Quota],
        now: Instant,
        lease_until: Instant,
        worker: str,
        forced_max: int = 0,
        unserved: Sequence[UUID] = (),
    ) -> list[Claim]:
        forced = self._due_forced(now, forced_max, unserved)
        claims = [self._claim(row, now, lease_until, worker)._replace(was_due_at=None) for row in forced]
        for quota in quotas:
            claims += [self._claim(row, now, lease_until, worker) for row in self._due_in(quota, now)]
        return claims

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        for settlement in settlements:
            check_transition(DeliveryState.IN_PROGRESS, settlement.state)
        late: list[Claim] = []
        changed: list[DeliveryRow] = []
        tally = Tally()
        for settlement in settlements:
            owner = (settlement.claim.org_id, settlement.claim.endpoint_id)
            row = self._held(settlement.claim)
            if row is None:
                self._log_attempt(settlement, late=True)
                late.append(settlement.claim)
                tally.add(owner, "late")
            else:
                tally.settled([(owner, settlement)], now)
                self._log_attempt(settlement, late=False)
                self._settle(row, settlement, now)
                changed.append(row)
        self._tables.counters.add(tally, now)
        return Settled(tuple(late), tuple(self._tables.update_statuses(changed, now)))

    async def release(self, claims: Sequence[Claim], now: Instant) -> list[Claim]:
        released = []
        for claim in claims:
            row = self._held(claim)
            if row is not None:
                self._release(row, claim, now)
                released.append(claim)
        return released

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        leased = self._tables.by_due(DeliveryState.IN_PROGRESS)
        rows = [row for row in leased if _is_due(row, now)][:limit]
        return [claim_of(row, picked_up=False)._replace(payload=b"", last_code=row.delivery.code) for row in rows]

    async def renew_leases(self, worker: str, now: Instant) -> None:
        for row in self._tables.by_due(DeliveryState.IN_PROGRESS):
            one = row.delivery
            if one.worker == worker and one.claimed_at is not None and one.claimed_at < now:
                row.delivery = replace(one, due_at=(one.due_at or 0) - one.claimed_at + now, claimed_at=now)

    async def shift_waits(self, now: Instant, limit: int) -> int:
        for row in self._tables.by_due(DeliveryState.IN_PROGRESS):
            if (ahead := (row.delivery.claimed_at or 0) - now) > JUMP:
                row.delivery = replace(row.delivery, due_at=(row.delivery.due_at or 0) - ahead, claimed_at=now)
        for endpoint_id, circuit in self._tables.circuits.items():
            if circuit.changed_at > now + JUMP:
                self._tables.circuits[endpoint_id] = _shifted(circuit, now)
        self._tables.locks = {task: lock for task, lock in self._tables.locks.items() if lock[1] <= now + LOCK_MAX}
        waiting = self._tables.by_due(DeliveryState.PENDING)
        late = [(row, due) for row in waiting if (due := _due_by(row, now)) is not None][:limit]
        for row, due_at in late:
            attempted_at = row.delivery.last_attempt_at
            attempted_at = now if (attempted_at or 0) > now + JUMP else attempted_at
            row.delivery = replace(row.delivery, due_at=due_at, last_attempt_at=attempted_at)
        return len(late)

    # -- accepting -----------------------------------------------------------------------------------------

    def _check(self, submission: Submission) -> None:
        self._tables.check_org(submission.event.org_id)
        check_storable("event_type", submission.event.event_type)
        check_storable("correlation_id", submission.event.correlation_id)
        check_storable("user_id", submission.event.user_id)
        check_storable("ordering_key", submission.event.ordering_key)
        check_storable("idempotency_key", submission.idempotency_key)
        for delivery in submission.deliveries:
            endpoint = self._tables.endpoints.get(delivery.endpoint_id)
            if endpoint is None or endpoint.org_id != submission.event.org_id:
                raise NotFound(f"no endpoint {delivery.endpoint_id}")

    def _accept(self, submission: Submission, now: Instant, lease: Lease | None) -> Receipt:
        first = self._first_receipt(submission, now)
        if first is not None:
            return first
        event = submission.event
        known = self._tables.events.get(event.event_id)
        row = known or self._add(submission, now)
        figures = (event.event_id, row.event.created_at, row.accepted_deliveries)
        receipt = Receipt(Verdict.ACCEPTED, *figures, known=known is not None)
        if submission.idempotency_key is not None:
            slot = (event.org_id, submission.idempotency_key)
            self._tables.idempotency[slot] = (now + DAY, submission.fingerprint, receipt)
        if known is None and lease is not None:
            return replace(receipt, claims=tuple(self._claim_new(submission, lease, now)))
        return receipt

    def _claim_new(self, submission: Submission, lease: Lease, now: Instant) -> Iterator[Claim]:
        """Claim the claimable deliveries of a new event."""
        for delivery in submission.deliveries:
            circuit = self._tables.circuits.get(delivery.endpoint_id)
            healthy = circuit is None or (
                circuit.state is CircuitState.CLOSED and not circuit.failures and circuit.changed_at <= now - RAMP
            )
            if delivery.claimable and healthy and submission.event.ordering_key is None:
                yield self._claim(self._tables.deliveries[delivery.delivery_id], now, lease.until, lease.worker)

    def _first_receipt(self, submission: Submission, now: Instant) -> Receipt | None:
        """The first receipt for this idempotency key, until the key expires."""
        if submission.idempotency_key is None:
            return None
        stored = self._tables.idempotency.get((submission.event.org_id, submission.idempotency_key))
        if stored is None or stored[0] <= now:
            return None
        _, fingerprint, first = stored
        verdict = Verdict.REPEATED if fingerprint == submission.fingerprint else Verdict.CONFLICT
        return Receipt(verdict, first.event_id, first.created_at, first.deliveries)

    def _add(self, submission: Submission, now: Instant) -> EventRow:
        row, org_id = EventRow(submission.event, submission.search_keys), submission.event.org_id
        tally = Tally()
        tally.accepted(org_id, 1)
        self._tables.events[submission.event.event_id] = row
        for delivery in submission.deliveries:
            self._tables.add(new_delivery(row, delivery), row)
            tally.owed((org_id, delivery.endpoint_id), 1)
        self._tables.counters.add(tally, now)
        return row

    # -- claiming ------------------------------------------------------------------------------------------

    def _due_forced(self, now: Instant, limit: int, unserved: Sequence[UUID]) -> list[DeliveryRow]:
        waiting = self._tables.by_due(DeliveryState.PENDING) if limit else []
        forced = (row for row in waiting if row.delivery.forced and _is_due(row, now))
        return [row for row in forced if self._serves(row.delivery.endpoint_id, unserved)][:limit]

    def _serves(self, endpoint_id: UUID, unserved: Sequence[UUID]) -> bool:
        return self._tables.endpoints[endpoint_id].state is EndpointState.ACTIVE and endpoint_id not in unserved

    def _due_in(self, quota: Quota, now: Instant) -> list[DeliveryRow]:
        """The oldest due deliveries of an endpoint, limited by the quota and the endpoint's concurrency and rate."""
        tables, room = self._tables, quota.count
        if quota.concurrency_max is not None:
            room = min(room, quota.concurrency_max - len(tables.by_due(DeliveryState.IN_PROGRESS, quota.endpoint_id)))
        rows = self._offered(quota, now)[: max(room, 0)]
        rows = rows[: count_within((len(row.payload) for row in rows), quota.bytes_max)]
        if quota.rate_per_second is not None:
            rows = rows[: self._admit(quota.endpoint_id, quota.rate_per_second, now, len(rows))]
        return rows

    def _offered(self, quota: Quota, now: Instant) -> list[DeliveryRow]:
        """The deliveries that the quota selects, in order."""
        if quota.attempted_before is not None:
            before = quota.attempted_before
            return [row for row in self._recoverable(quota.endpoint_id) if (row.delivery.last_attempt_at or 0) < before]
        waiting = self._tables.by_due(DeliveryState.PENDING, quota.endpoint_id)
        until = now if quota.due_until is None else min(now, quota.due_until)
        return [row for row in waiting if _is_due(row, until) and (row.delivery.due_at or 0) > quota.due_after]

    def _admit(self, endpoint_id: UUID, rate_per_second: float, now: Instant, wanted: int) -> int:
        marks = self._tables.rate_next_at
        admitted, marks[endpoint_id] = admit(rate_per_second, marks.get(endpoint_id, 0), now, wanted)
        return admitted

    def _claim(self, row: DeliveryRow, now: Instant, lease_until: Instant, worker: str) -> Claim:
        attempt, was_due_at = row.delivery.attempt + 1, row.delivery.due_at
        row.token += 1
        self._tables.change(
            row,
            now,
            notes.claimed(worker),
            state=DeliveryState.IN_PROGRESS,
            due_at=lease_until,
            attempt=attempt,
            retry_attempts=row.retries_used(attempt, row.delivery.retries_max),
            claimed_at=now,
            worker=worker,
        )
        picked_up = row.event.status is EventStatus.RECEIVED
        if picked_up:
            self._tables.set_status(row.event, EventStatus.QUEUED, now)
        return claim_of(row, picked_up, was_due_at)

    # -- settling and releasing ----------------------------------------------------------------------------

    def _held(self, claim: Claim) -> DeliveryRow | None:
        """The row of a claim that still holds its delivery; None if the claim was replaced or already settled."""
        row = self._tables.deliveries.get(claim.delivery_id)
        if row is None or row.token != claim.token or row.delivery.state is not DeliveryState.IN_PROGRESS:
            return None
        return row

    def _settle(self, row: DeliveryRow, settlement: Settlement, now: Instant) -> None:
        outcome, reply = settlement.outcome, settlement.outcome.reply
        first_failed_at, attempt = row.delivery.first_failed_at, row.delivery.attempt
        retry_attempts = row.delivery.retry_attempts if settlement.counted else row.retries_used(attempt - 1, 2**31)
        row.on_recovery, row.uncounted = settlement.on_recovery, row.uncounted + (not settlement.counted)
        if not outcome.succeeded and first_failed_at is None:
            first_failed_at = reply.finished_at
        self._tables.change(
            row,
            now,
            storable(notes.settled(settlement)),
            state=settlement.state,
            due_at=settlement.due_at,
            retries_max=settlement.retries_max,
            retry_attempts=min(retry_attempts, settlement.retries_max),
            forced=False,
            claimed_at=None,
            worker=None,
            first_failed_at=first_failed_at,
            last_attempt_at=reply.finished_at,
            settled_at=None if settlement.state is DeliveryState.PENDING else now,
            category=outcome.category,
            code=outcome.code and storable(outcome.code),
            reason=None if outcome.succeeded else storable(outcome.reason),
            response_code=reply.status,
        )

    def _log_attempt(self, settlement: Settlement, late: bool) -> None:
        row = self._tables.deliveries.get(settlement.claim.delivery_id)
        if row is not None:
            row.attempts.append(attempt_of(settlement, late))

    def _release(self, row: DeliveryRow, claim: Claim, now: Instant) -> None:
        attempt = row.delivery.attempt - 1
        self._tables.change(
            row,
            now,
            notes.released(claim.worker),
            state=DeliveryState.PENDING,
            due_at=max(now, claim.was_due_at or 0),
            attempt=attempt,
            retry_attempts=row.retries_used(attempt, row.delivery.retries_max),
            claimed_at=None,
            worker=None,
        )


def _shifted(circuit: Circuit, now: Instant) -> Circuit:
    until = None if circuit.until is None else circuit.until - circuit.changed_at + now
    since = None if circuit.failing_since is None else min(circuit.failing_since, now)
    return replace(circuit, until=until, failing_since=since, changed_at=now, version=circuit.version + 1)


def _due_by(row: DeliveryRow, now: Instant) -> Instant | None:
    """When a waiting delivery is due if its wait began no later than now; None if that changes nothing."""
    one, deliver_at = row.delivery, row.event.event.deliver_at or 0
    if one.due_at is None or one.due_at <= now:
        return None
    if one.last_attempt_at is not None and one.last_attempt_at > now + JUMP:
        return one.due_at - one.last_attempt_at + now
    untouched = one.last_attempt_at is None or one.forced
    return max(now, deliver_at) if untouched and one.due_at > deliver_at else None


def _is_due(row: DeliveryRow, now: Instant) -> bool:
    return row.delivery.due_at is not None and row.delivery.due_at <= now
