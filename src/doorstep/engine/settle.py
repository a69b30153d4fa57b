"""Step five: write the results of claims in batches. A result counts only if its claim is still the newest.

Attempted claims are settled, others are released. A result stays in memory until the store confirms the write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Clock, Instant
from doorstep.engine import facts
from doorstep.engine.circuits import Circuits
from doorstep.errors import StoreError
from doorstep.model.claim import Claim, Settlement
from doorstep.model.endpoint import CircuitState
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

_BATCH_MAX = 1_000
_BACKLOG_MAX = 5_000
"""The maximum backlog of results waiting to be written. If it is exceeded, the store is down or slow, and the worker
claims nothing more."""


class Settler:
    """A service that collects settlements and writes them. The worker claims nothing while it is behind."""

    name = "settler"

    def __init__(
        self,
        store: Store,
        circuits: Circuits,
        clock: Clock,
        telemetry: Telemetry,
        on_opened: Callable[[set[UUID]], None],
        wake_dispatcher: Callable[[], None],
        linger_seconds: float,
    ) -> None:
        self._store = store
        self._circuits = circuits
        self._clock = clock
        self._telemetry = telemetry
        self._on_opened = on_opened
        self._wake_dispatcher = wake_dispatcher
        self._linger_seconds = linger_seconds
        self._pending: list[Settlement] = []
        self._unattempted: list[Claim] = []
        self._writing = 0
        self._batch_max = _BATCH_MAX
        self.wake = asyncio.Event()

    @property
    def backlog(self) -> int:
        return len(self._pending) + len(self._unattempted) + self._writing

    @property
    def is_behind(self) -> bool:
        """Whether too many results are waiting to be written. The worker then claims nothing more."""
        return self.backlog > _BACKLOG_MAX

    def put(self, settlements: Sequence[Settlement]) -> None:
        if settlements:
            self._pending.extend(settlements)
            self.wake.set()

    def release(self, claims: Sequence[Claim]) -> None:
        """Give up claims that were not attempted. Their deliveries are due immediately, and no attempt is counted."""
        if claims:
            self._unattempted.extend(claims)
            self.wake.set()

    async def run_once(self) -> float | None:
        """Write the collected results and releases. If a write fails, they are kept for the next round."""
        if self._pending:
            await self._settle_pending()
        if self._unattempted:
            await self._release_unattempted()
        return 0.0 if self.backlog else None

    async def settle(self, batch: Sequence[Settlement]) -> None:
        await self._count(await self._write(batch))

    async def _settle_pending(self) -> None:
        if len(self._pending) > 1 and self._linger_seconds:
            await asyncio.sleep(self._linger_seconds)
        batch, self._pending = self._pending[: self._batch_max], self._pending[self._batch_max :]
        self._writing = len(batch)
        try:
            written = await self._write(batch)
        except BaseException as error:
            self._keep(batch, error)
            raise
        finally:
            self._writing = 0
        self._batch_max = min(2 * self._batch_max, _BATCH_MAX)
        # Outside the `try`: an error in a circuit must not cause results to be written twice.
        await self._count(written)

    def _keep(self, batch: list[Settlement], error: BaseException) -> None:
        """Keep results that could not be written. Until their leases end, no other worker touches the deliveries.

        An error that does not come from the store is a bug in Doorstep, triggered by one of these results. Halving the
        batch repeatedly isolates that result. It is then dropped, so that it does not block the others forever. Its
        attempt is settled as lost when the lease ends.
        """
        ours = isinstance(error, Exception) and not isinstance(error, StoreError)
        if not ours or len(batch) > 1:
            self._pending = batch + self._pending
        if ours:
            self._batch_max = max(1, len(batch) // 2)

    async def _write(self, batch: Sequence[Settlement]) -> Sequence[Settlement]:
        """Write settlements; returns those that were not late."""
        now = self._clock.now()
        batch = [_due_from(one, now) for one in batch]
        result = await self._store.settle(batch, now)
        stored_at = self._clock.now()
        if self._telemetry.has_subscribers or not all(one.outcome.succeeded for one in batch):
            self._telemetry.emit_all(facts.settled(batch, result, now, stored_at))
        for settlement in batch:
            if settlement.due_at is not None:
                self._telemetry.timings.retry_scheduled.observe(facts.scheduling_seconds(settlement, stored_at))
        if tracing := self._telemetry.tracing:
            tracing.record(facts.settled_spans(batch, result, tracing))
        if any(one.due_at is not None or one.claim.ordering_key is not None for one in batch):
            self._wake_dispatcher()  # a retry or the group's next delivery may be due before the next round
        late = {(claim.delivery_id, claim.token) for claim in result.late}
        return [s for s in batch if (s.claim.delivery_id, s.claim.token) not in late] if late else batch

    async def _count(self, settlements: Sequence[Settlement]) -> None:
        changed = await self._circuits.record(settlements, self._clock.now())
        if opened := {key for key, state in changed.items() if state is CircuitState.OPEN}:
            self._on_opened(opened)
        if changed:
            self._wake_dispatcher()  # a circuit that has closed lets others through

    async def _release_unattempted(self) -> None:
        """Release the collected claims. Safe to repeat: the store ignores claims that are no longer held."""
        claims, now = self._unattempted[:_BATCH_MAX], self._clock.now()
        released = await self._store.release(claims, now)
        del self._unattempted[: len(claims)]
        self._telemetry.emit_all(facts.released(released, now))
        if released:
            self._wake_dispatcher()  # they are due now, and the last round may not have seen them


def _due_from(settlement: Settlement, now: Instant) -> Settlement:
    """If the due time has passed, replace it with `now`, the time of writing.

    If the earlier due time were stored, a claim whose time is earlier than `now` could find the delivery due. The
    claim's history entry would then be older than the settlement's.
    """
    if settlement.due_at is None or settlement.due_at >= now:
        return settlement
    return replace(settlement, due_at=now)
