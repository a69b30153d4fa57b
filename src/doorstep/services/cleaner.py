"""The Cleaner: ends what expired, removes what is past its retention, archives untouched dead letters; bit by bit."""

from __future__ import annotations

import asyncio

from msgspec.structs import asdict

from doorstep.clock import DAY, Clock, Instant, seconds, to_iso
from doorstep.model.move import Moved
from doorstep.model.outcome import Code
from doorstep.path import facts
from doorstep.path.tuning import Tuning
from doorstep.policy.classification import EXPIRED_WHILE_WAITING
from doorstep.stores.protocol.house import Cleaned, HouseStore
from doorstep.telemetry.facts import Notice, Telemetry

_EVERY_SECONDS = 60.0
_BATCH_MAX = 500
_BATCH_PAUSE_SECONDS = 0.05
"""Between batches, so that cleaning a backlog takes a small share of the store's time."""
_SWEEP_EVERY_SECONDS = 3_600.0
"""How often everything that ever expired is looked at again: a try that was under way then may have been handed back.
In between only what expired since the last look is, because what was delivered in time stays until it is cleaned."""


class Cleaner:
    name = "cleaner"

    def __init__(self, store: HouseStore, clock: Clock, tuning: Tuning, telemetry: Telemetry) -> None:
        self._store = store
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry
        self._looked_until: Instant = 0
        self._sweep_at: Instant = 0
        self.wake = asyncio.Event()

    async def run_once(self) -> float | None:
        """One batch of each kind; soon again while there is more."""
        now = self._clock.now()
        expired = await self._expire(now)
        archived = await self._store.archive(_ago(now, self._tuning.archive_after_days), now, _BATCH_MAX)
        self._telemetry.emit_all(facts.moved(archived, now))
        cleaned = await self._clean(now)
        if expired.moves or archived.moves or cleaned.total:
            self._tell(len(expired.moves), len(archived.moves), cleaned)
            return _BATCH_PAUSE_SECONDS
        return _EVERY_SECONDS

    async def _expire(self, now: Instant) -> Moved:
        """End what expired while it was held: nobody claims it, so nobody else would notice."""
        since = 0 if now >= self._sweep_at else self._looked_until
        expired = await self._store.expire(Code.EXPIRED, EXPIRED_WHILE_WAITING, since, now, _BATCH_MAX)
        self._telemetry.emit_all(facts.moved(expired, now))
        if not expired.moves:
            self._looked_until = now
            if not since:
                self._sweep_at = now + seconds(_SWEEP_EVERY_SECONDS)
        return expired

    async def _clean(self, now: Instant) -> Cleaned:
        return await self._store.clean(
            _ago(now, self._tuning.retention_days),
            now,
            _BATCH_MAX,
            inbox_before=_ago(now, self._tuning.inbox_retention_days),
            audit_before=_ago(now, self._tuning.audit_retention_days),
        )

    def _tell(self, expired: int, archived: int, cleaned: Cleaned) -> None:
        counts: dict[str, object] = {"expired": expired, "archived": archived, **asdict(cleaned)}
        at = to_iso(self._clock.now())
        self._telemetry.emit(Notice(at=at, level="info", message="cleaned", fields=counts))
        if cleaned.inbox_events:  # nobody ever had them: that is worth a look
            message = "events were removed from the inbox that nobody had acknowledged"
            lost: dict[str, object] = {"events": cleaned.inbox_events}
            self._telemetry.emit(Notice(at=at, level="warning", message=message, fields=lost))


def _ago(now: Instant, days: float) -> Instant:
    return now - round(days * DAY)
