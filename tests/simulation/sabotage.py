"""Deliberately broken stores and workers. Each breaks one rule, and the checker must notice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.engine.circuits import Circuits
from doorstep.engine.deliver import Deliverer
from doorstep.engine.directory import Profile
from doorstep.engine.settle import Settler
from doorstep.errors import StoreUnavailable
from doorstep.model.claim import Claim, Lease, Settled, Settlement
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import CircuitRules, Endpoint
from doorstep.model.event import Receipt, Submission, Verdict
from doorstep.services.worker import Worker
from doorstep.stores.tally import Tally
from tests.reference import ReferenceStore
from tests.reference.tables import DeliveryRow


class SettlesWithoutToken(ReferenceStore):
    """Accepts a result with any token while the delivery is in progress."""

    def _held(self, claim: Claim) -> DeliveryRow | None:
        row = self._tables.deliveries.get(claim.delivery_id)
        return row if row is not None and row.delivery.state is DeliveryState.IN_PROGRESS else None


class CountsAtSettle(ReferenceStore):
    """Counts an attempt only when its result is written; a lease that expires makes the delivery visible again."""

    def _claim(self, row: DeliveryRow, now: Instant, lease_until: Instant, worker: str) -> Claim:
        claim = super()._claim(row, now, lease_until, worker)
        self._tables.change(row, now, "", attempt=row.delivery.attempt - 1)
        return claim

    def _settle(self, row: DeliveryRow, settlement: Settlement, now: Instant) -> None:
        self._tables.change(row, now, "", attempt=row.delivery.attempt + 1)
        super()._settle(row, settlement, now)

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        for claim in await super().expired(now, 1_000):
            again = {"state": DeliveryState.PENDING, "due_at": now, "claimed_at": None, "worker": None}
            self._tables.change(self._tables.deliveries[claim.delivery_id], now, "visible again", **again)
        return []


class AcknowledgesBeforeKeeping(ReferenceStore):
    """Answers before it commits; every fifth commit then fails."""

    _calls = 0

    async def accept(
        self, submissions: Sequence[Submission], routing: Mapping[UUID, int], now: Instant, lease: Lease | None = None
    ) -> list[Receipt]:
        self._calls += 1
        if self._calls % 5:
            return await super().accept(submissions, routing, now, lease)
        return [Receipt(Verdict.ACCEPTED, one.event.event_id, now, len(one.deliveries)) for one in submissions]


class AcceptsClaimsWithoutALease(ReferenceStore):
    """What it claims while accepting belongs to the worker forever."""

    def _claim_new(self, submission: Submission, lease: Lease, now: Instant) -> Iterator[Claim]:
        for claim in super()._claim_new(submission, lease, now):
            self._tables.change(self._tables.deliveries[claim.delivery_id], now, "", due_at=2**62)
            yield claim


class AcceptsClaimsUncounted(ReferenceStore):
    """Counts no attempt for what it claims while accepting."""

    def _claim_new(self, submission: Submission, lease: Lease, now: Instant) -> Iterator[Claim]:
        for claim in super()._claim_new(submission, lease, now):
            self._tables.change(self._tables.deliveries[claim.delivery_id], now, "", attempt=0)
            yield claim._replace(attempt=0)


class AcceptsClaimsWithoutAToken(ReferenceStore):
    """Leaves the token as it was, so that a claim made while accepting is not fenced."""

    def _claim_new(self, submission: Submission, lease: Lease, now: Instant) -> Iterator[Claim]:
        for claim in super()._claim_new(submission, lease, now):
            self._tables.deliveries[claim.delivery_id].token = 0
            yield claim._replace(token=0)


class ReleaseBurnsAnAttempt(ReferenceStore):
    def _release(self, row: DeliveryRow, claim: Claim, now: Instant) -> None:
        counted = row.delivery.attempt
        super()._release(row, claim, now)
        self._tables.change(row, now, "", attempt=counted)


class ReleaseForgetsAnAttempt(ReferenceStore):
    def _release(self, row: DeliveryRow, claim: Claim, now: Instant) -> None:
        super()._release(row, claim, now)
        self._tables.change(row, now, "", attempt=max(0, row.delivery.attempt - 1))


class RenewsTheLeasesOfOthers(ReferenceStore):
    """Lets a worker that stood still renew every lease, not only its own."""

    async def renew_leases(self, worker: str, now: Instant) -> None:
        holders = {row.delivery.worker for row in self._tables.by_due(DeliveryState.IN_PROGRESS)}
        for holder in sorted(filter(None, holders)):
            await super().renew_leases(holder, now)


class LeasesNeverEnd(ReferenceStore):
    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        return []


class ReclaimsTooEarly(ReferenceStore):
    """Declares a claim lost one second after it was made."""

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        return await super().expired(now + 7_000_000, limit)


class ForgetsIdempotencyKeys(ReferenceStore):
    def _first_receipt(self, submission: Submission, now: Instant) -> Receipt | None:
        return None


class ChangesTheBytes(ReferenceStore):
    """Parses and reformats the payload, as a JSON column would."""

    def _claim(self, row: DeliveryRow, now: Instant, lease_until: Instant, worker: str) -> Claim:
        claim = super()._claim(row, now, lease_until, worker)
        return claim._replace(payload=claim.payload.replace(b": ", b":"))


class KeepsNoLateRows(ReferenceStore):
    def _log_attempt(self, settlement: Settlement, late: bool) -> None:
        if not late:
            super()._log_attempt(settlement, late)


class ForgetsTheOrder(ReferenceStore):
    """Ignores ordering keys: no delivery waits for another."""

    def __init__(self) -> None:
        super().__init__()
        self._tables.first_of = lambda group: None  # type: ignore[method-assign]


class RetriesHoldUpNobody(ReferenceStore):
    """After a failure that will be retried, starts the next delivery of the group, as after a success."""

    def _settle(self, row: DeliveryRow, settlement: Settlement, now: Instant) -> None:
        super()._settle(row, settlement, now)
        if row.group is not None and settlement.state is DeliveryState.PENDING:
            del self._tables.open[row.delivery.delivery_id]
            self._tables._unblock_first(row.group, now)
            self._tables.open[row.delivery.delivery_id] = row


class CountsLateResultsAsSuccesses(ReferenceStore):
    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        settled = await super().settle(settlements, now)
        tally = Tally()
        for claim in settled.late:
            tally.add((claim.org_id, claim.endpoint_id), "succeeded")
        self._tables.counters.add(tally, now)
        return settled


class LeavesTheBlockedBehind(ReferenceStore):
    """Unblocks the next delivery of a group after a success, but not after a dead letter."""

    def _settle(self, row: DeliveryRow, settlement: Settlement, now: Instant) -> None:
        unblock = self._tables._unblock_first
        if settlement.state is DeliveryState.DEAD:
            self._tables._unblock_first = lambda group, at: None  # type: ignore[method-assign]
        super()._settle(row, settlement, now)
        self._tables._unblock_first = unblock  # type: ignore[method-assign]


class _ForgetfulSettler(Settler):
    async def _settle_pending(self) -> None:
        try:
            await super()._settle_pending()
        except StoreUnavailable:
            self._pending.clear()
            raise


def drops_results_when_the_store_is_away(*parts: Any) -> Worker:
    worker = Worker(*parts)
    worker.deliverer.settler.__class__ = _ForgetfulSettler
    return worker


class _HeedlessDeliverer(Deliverer):
    def _ready(self, claim: Claim, now: Instant) -> Profile | None:
        return super()._ready(claim._replace(lease_until=claim.lease_until * 2), now)


def begins_tries_past_their_lease(*parts: Any) -> Worker:
    worker = Worker(*parts)
    worker.deliverer.__class__ = _HeedlessDeliverer
    return worker


class KeepsRetriesWhereTheyAre(ReferenceStore):
    """Forgets which retries a recovery may bring forward."""

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        return await super().settle([replace(one, on_recovery=False) for one in settlements], now)


class _SlowCircuits(Circuits):
    def rules_of(self, endpoint: Endpoint) -> CircuitRules:
        own = super().rules_of(endpoint)
        return replace(own, probe_seconds_min=own.open_seconds)


def pauses_for_minutes(*parts: Any) -> Worker:
    """Always makes the longest pause before a probe, as an early version did."""
    worker = Worker(*parts)
    worker.deliverer.settler._circuits.__class__ = _SlowCircuits
    return worker


class _CarelessDeliverer(Deliverer):
    async def drain(self, grace_seconds: float) -> None:
        """Do not wait for the claims of events that are still being accepted."""
        self.intake.close = lambda: None  # type: ignore[method-assign]
        self.intake.offers = 0
        await super().drain(grace_seconds)


def forgets_what_it_accepts_when_stopped(*parts: Any) -> Worker:
    worker = Worker(*parts)
    worker.deliverer.__class__ = _CarelessDeliverer
    return worker


class _HastyWorker(Worker):
    async def stop(self) -> None:
        """Cancel every task immediately, whatever it is doing, as an early version did."""
        for running in self._running:
            running._task.cancel()


def leaves_its_claims_when_stopped(*parts: Any) -> Worker:
    return _HastyWorker(*parts)
