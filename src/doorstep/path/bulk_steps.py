"""Beside the path: how a bulk operation is carried out, step by step.

A step is one transaction with the acts it makes and the place it has come to, fenced by a version. So a process
may die at any point, several may try at once, and still each delivery is acted upon once.

What a bulk retry revives is due like everything else, and only so much of it at a time (bulk_places.py): fresh events
to the same endpoint find a short queue, and to all endpoints a store that is soon free. One delivery goes ahead with
force when nothing is under way, as an operator's single retry would: it is the probe that gets a circuit closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.act import Act, ActKind, AuditLine
from doorstep.model.bulk import UNDER_WAY_MAX, Bulk, BulkKind, BulkState, Canary, retried_well
from doorstep.model.listing import CauseGroup
from doorstep.path import facts
from doorstep.path.bulk_selection import Chooser, before_start
from doorstep.path.bulk_walk import Walker
from doorstep.path.replay import Replayer
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

_STEP_MAX = 25
"""How many deliveries one transaction acts upon. A fresh event waits twice for SQLite's only writer, to be kept and to
be claimed, and each time perhaps behind such a step: for 3 ms with 25, for 10 with 100, and then for the claim and the
results of as many."""
_STEP_PAUSE_SECONDS = 0.02
"""Between two steps of a retry, so that what one took is on its way before the next."""
_CAUSES_MAX = 200
_CAUSE_PAGES_MAX = 40
"""Pages that causes are looked for in: 10,000 causes, most of them perhaps of other endpoints than the wanted one."""
_RESULTS_EVERY_SECONDS = 0.05
_ELSEWHERE_SECONDS = 1.0
"""Another process has taken the step: it will take the next one too."""


class BulkStepper:
    def __init__(
        self,
        store: Store,
        chooser: Chooser,
        replayer: Replayer,
        clock: Clock,
        telemetry: Telemetry,
        wake_worker: Callable[[], None],
    ) -> None:
        self._store = store
        self._chooser = chooser
        self._walker = Walker(store, chooser)
        self._replayer = replayer
        self._clock = clock
        self._telemetry = telemetry
        self._wake_worker = wake_worker
        self._looks: Counter[UUID] = Counter()
        """How often in a row each operation had nothing new."""

    async def advance(self, bulk: Bulk) -> float:
        """Take the next step of an operation; returns the seconds until it is worth taking another.

        One that is refused would be refused again: the operation is paused, for people to look at.
        """
        now = self._clock.now()
        if bulk.state is BulkState.RUNNING and not (bulk.in_flight or bulk.all_taken) and bulk.ready_at > now:
            return min((bulk.ready_at - now) / SECOND, _ELSEWHERE_SECONDS)
        try:
            written = await self._step(bulk, now)
        except (InvalidInput, Conflict, NotFound) as refusal:
            written = await self._pause_itself(bulk, str(refusal))
        if written is None:
            return _ELSEWHERE_SECONDS
        return self._pause_after(bulk, written, (self._clock.now() - now) / SECOND)

    def keep_only(self, bulk_ids: AbstractSet[UUID]) -> None:
        """Forget what is remembered of operations that others have ended."""
        for bulk_id in [one for one in self._looks if one not in bulk_ids]:
            del self._looks[bulk_id]
        self._walker.keep_only(bulk_ids)

    async def _pause_itself(self, bulk: Bulk, why: str) -> Bulk | None:
        paused = replace(bulk, state=BulkState.PAUSED, note=f"paused: {why}")
        return await self._write(
            paused, bulk, line=audit_line(bulk, self._clock.now(), "doorstep", "pause", paused.note)
        )

    def _pause_after(self, bulk: Bulk, written: Bulk, elapsed_seconds: float) -> float:
        """As long as the step took, so that everybody else has the store and the processor for half of the time.

        A retry waits until what it took is on its way; while there are no results, as from endpoints that are dead,
        longer and longer with every walk in vain.
        """
        if written.finished_at is not None:
            self._walker.forget(bulk.bulk_id)
        if written.taken > bulk.taken or written.finished_at is not None:
            del self._looks[bulk.bulk_id]
            return _STEP_PAUSE_SECONDS if bulk.kind is BulkKind.RETRY else min(elapsed_seconds, _ELSEWHERE_SECONDS)
        walks_on = written.cursor not in (None, bulk.cursor)
        looks = 1 if written.in_flight < bulk.in_flight else max(1, self._looks[bulk.bulk_id] + (not walks_on))
        self._looks[bulk.bulk_id] = looks
        return min(_RESULTS_EVERY_SECONDS * looks, _ELSEWHERE_SECONDS)

    async def _step(self, bulk: Bulk, now: Instant) -> Bulk | None:
        if bulk.state is not BulkState.RUNNING or bulk.all_taken:
            return await self._end(bulk, now)
        if bulk.canary and bulk.canaries is None:
            return await self._send_canaries(bulk, now)
        if bulk.canary and any(one.succeeded is None for one in bulk.canaries or ()):
            return await self._watch_canaries(bulk)
        room = _room(bulk, now)
        if room <= 0:
            return await self._wait(bulk)
        if bulk.kind is BulkKind.REPLAY:
            replayed = await self._replayer.replay(bulk, room)
            return await self._write(_paced(replayed, replayed.taken - bulk.taken, now), bulk)
        return await self._take(bulk, room, now)

    async def _take(self, bulk: Bulk, room: int, now: Instant) -> Bulk | None:
        probing = bulk.kind is BulkKind.RETRY and bulk.in_flight == 0
        chosen, onward = await self._walker.next(bulk, 1 if probing else room)
        if not chosen and onward == bulk:
            return await self._wait(bulk)
        act = self._act(bulk, chosen, now, forced=probing) if chosen else None
        return await self._write(_paced(onward, len(chosen), now), bulk, act)

    def _act(self, bulk: Bulk, chosen: tuple[UUID, ...], now: Instant, *, forced: bool) -> Act:
        about = f"bulk operation {bulk.bulk_id}"
        return Act(
            kind=ActKind(bulk.kind),
            org_id=bulk.org_id,
            delivery_ids=chosen,
            actor=bulk.actor,
            at=now,
            reason=f"{about}: {bulk.reason}" if bulk.reason else about,
            revive_at=now,
            forced=forced,
            only_in=bulk.selection.only_in,
        )

    async def _end(self, bulk: Bulk, now: Instant) -> Bulk | None:
        """Nothing more is to be taken: the operation is at its end once all results are in; if it was cancelled, at once.

        What it took may be held for days, and nobody waits for what becomes of it.
        """
        if bulk.in_flight and bulk.state is not BulkState.CANCELLED:
            return await self._wait(bulk)
        state = BulkState.FINISHED if bulk.state is BulkState.RUNNING else bulk.state
        line = audit_line(bulk, self._clock.now(), "doorstep", "end", f"{state}: {bulk.progress}")
        note = f"{bulk.note}; not waited for: {bulk.in_flight} without a result" if bulk.in_flight else bulk.note
        return await self._write(replace(bulk, state=state, note=note, finished_at=now), bulk, line=line)

    async def _wait(self, bulk: Bulk) -> Bulk | None:
        """Count the results that are there. While there are none nothing is written: that may be so for days."""
        if not await self._store.bulk_has_results(bulk.org_id, bulk.bulk_id):
            return bulk
        return await self._write(bulk, bulk)

    async def _write(
        self, bulk: Bulk, read: Bulk, act: Act | None = None, line: AuditLine | None = None
    ) -> Bulk | None:
        now = self._clock.now()
        step = await self._store.step_bulk(replace(bulk, updated_at=now), read.version, act, line)
        if step is None:
            return None
        self._telemetry.emit_all(facts.moved(step.moved, now))
        if act is not None:
            self._wake_worker()
        return step.bulk

    # -- canaries ------------------------------------------------------------------------------------------

    async def _send_canaries(self, bulk: Bulk, now: Instant) -> Bulk | None:
        """Retry the newest letter of each cause."""
        groups, more = await self._causes(bulk)
        canaries = []
        for group in groups:
            delivery = await self._store.delivery(bulk.org_id, group.sample_id)
            canaries.append(Canary(cause=group.cause, delivery_id=group.sample_id, attempt=delivery.attempt))
        chosen = tuple(one.delivery_id for one in canaries)
        note = f"only the first {len(canaries)} causes are tried: there are too many" if more else ""
        sent = replace(bulk, canaries=tuple(canaries), all_taken=not canaries, note=note)
        act = self._act(bulk, chosen, now, forced=True) if chosen else None
        return await self._write(_paced(sent, len(chosen), now), bulk, act)

    async def _causes(self, bulk: Bulk) -> tuple[list[CauseGroup], bool]:
        """The causes that the selected letters died of, and whether there may be more than may have canaries."""
        letters = self._chooser.dated(before_start(bulk).letters)
        groups: list[CauseGroup] = []
        cursor: str | None = None
        for _ in range(_CAUSE_PAGES_MAX):
            page = await self._store.cause_groups(bulk.org_id, letters, cursor, _CAUSES_MAX - len(groups))
            groups += page.items
            cursor = page.next
            if cursor is None or len(groups) == _CAUSES_MAX:
                break
        return groups, cursor is not None

    async def _watch_canaries(self, bulk: Bulk) -> Bulk | None:
        seen = tuple([await self._seen(bulk.org_id, one) for one in bulk.canaries or ()])
        if seen == bulk.canaries:
            return await self._wait(bulk)
        if any(one.succeeded is None for one in seen):
            return await self._write(replace(bulk, canaries=seen), bulk)
        failed = sum(not one.succeeded for one in seen)
        note = f"{failed} of {len(seen)} causes were left as they are, because their canary failed" if failed else ""
        notes = "; ".join(filter(None, (bulk.note, note)))
        return await self._write(replace(bulk, canaries=seen, note=notes, all_taken=failed == len(seen)), bulk)

    async def _seen(self, org_id: UUID, canary: Canary) -> Canary:
        if canary.succeeded is not None:
            return canary
        try:
            delivery = await self._store.delivery(org_id, canary.delivery_id)
        except NotFound:
            return replace(canary, succeeded=retried_well(None, 0, canary.attempt))
        return replace(canary, succeeded=retried_well(delivery.state, delivery.attempt, canary.attempt))


def audit_line(bulk: Bulk, at: Instant, actor: str, action: str, result: str, reason: str = "") -> AuditLine:
    """What is audited about an operation as a whole; each of its acts has a line of its own. Its reason is the one that
    it was begun with, unless this has one of its own."""
    return AuditLine(
        at=at,
        org_id=bulk.org_id,
        actor=actor,
        action=f"bulk.{bulk.kind}.{action}",
        subjects=(str(bulk.bulk_id),),
        result=result,
        reason=reason or bulk.reason,
    )


def _room(bulk: Bulk, now: Instant) -> int:
    """How many may be taken now. Of a limited operation so few that it goes evenly, not in bursts."""
    room = min(_STEP_MAX, UNDER_WAY_MAX - bulk.in_flight)
    if bulk.rate_per_second is None:
        return room
    # Others may follow a probe at once: waiting for their turn, they would find it back, and be probes themselves.
    probe = seconds(1 / bulk.rate_per_second) if bulk.in_flight else 0
    return min(room, max(1, int(bulk.rate_per_second / 4))) if bulk.ready_at <= now + probe else 0


def _paced(bulk: Bulk, taken: int, now: Instant) -> Bulk:
    """The operation after it has taken so many: the next ones have to wait until these are paid for."""
    if bulk.rate_per_second is None:
        return bulk
    return replace(bulk, ready_at=max(bulk.ready_at, now) + seconds(taken / bulk.rate_per_second))
