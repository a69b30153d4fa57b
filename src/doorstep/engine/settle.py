"""Step five: write what came of the claims, in batches; each only if its claim is still the newest.

Tried claims are settled, untried ones handed back. Nothing is let go before the store has said that it is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Clock, Instant
from doorstep.engine import facts, spans
from doorstep.engine.circuits import Circuits
from doorstep.errors import StoreError
from doorstep.model.claim import Claim, Settlement
from doorstep.stores.protocol.path import PathStore
from doorstep.telemetry.facts import Telemetry

_BATCH_MAX = 1_000


class Settler:
    """Gathers settlements and writes them. Run as a service; `backlog` tells others when to slow down."""

    name = "settler"

    def __init__(
        self,
        store: PathStore,
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
        self._untried: list[Claim] = []
        self._writing = 0
        self._batch_max = _BATCH_MAX
        self.wake = asyncio.Event()

    @property
    def backlog(self) -> int:
        return len(self._pending) + len(self._untried) + self._writing

    def put(self, settlements: Sequence[Settlement]) -> None:
        if settlements:
            self._pending.extend(settlements)
            self.wake.set()

    def hand_back(self, claims: Sequence[Claim]) -> None:
        """Claims that were not tried after all: due again at once, no attempt counted."""
        if claims:
            self._untried.extend(claims)
            self.wake.set()

    async def run_once(self) -> float | None:
        """Write what has gathered; what could not be written is kept for the next round."""
        if self._pending:
            await self._settle_pending()
        if self._untried:
            await self._release_untried()
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
        # Outside the `try`: results that are written must not be written again because a circuit could not be.
        await self._count(written)

    def _keep(self, batch: list[Settlement], error: BaseException) -> None:
        """Put back what could not be written. Until the lease ends nobody else will touch it, and then it is late.

        An error that is not the store's trouble is a bug of ours with one of these results. Halving the batch finds
        it; alone it is dropped, and settled as lost when its lease ends, instead of holding the others up for ever.
        """
        ours = isinstance(error, Exception) and not isinstance(error, StoreError)
        if not ours or len(batch) > 1:
            self._pending = batch + self._pending
        if ours:
            self._batch_max = max(1, len(batch) // 2)

    async def _write(self, batch: Sequence[Settlement]) -> Sequence[Settlement]:
        """Settle; returns those that were not too late."""
        now = self._clock.now()
        batch = [_due_from(one, now) for one in batch]
        result = await self._store.settle(batch, now)
        if self._telemetry.heard:
            self._telemetry.emit_all(facts.settled(batch, result, now))
        if tracing := self._telemetry.tracing:
            tracing.record(spans.settled(batch, result, tracing))
        if any(one.due_at is not None or one.claim.ordering_key is not None for one in batch):
            self._wake_dispatcher()  # a retry, or the next with this key, may be due sooner than it would look again
        late = {(claim.delivery_id, claim.token) for claim in result.late}
        return [s for s in batch if (s.claim.delivery_id, s.claim.token) not in late] if late else batch

    async def _count(self, settlements: Sequence[Settlement]) -> None:
        opened = await self._circuits.record(settlements, self._clock.now())
        if opened:
            self._on_opened(opened)

    async def _release_untried(self) -> None:
        """Harmless when repeated: the store leaves alone what is no longer held."""
        claims, now = self._untried[:_BATCH_MAX], self._clock.now()
        released = await self._store.release(claims, now)
        del self._untried[: len(claims)]
        self._telemetry.emit_all(facts.released(released, now))
        if released:
            self._wake_dispatcher()  # they are due, and whoever looked a moment ago did not see them


def _due_from(settlement: Settlement, now: Instant) -> Settlement:
    """Due at the earliest when it is written: a round of claiming that began before that would find it due, and its
    line in the history would tell an earlier time than this one."""
    if settlement.due_at is None or settlement.due_at >= now:
        return settlement
    return replace(settlement, due_at=now)
