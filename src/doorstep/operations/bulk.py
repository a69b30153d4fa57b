"""Bulk operations for operators: preview, start, pause, resume and cancel them. `bulk_steps.py` carries them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import DAY, Clock, Instant
from doorstep.engine.directory import Tuning, existing
from doorstep.errors import Conflict, InvalidInput, Overloaded
from doorstep.model.action import AuditEntry, audit_entry
from doorstep.model.bulk import IDS_MAX, LIVE_MAX, Bulk, BulkFilter, BulkKind, BulkState, LiveBulks, Selection
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import Count, DeadLetterFilter, EventFilter, Page, RetryQueueFilter
from doorstep.model.record import Record, uuid7
from doorstep.operations.endpoint_rules import check_bounds
from doorstep.operations.keys import name_of
from doorstep.stores.limits import check_storable
from doorstep.stores.store import Put, Store

_COUNTED_MAX = 100_000
"""Counting stops at this number, because a person is waiting for the result. `total` is then a lower bound."""
_PREVIEWED_MAX = 10_000
"""The maximum number of deliveries that a preview groups by endpoint. Grouping a hundred thousand takes 170 to 550 ms.
Counting a hundred thousand deliveries of one event type takes equally long, because the type is stored only with the
events. Counting all deliveries, or those of one cause or one endpoint, takes at most 80 ms."""
RATE_MIN, RATE_MAX = 0.01, 100_000.0
_REPLAY_RATE = 100.0
"""The default rate of a replay. Nothing else limits a replay, because it does not wait for its events to be
delivered."""
_WRITE_TRIES = 20
_DONE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}


class Preview(Record, frozen=True):
    """The deliveries that a bulk operation would act on if it started now."""

    count: Count
    by_endpoint: dict[UUID, int]
    whole: bool = True
    """Whether `by_endpoint` covers all selected deliveries. If false, it covers only the first ten thousand."""


class BulkService:
    def __init__(self, store: Store, selector: Selector, clock: Clock, wake_runner: Callable[[], None]) -> None:
        self._store = store
        self._selector = selector
        self._clock = clock
        self._wake_runner = wake_runner

    async def list(self, org_id: UUID, cursor: str | None, limit: int) -> Page[Bulk]:
        """One page of bulk operations, newest first."""
        return await self._store.page(org_id, BulkFilter(), cursor, limit)

    async def get(self, org_id: UUID, bulk_id: UUID) -> Bulk:
        """One operation and its progress. Raises NotFound if it does not exist."""
        return await self._store.get(Bulk, org_id, bulk_id)

    async def live(self, org_id: UUID) -> Sequence[Bulk]:
        """Operations that are running, paused, or cancelled but not yet finished."""
        return [one for one in await self._store.find(None, LiveBulks()) if one.org_id == org_id]

    async def preview(self, org_id: UUID, selection: Selection, replay_to: UUID | None = None) -> Preview:
        """Count the selected deliveries or events, in total and by endpoint, without changing anything. Raises NotFound
        if the endpoint `replay_to` does not exist."""
        _check_actable(selection)
        if replay_to is not None:
            await self._store.get(Endpoint, org_id, replay_to)
            events = await self._selector.count(org_id, selection, _PREVIEWED_MAX)
            return Preview(events, {replay_to: events.value})
        if selection.delivery_ids is not None:
            only_in = selection.only_in
            named = await self._store.get_many(Delivery, org_id, selection.delivery_ids)
            found = [one for one in named if not one.deleted and (not only_in or one.state in only_in)]
            return Preview(Count(len(found), exact=True), dict(Counter(one.endpoint_id for one in found)))
        count = await self._selector.count(org_id, selection, _counted_max(selection))
        by_endpoint = await self._selector.by_endpoint(org_id, selection, _PREVIEWED_MAX)
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
        """Start an operation; the bulk runner carries it out. A repeated call with the same `bulk_id` starts nothing
        and returns the first operation."""
        check_storable("reason", reason)
        _check_actable(selection)
        check_bounds("rate_per_second", rate_per_second, (RATE_MIN, RATE_MAX))
        if canary and (kind is not BulkKind.RETRY or selection.letters is None):
            raise InvalidInput("canary", "is only for a retry of dead letters selected by a filter")
        if endpoint_id is not None:
            existing(await self._store.get(Endpoint, org_id, endpoint_id))
        await self._check_live(org_id)
        now = self._clock.now()
        selection = _without_duplicates(selection)
        total = await self._selector.count(org_id, selection, _COUNTED_MAX)
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
        entry = bulk_audit_entry(bulk, now, actor, "start", f"{total.value} selected")
        if not await self._store.write([Put(document=bulk, expected_version=0)], entry):
            return await self._store.get(Bulk, org_id, bulk.bulk_id)
        self._wake_runner()
        return bulk

    async def _check_live(self, org_id: UUID, besides: UUID | None = None) -> None:
        """Raise Overloaded if too many operations are live. Cancelled operations do not count, because they only need
        to record their end. Neither does the operation with the id `besides`."""
        others = [one for one in await self.live(org_id) if one.bulk_id != besides]
        if sum(bulk.state is not BulkState.CANCELLED for bulk in others) >= LIVE_MAX:
            raise Overloaded(
                f"an organization has at most {LIVE_MAX} live bulk operations; wait for one to end, or cancel one",
                retry_after_seconds=60,
            )

    async def pause(self, org_id: UUID, bulk_id: UUID, actor: str) -> Bulk:
        """Stop acting on further deliveries until the operation is resumed. Deliveries already taken continue."""
        return await self._change_state(org_id, bulk_id, actor, "pause", BulkState.PAUSED)

    async def resume(self, org_id: UUID, bulk_id: UUID, actor: str) -> Bulk:
        await self._check_live(org_id, besides=bulk_id)
        return await self._change_state(org_id, bulk_id, actor, "resume", BulkState.RUNNING)

    async def cancel(self, org_id: UUID, bulk_id: UUID, actor: str, reason: str = "") -> Bulk:
        """Stop acting on further deliveries. Deliveries already taken continue, but the operation does not wait for
        their results."""
        check_storable("reason", reason)
        return await self._change_state(org_id, bulk_id, actor, "cancel", BulkState.CANCELLED, reason)

    async def _change_state(
        self, org_id: UUID, bulk_id: UUID, actor: str, action: str, state: BulkState, reason: str = ""
    ) -> Bulk:
        name = await name_of(self._store, org_id, actor)
        for _ in range(_WRITE_TRIES):
            bulk = await self._store.get(Bulk, org_id, bulk_id)
            if bulk.state is state:
                return bulk
            if bulk.state not in (BulkState.RUNNING, BulkState.PAUSED):
                raise Conflict(f"bulk operation {bulk_id} is {bulk.state} and cannot be {_DONE[action]}")
            now = self._clock.now()
            changed = replace(bulk, state=state, note=f"{_DONE[action]} by {name}", updated_at=now)
            entry = bulk_audit_entry(bulk, now, actor, action, bulk.progress, reason)
            if step := await self._store.step_bulk(changed, bulk.version, entry=entry):
                self._wake_runner()
                return step.bulk
        raise Conflict(f"bulk operation {bulk_id} keeps changing; try again")


def _counted_max(selection: Selection) -> int:
    letters = selection.letters
    if letters is None or letters.event_type is not None or None not in (letters.cause, letters.endpoint_id):
        return _PREVIEWED_MAX
    return _COUNTED_MAX


def _check_actable(selection: Selection) -> None:
    """Raise InvalidInput if deliveries in progress are selected. Otherwise the operation would silently select waiting
    deliveries instead."""
    if selection.queue is not None and selection.queue.waiting is False:
        raise InvalidInput(
            "status", "deliveries in progress cannot be acted upon; choose waiting ones (pending), or no status"
        )


def _without_duplicates(selection: Selection) -> Selection:
    if selection.delivery_ids is None:
        return selection
    unique = tuple(dict.fromkeys(selection.delivery_ids))
    if len(unique) > IDS_MAX:
        raise InvalidInput("delivery_ids", f"must be at most {IDS_MAX:,}, got {len(unique):,}; use a filter for more")
    return replace(selection, delivery_ids=unique)


def bulk_audit_entry(bulk: Bulk, at: Instant, actor: str, action: str, result: str, reason: str = "") -> AuditEntry:
    """An audit entry about the operation as a whole; each of its actions has its own entry. Without a `reason`, the
    reason given at the start is used."""
    name, why = f"bulk.{bulk.kind}.{action}", reason or bulk.reason
    return audit_entry(at, bulk.org_id, actor, name, bulk.bulk_id, result=result, reason=why)


_EVENTS_EXAMINED = 50_000
"""The minimum number of events that a count examines. A higher number would keep a person waiting; a lower one could
miss rare matches."""


class Selector:
    """Finds and counts the deliveries or events of a selection."""

    def __init__(self, store: Store, clock: Clock, tuning: Tuning) -> None:
        self._store = store
        self._clock = clock
        self._archive_after = round(tuning.archive_after_days * DAY)

    async def page(self, org_id: UUID, selection: Selection, cursor: str | None, limit: int) -> Page[Delivery]:
        return await self._store.page(org_id, self._filter(selection), cursor, limit)

    async def count(self, org_id: UUID, selection: Selection, limit: int) -> Count:
        if selection.delivery_ids is not None:
            return Count(len(selection.delivery_ids), exact=True)
        if selection.queue is None and selection.letters is None:
            return await self._store.count(org_id, selection.events or EventFilter(), max(limit, _EVENTS_EXAMINED))
        return await self._store.count(org_id, self._filter(selection), limit)

    async def by_endpoint(self, org_id: UUID, selection: Selection, limit: int) -> dict[UUID, int]:
        """The number of deliveries for each endpoint, among the first `limit` selected deliveries."""
        return await self._store.count_by_endpoint(org_id, self._filter(selection), limit)

    def _filter(self, selection: Selection) -> RetryQueueFilter | DeadLetterFilter:
        """The filter for the deliveries of a selection. It excludes deliveries in progress, on which operations cannot
        act."""
        if selection.queue is not None:
            return replace(selection.queue, waiting=True)
        return self.dated(selection.letters)

    def dated(self, letters: DeadLetterFilter | None) -> DeadLetterFilter:
        assert letters is not None, "a selection names deliveries, dead letters, the retry queue or events"
        return replace(letters, archived_before=self._clock.now() - self._archive_after)
