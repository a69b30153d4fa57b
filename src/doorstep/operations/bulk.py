"""Beside the path: bulk operations as people see them. They are started and steered here; `bulk_steps.py` is the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Clock
from doorstep.engine.directory import living
from doorstep.errors import Conflict, InvalidInput, Overloaded
from doorstep.model.bulk import IDS_MAX, Bulk, BulkKind, BulkState, Selection
from doorstep.model.listing import Count
from doorstep.model.record import Record, uuid7
from doorstep.operations.bulk_steps import Selector, audit_line
from doorstep.stores.store import Store
from doorstep.stores.text import check_storable

_COUNTED_MAX = 100_000
"""Somebody waits for the count. Of more, `total` is only a floor."""
_LIVE_MAX = 100
"""Operations of one organization that go on at a time: each has its turn in every round."""
_PREVIEWED_MAX = 10_000
"""Of a hundred thousand it takes 170 to 550 ms to tell by endpoint, and as long to count where their types are asked
for, which only their events know. To count all, or all of a cause or an endpoint, takes 80 at most."""
RATE_MIN, RATE_MAX = 0.01, 100_000.0
_REPLAY_RATE = 100.0
"""A replay without a rate of its own: nobody sees when its events have arrived, so nothing else slows it down."""
_STEER_TRIES = 20
_DONE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}


class Preview(Record, frozen=True):
    """What a bulk operation would be about, were it started now."""

    count: Count
    by_endpoint: dict[UUID, int]
    whole: bool = True
    """Otherwise `by_endpoint` tells of the first ten thousand alone."""


class BulkService:
    def __init__(self, store: Store, chooser: Selector, clock: Clock, wake_runner: Callable[[], None]) -> None:
        self._store = store
        self._chooser = chooser
        self._clock = clock
        self._wake_runner = wake_runner

    async def preview(self, org_id: UUID, selection: Selection, replay_to: UUID | None = None) -> Preview:
        """Count what is selected, and tell which endpoints it is for. Nothing is changed. NotFound for an endpoint to
        replay to that is not there."""
        _check_actable(selection)
        if replay_to is not None:
            await self._store.endpoint(org_id, replay_to)
            events = await self._chooser.count(org_id, selection, _PREVIEWED_MAX)
            return Preview(events, {replay_to: events.value})
        if selection.delivery_ids is not None:
            only_in = selection.only_in
            found = await self._store.these_deliveries(org_id, selection.delivery_ids)
            left = [one for one in found if not one.deleted and (not only_in or one.state in only_in)]
            return Preview(Count(len(left), exact=True), dict(Counter(one.endpoint_id for one in left)))
        count = await self._chooser.count(org_id, selection, _counted_max(selection))
        by_endpoint = await self._chooser.by_endpoint(org_id, selection, _PREVIEWED_MAX)
        return Preview(count, by_endpoint, whole=count.exact and count.value <= _PREVIEWED_MAX)

    async def start(
        self,
        kind: BulkKind,
        org_id: UUID,
        selection: Selection,
        actor: str,
        *,
        reason: str = "",
        rate_per_second: float | None = None,
        canary: bool = False,
        endpoint_id: UUID | None = None,
        bulk_id: UUID | None = None,
    ) -> Bulk:
        """Begin an operation; a service carries it out. With a `bulk_id` of one's own, asking twice begins it once, and
        both are answered with the first."""
        check_storable("reason", reason)
        _check_actable(selection)
        if rate_per_second is not None and not RATE_MIN <= rate_per_second <= RATE_MAX:
            raise InvalidInput("rate_per_second", f"must be from {RATE_MIN:g} to {RATE_MAX:g}, got {rate_per_second:g}")
        if canary and (kind is not BulkKind.RETRY or selection.letters is None):
            raise InvalidInput("canary", "is for a retry of dead letters chosen by a filter")
        if endpoint_id is not None:
            living(await self._store.endpoint(org_id, endpoint_id))
        await self._check_live(org_id)
        now = self._clock.now()
        selection = _each_once(selection)
        total = await self._chooser.count(org_id, selection, _COUNTED_MAX)
        bulk = Bulk(
            bulk_id=bulk_id or uuid7(now),
            org_id=org_id,
            kind=kind,
            selection=selection,
            actor=actor,
            reason=reason,
            created_at=now,
            updated_at=now,
            rate_per_second=rate_per_second or (_REPLAY_RATE if kind is BulkKind.REPLAY else None),
            canary=canary,
            endpoint_id=endpoint_id,
            total=total.value,
            total_exact=total.exact,
        )
        if not await self._store.add_bulk(bulk, audit_line(bulk, now, actor, "start", f"{total.value} selected")):
            return await self._store.bulk(org_id, bulk.bulk_id)
        self._wake_runner()
        return bulk

    async def _check_live(self, org_id: UUID, besides: UUID | None = None) -> None:
        """One that was cancelled only waits for its end to be written; one that is resumed has its place already."""
        live = [one for one in await self._store.live_bulks() if one.org_id == org_id and one.bulk_id != besides]
        if sum(bulk.state is not BulkState.CANCELLED for bulk in live) >= _LIVE_MAX:
            raise Overloaded(
                f"an organization may have {_LIVE_MAX} bulk operations under way, and has them; wait for one to end, or"
                " cancel one",
                retry_after_seconds=60,
            )

    async def pause(self, org_id: UUID, bulk_id: UUID, actor: str) -> Bulk:
        """Take no more until it is resumed; what is under way goes on."""
        return await self._steer(org_id, bulk_id, actor, "pause", BulkState.PAUSED, frozenset({BulkState.RUNNING}))

    async def resume(self, org_id: UUID, bulk_id: UUID, actor: str) -> Bulk:
        await self._check_live(org_id, besides=bulk_id)
        return await self._steer(org_id, bulk_id, actor, "resume", BulkState.RUNNING, frozenset({BulkState.PAUSED}))

    async def cancel(self, org_id: UUID, bulk_id: UUID, actor: str, reason: str = "") -> Bulk:
        """Take no more, ever. What was taken stays taken, and what comes of it is not waited for."""
        check_storable("reason", reason)
        stoppable = frozenset({BulkState.RUNNING, BulkState.PAUSED})
        return await self._steer(org_id, bulk_id, actor, "cancel", BulkState.CANCELLED, stoppable, reason)

    async def _steer(
        self,
        org_id: UUID,
        bulk_id: UUID,
        actor: str,
        action: str,
        state: BulkState,
        possible: frozenset[BulkState],
        reason: str = "",
    ) -> Bulk:
        for _ in range(_STEER_TRIES):
            bulk = await self._store.bulk(org_id, bulk_id)
            if bulk.state is state:
                return bulk
            if bulk.state not in possible:
                raise Conflict(f"bulk operation {bulk_id} is {bulk.state} and cannot be {_DONE[action]}")
            steered = replace(bulk, state=state, note=f"{_DONE[action]} by {actor}")
            now = self._clock.now()
            line = audit_line(bulk, now, actor, action, bulk.progress, reason)
            if step := await self._store.step_bulk(replace(steered, updated_at=now), bulk.version, line=line):
                self._wake_runner()
                return step.bulk
        raise Conflict(f"bulk operation {bulk_id} is being changed by others all the time; try again")


def _counted_max(selection: Selection) -> int:
    letters = selection.letters
    if letters is None or letters.event_type is not None or None not in (letters.cause, letters.endpoint_id):
        return _PREVIEWED_MAX
    return _COUNTED_MAX


def _check_actable(selection: Selection) -> None:
    """Nobody who asks for what is in progress gets what waits instead."""
    if selection.queue is not None and selection.queue.waiting is False:
        raise InvalidInput(
            "status", "what is in progress cannot be acted upon; choose what waits (pending), or name no status"
        )


def _each_once(selection: Selection) -> Selection:
    if selection.delivery_ids is None:
        return selection
    chosen = tuple(dict.fromkeys(selection.delivery_ids))
    if len(chosen) > IDS_MAX:
        raise InvalidInput("delivery_ids", f"must be at most {IDS_MAX:,}, got {len(chosen):,}; use a filter for more")
    return replace(selection, delivery_ids=chosen)
