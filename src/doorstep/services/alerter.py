"""The Alerter: sees to it that somebody is told. One process at a time keeps it, whichever lives.

It looks for incidents once a second, which is one question to an index; a hint of this process wakes it at once. Only
where there is something does it take the right to tell, so it writes nothing where nothing happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from doorstep.clock import DAY, SECOND, Clock, Instant, seconds
from doorstep.model.circuit import CircuitState
from doorstep.model.delivery import DeliveryState
from doorstep.operations.alert_evaluator import AlertEvaluator
from doorstep.stores.store import Store, Task
from doorstep.telemetry.facts import CircuitTransition, DeliveryTransition, EndpointDisabled, Fact, StatusTransition

HOLD_SECONDS = 15.0
"""For so long the others leave it to a process that was killed while it watched; on PostgreSQL they see that it is gone."""
LOOK_SECONDS = 1.0
REVIEW_SECONDS = 5.0
"""How often what is suspected, late, or to be looked at again is measured."""
_CLEAN_EVERY: Instant = 3_600 * SECOND
_CLEAN_BATCH = 500
_SILENCES_KEPT: Instant = DAY
"""For so long a silence that is over is still listed."""


class Alerter:
    name = "watch"

    def __init__(self, store: Store, alarms: AlertEvaluator, clock: Clock, holder: str, retention_days: float) -> None:
        self._store = store
        self._alarms = alarms
        self._clock = clock
        self._holder = holder
        self._retention: Instant = round(retention_days * DAY)
        self._held_until: Instant = 0
        self._is_new = False
        """It has begun to watch, and not yet asked what whoever watched before may have had in mind."""
        self.held_at: Instant = 0
        """When it last had the right to watch."""
        self._review_at: Instant = 0
        self._clean_at: Instant = 0
        self.wake = asyncio.Event()

    def hear(self, facts: Sequence[Fact]) -> None:
        """A subscriber of the telemetry: what it hears of has left an incident, and is worth a look now."""
        if _tell_of_incidents(facts):
            self.wake.set()

    async def run_once(self) -> float | None:
        """One batch of incidents of each organization; more may wait behind it. Now and then a review, and what is old is
        removed: also while incidents do not end or cannot be told, or one organization's would keep everybody from being
        told of a recovery."""
        told = await self._store.any_incident() and await self._hold()
        try:
            if told:
                await self._suspect_if_new()
                await self._alarms.tell()
        finally:
            await self._review_if_due()
            await self._clean_if_due()
        return 0.0 if told else LOOK_SECONDS

    async def leave(self) -> None:
        """Let another process watch, if it has been this one."""
        if self._held_until:
            self._held_until = 0
            await self._store.leave(Task.WATCH, self._holder)

    async def _review_if_due(self) -> None:
        if self._clock.now() < self._review_at:
            return
        self._review_at = self._clock.now() + seconds(REVIEW_SECONDS)
        found = await self._alarms.look()
        if found is None:
            await self.leave()
        elif await self._hold():
            await self._suspect_if_new()
            await self._alarms.review(found)

    async def _suspect_if_new(self) -> None:
        """Whoever begins to watch suspects everybody: his predecessor may have been killed with a suspicion. Before he tells
        anything: of whom he does not know that they were deleted, the deaths would be the organization's. It is one
        question."""
        if self._is_new:
            await self._alarms.suspect_all()
            self._is_new = False

    async def _clean_if_due(self) -> None:
        now = self._clock.now()
        if now < self._clean_at:
            return
        before, silences_before = now - self._retention, now - _SILENCES_KEPT
        if await self._store.clean_alerts(before, silences_before, _CLEAN_BATCH) < _CLEAN_BATCH:
            self._clean_at = now + _CLEAN_EVERY

    async def _hold(self) -> bool:
        now = self._clock.now()
        if self._held_until - now < seconds(HOLD_SECONDS / 2):
            lapsed, until = self._held_until <= now, now + seconds(HOLD_SECONDS)
            self._held_until = until if await self._store.hold(Task.WATCH, self._holder, now, until) else 0
            if not self._held_until:
                self._alarms.suspect_nobody()
            self._is_new = self._is_new or lapsed
        if self._held_until:
            self.held_at = now
        return bool(self._held_until)


def _tell_of_incidents(facts: Sequence[Fact]) -> bool:
    """Transitions come four to a delivery, so they are looked through in bulk: 0.05 µs each."""
    states = {fact.new_state for fact in facts if type(fact) is DeliveryTransition}
    return DeliveryState.DEAD in states or any(_is_incident(fact) for fact in facts if type(fact) not in _EVERYDAY)


def _is_incident(fact: Fact) -> bool:
    if isinstance(fact, CircuitTransition):
        return fact.new_state != CircuitState.HALF_OPEN
    return isinstance(fact, EndpointDisabled)


_EVERYDAY = frozenset({DeliveryTransition, StatusTransition})
