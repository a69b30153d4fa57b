"""R11.1: every store behaves exactly like the reference model, for any calls in any order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.action import Action, AuditEntry
from doorstep.model.batch import BatchFilter
from doorstep.model.claim import Claim, Move, Moved, Quota
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventView, Receipt, Submission, Verdict
from doorstep.model.inbox import InboxAnswer, InboxAnswered
from doorstep.model.listing import DeadLetterFilter, InboxFilter
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.store import Delete, Put, Store
from doorstep.stores.tally import Tally
from tests.contract.lockstep import Lockstep, Opening
from tests.contract.places import Place, PostgresPlace, SqlitePlace
from tests.reference import ReferenceStore
from tests.reference.projections import claim_of
from tests.reference.tables import DeliveryRow, EventRow
from tests.support.fixtures_postgres import EmptiedDatabase

TORTURE = bool(os.environ.get("TORTURE"))
"""With TORTURE=1, runs are longer, use a new seed each time, and shrink a failure, which takes minutes. Without it,
runs are short and always the same: a failure is printed unshrunk, and the next run finds it again."""

PROFILE = settings(
    max_examples=2_000 if TORTURE else 120,
    stateful_step_count=100 if TORTURE else 50,
    derandomize=not TORTURE,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink] if TORTURE else [Phase.generate],
    report_multiple_bugs=False,
)

SLOWER = settings(PROFILE, max_examples=500 if TORTURE else 30)
"""For a store that every step calls over a socket."""


def test_sqlite_answers_and_keeps_what_the_reference_model_does() -> None:
    @contextmanager
    def opening() -> Iterator[Place]:
        with TemporaryDirectory(prefix="doorstep-lockstep-") as folder:
            yield SqlitePlace(Path(folder))

    walk(opening, PROFILE)


def test_postgres_answers_and_keeps_what_the_reference_model_does(emptied_database: EmptiedDatabase) -> None:
    @contextmanager
    def opening() -> Iterator[Place]:
        yield PostgresPlace(emptied_database.url)
        emptied_database.empty()

    walk(opening, SLOWER)


def walk(opening: Opening, profile: settings, number: int | None = None) -> None:
    """Run the state machine. With a number, run the walk with that seed instead of the profile's first one."""
    made: Callable[[], Lockstep] = lambda: Lockstep(opening)
    run_state_machine_as_test(made if number is None else seed(number)(made), settings=profile)  # type: ignore[arg-type]


# -- negative controls: deliberately broken stores that the machine must catch -----------------------------


class SettlesWithoutLookingAtTheToken(ReferenceStore):
    def _held(self, claim: Claim) -> DeliveryRow | None:
        row = self._tables.deliveries.get(claim.delivery_id)
        return row if row is not None and row.delivery.state is DeliveryState.IN_PROGRESS else None


class ReusesTokens(ReferenceStore):
    def _release(self, row: DeliveryRow, claim: Claim, now: Instant) -> None:
        super()._release(row, claim, now)
        row.token -= 1


class BurnsAnAttemptOnRelease(ReferenceStore):
    def _release(self, row: DeliveryRow, claim: Claim, now: Instant) -> None:
        super()._release(row, claim, now)
        self._tables.change(row, now, "", attempt=row.delivery.attempt + 1)


class IgnoresConcurrency(ReferenceStore):
    def _due_in(self, quota: Quota, now: Instant) -> list[DeliveryRow]:
        return super()._due_in(Quota(quota.endpoint_id, quota.count, None, quota.rate_per_second), now)


class IgnoresTheRate(ReferenceStore):
    def _admit(self, endpoint_id: UUID, rate_per_second: float, now: Instant, wanted: int) -> int:
        return wanted


class ForgetsIdempotencyKeys(ReferenceStore):
    def _first_receipt(self, submission: Submission, now: Instant) -> Receipt | None:
        return None


class ForgetsWhichVersionAnEndpointHas(ReferenceStore):
    def _may_be_written(self, change: Put | Delete, entry: AuditEntry | None) -> bool:
        if isinstance(change, Put) and isinstance(change.document, Endpoint):
            change = replace(change, expected_version=None)
        return super()._may_be_written(change, entry)


class ExpiresWhatIsBeingTried(ReferenceStore):
    async def expire(self, code: str, reason: str, since: Instant, now: Instant, limit: int) -> Moved:
        for row in self._tables.by_due(DeliveryState.IN_PROGRESS):
            if since < (row.event.event.expires_at or 0) <= now:
                self._release(row, claim_of(row, picked_up=False), now)
        return await super().expire(code, reason, since, now, limit)


class ForgetsEventStatuses(ReferenceStore):
    def __init__(self) -> None:
        super().__init__()
        self._tables.update_statuses = lambda rows, at: []  # type: ignore[method-assign]


class ForgetsTheOrder(ReferenceStore):
    def __init__(self) -> None:
        super().__init__()
        self._tables.first_of = lambda group: None  # type: ignore[method-assign]


class LeavesTheBlockedBehind(ReferenceStore):
    def __init__(self) -> None:
        super().__init__()
        self._tables._unblock_first = lambda group, at: None  # type: ignore[method-assign]


class LosesLateResults(ReferenceStore):
    def _log_attempt(self, settlement: object, late: bool) -> None:
        if not late:
            super()._log_attempt(settlement, late)  # type: ignore[arg-type]


class CountsRepetitions(ReferenceStore):
    def _accept(self, submission: Submission, now: Instant) -> Receipt:
        receipt = super()._accept(submission, now)
        tally = Tally()
        tally.accepted(submission.event.org_id, int(receipt.verdict is not Verdict.ACCEPTED))
        self._tables.counters.add(tally, now)
        return receipt


class KeepsCountingWhatWasDeleted(ReferenceStore):
    def __init__(self) -> None:
        super().__init__()
        self._tables._count_leaving = lambda event, at: None  # type: ignore[method-assign]


class LosesAggregatedCounters(ReferenceStore):
    async def aggregate(
        self, now: Instant, limit: int | None = None, *, minutes_before: Instant = 0, hours_before: Instant = 0
    ) -> int:
        moved = await super().aggregate(now, limit, minutes_before=minutes_before, hours_before=hours_before)
        self._tables.counters._rollups.clear()
        return moved


class LetsOthersAct(ReferenceStore):
    def _find_row(self, org_id: UUID, delivery_id: UUID) -> DeliveryRow | None:
        return self._tables.deliveries.get(delivery_id)


class ListsDeletedEvents(ReferenceStore):
    def _events(self, org_id: UUID | None) -> list[EventRow]:
        return [row for row in self._tables.events.values() if org_id in (None, row.event.org_id)]


class ListsOldLettersAsDead(ReferenceStore):
    def _dead_letters(self, org_id: UUID | None, query: DeadLetterFilter) -> list[DeliveryRow]:
        return super()._dead_letters(org_id, replace(query, archived_before=0))


class SendsWhatWasAcceptedInsteadOfWhatWasEdited(ReferenceStore):
    def _apply(self, action: Action, row: DeliveryRow) -> list[Move]:
        moves = super()._apply(action, row)
        row.own_payload = None
        return moves


class ForwardsTheNewestFirst(ReferenceStore):
    async def outbox(self, limit: int) -> list[OutboxMessage]:
        return (await super().outbox(1_000))[::-1][:limit]


class ForgetsWhyItWasRejected(ReferenceStore):
    async def reject(self, event_id: UUID, reason: str, now: Instant) -> None:
        self._tables.outbox.pop(event_id, None)


class ListsEveryDeliveryAsABatch(ReferenceStore):
    def _batches(self, org_id: UUID | None, query: BatchFilter) -> list[DeliveryRow]:
        return self._deliveries(org_id)


class LeasesToEverybody(ReferenceStore):
    async def lease_inbox(
        self,
        org_id: UUID,
        event_types: Sequence[str],
        limit: int,
        holder: str,
        now: Instant,
        until: Instant,
        user_id: str | None = None,
    ) -> list[EventView]:
        views = await super().lease_inbox(org_id, event_types, limit, holder, now, now, user_id)
        return [replace(view, visible_at=until) for view in views]


class ShowsTheInboxOfOtherUsers(ReferenceStore):
    def _inbox(self, org_id: UUID | None, query: InboxFilter) -> list[EventRow]:
        return super()._inbox(org_id, replace(query, user_id=None))


class LeasesTheEventsOfOtherUsers(ReferenceStore):
    async def lease_inbox(self, *args: Any) -> list[EventView]:
        return await super().lease_inbox(*args[:6])


class BelievesOtherUsers(ReferenceStore):
    async def answer_inbox(
        self, org_id: UUID, answers: Sequence[InboxAnswer], actor: str, now: Instant
    ) -> InboxAnswered:
        return await super().answer_inbox(org_id, [replace(one, user_id=None) for one in answers], actor, now)


class BelievesOldConsumers(ReferenceStore):
    async def answer_inbox(
        self, org_id: UUID, answers: Sequence[InboxAnswer], actor: str, now: Instant
    ) -> InboxAnswered:
        return await super().answer_inbox(org_id, [replace(one, token=None) for one in answers], actor, now)


SHORT = settings(PROFILE, max_examples=8, derandomize=False, phases=[Phase.generate])
WALKS_MAX = 100
"""Many short walks find a fault ten times sooner than one walk of the same total length, which repeats itself."""

BROKEN = [store for store in ReferenceStore.__subclasses__() if store.__module__ == __name__]


@pytest.mark.full
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_deliberately_broken_store_is_caught(broken: type[ReferenceStore]) -> None:
    class BrokenPlace:
        name = "broken"

        async def open(self) -> Store:
            return broken()

    @contextmanager
    def opening() -> Iterator[Place]:
        yield BrokenPlace()

    with pytest.raises(AssertionError):
        for number in range(WALKS_MAX):
            walk(opening, SHORT, number)


@pytest.mark.full
def test_the_reference_model_agrees_with_itself() -> None:
    """Otherwise the controls above would prove nothing."""

    class SamePlace:
        name = "reference"

        async def open(self) -> Store:
            return ReferenceStore()

    @contextmanager
    def opening() -> Iterator[Place]:
        yield SamePlace()

    walk(opening, SLOWER)
