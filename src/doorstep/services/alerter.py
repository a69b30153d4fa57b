"""The Alerter: turns incidents into alerts and messages, in one process at a time.

It looks for incidents when it is woken, at most once a second, or once a second on a store that does not announce them.
A look takes one index lookup. A fact that accompanies an incident immediately wakes the alerter of the same process. The
alerter acquires its lock only when there is something to do, so an idle installation writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from doorstep.clock import DAY, SECOND, Clock, Instant, seconds
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import CircuitState
from doorstep.operations.alert_evaluator import AlertEvaluator
from doorstep.services.coordination import TaskLock
from doorstep.stores.store import Retention, Store, Task, Topic
from doorstep.telemetry.facts import CircuitTransition, DeliveryTransition, EndpointDisabled, Fact, StatusTransition

LEASE_SECONDS = 15.0
"""The time after which another process takes over if the current one is killed. On PostgreSQL, other processes notice
the failure sooner."""
POLL_SECONDS = 1.0
REVIEW_SECONDS = 5.0
"""How often open alerts, failure rates and late deliveries are measured again."""
_IDLE_REVIEW_SECONDS = 30.0
"""How often these are measured on a store that announces work, while nothing is waiting and nothing is written."""
_CLEAN_EVERY: Instant = 3_600 * SECOND
_CLEAN_BATCH = 500
_SILENCE_RETENTION: Instant = DAY
"""How long an expired silence stays listed."""


class Alerter:
    name = "alerter"

    def __init__(
        self, store: Store, evaluator: AlertEvaluator, clock: Clock, holder: str, retention_days: float
    ) -> None:
        self._store = store
        self._evaluator = evaluator
        self._clock = clock
        self._retention: Instant = round(retention_days * DAY)
        self._announced = store.features.announces_work
        self.lock = TaskLock(store, Task.ALERTS, holder, clock, LEASE_SECONDS)
        self._is_new = False
        """Whether this process took over and has not yet loaded the failing endpoints."""
        self._reviewed_at: Instant = 0
        self._review_at: Instant = 0
        self._clean_at: Instant = 0
        self.wake = asyncio.Event()

    def on_facts(self, facts: Sequence[Fact]) -> None:
        """A telemetry subscriber. Facts that accompany an incident wake the alerter."""
        if _include_incident(facts):
            self.wake.set()

    async def run_once(self) -> float | None:
        """Process one batch of incidents for each organization, then review and clean if that is due.

        The review and the cleanup happen even if processing fails or incidents keep coming. Otherwise, one organization
        could delay the recovery notices of all others.
        """
        waiting = await self._store.any_waiting(Topic.INCIDENTS)
        active = waiting and await self._acquire()
        try:
            if active:
                await self._load_if_new()
                await self._evaluator.process_incidents()
        finally:
            await self._review_if_due()
            await self._clean_if_due()
        if active:
            return 0.0
        # If incidents wait although another process has the lock, nothing announces that it was killed.
        return POLL_SECONDS if waiting or not self._announced else self._seconds_to_review()

    def _seconds_to_review(self) -> float:
        return max(0.0, (self._review_at - self._clock.now()) / SECOND)

    async def _review_if_due(self) -> None:
        """Review if that is due. If the alerter was woken, something was written, which ends a long pause."""
        now = self._clock.now()
        self._review_at = min(self._review_at, max(now, self._reviewed_at + seconds(REVIEW_SECONDS)))
        if 0 < self._review_at - now <= seconds(_IDLE_REVIEW_SECONDS):  # the clock may be set back
            return
        self._reviewed_at = now
        found = await self._evaluator.find_reviewable(now + seconds(_IDLE_REVIEW_SECONDS))
        idle = self._announced and self._evaluator.idle
        self._review_at = now + seconds(_IDLE_REVIEW_SECONDS if idle else REVIEW_SECONDS)
        if found is None:
            await self.lock.release()
        elif await self._acquire():
            await self._load_if_new()
            await self._evaluator.review(found)

    async def _load_if_new(self) -> None:
        """Load every endpoint with recent dead letters after taking over, because the previous alerter may have been
        killed.

        This must happen before incidents are processed, because a deleted endpoint is left out of the organization's
        failure rate only if it has been loaded. It takes one query.
        """
        if self._is_new:
            await self._evaluator.load_failing()
            self._is_new = False

    async def _clean_if_due(self) -> None:
        now = self._clock.now()
        if 0 < self._clean_at - now <= _CLEAN_EVERY:
            return
        retention = Retention(alerts_before=now - self._retention, silences_before=now - _SILENCE_RETENTION)
        if (await self._store.clean(retention, now, _CLEAN_BATCH)).alerts < _CLEAN_BATCH:
            self._clean_at = now + _CLEAN_EVERY

    async def _acquire(self) -> bool:
        self._is_new = self._is_new or self.lock.has_expired
        if await self.lock.acquire():
            return True
        self._evaluator.forget_failing()
        return False


def _include_incident(facts: Sequence[Fact]) -> bool:
    """Whether any of these facts accompanies an incident. Each delivery emits four transitions, so transitions are
    checked in bulk, which takes 0.05 µs per transition."""
    states = {fact.new_state for fact in facts if type(fact) is DeliveryTransition}
    return DeliveryState.DEAD in states or any(_is_incident(fact) for fact in facts if type(fact) not in _FREQUENT)


def _is_incident(fact: Fact) -> bool:
    if isinstance(fact, CircuitTransition):
        return fact.new_state != CircuitState.HALF_OPEN
    return isinstance(fact, EndpointDisabled)


_FREQUENT = frozenset({DeliveryTransition, StatusTransition})
