"""How a bulk operation is carried out, step by step.

A step is one transaction: it performs the action and stores the new position. It takes effect only if the version of
the operation is still current. Each delivery is therefore acted on once, even if a process dies at any point or several
processes attempt the same step.

Deliveries that a bulk retry revives become due like any others, but only a limited number of them are in flight at a
time (see `EndpointSlots`). New events for the same endpoint therefore find a short queue, and new events for other
endpoints do not wait long for the store. If nothing is in flight, one delivery is sent even through an open circuit,
like a single retry by an operator. It is the probe that can close the circuit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.engine import facts
from doorstep.engine.accept import Accepter
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import Action, ActionKind, AuditEntry
from doorstep.model.bulk import (
    IN_FLIGHT_MAX,
    Bulk,
    BulkInFlight,
    BulkKind,
    BulkResults,
    BulkState,
    Canary,
    InFlightRetry,
    Selection,
    retry_succeeded,
)
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.event import EventView
from doorstep.model.listing import CauseGroup, CauseGroups, EventFilter, Page
from doorstep.operations.actions import copy_of
from doorstep.operations.bulk import Selector, bulk_audit_entry
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

_STEP_MAX = 25
"""How many deliveries one transaction acts on. SQLite allows one writer at a time, and a new event needs to be written
twice: when it is accepted and when it is claimed. Each time, it may have to wait for one such step (3 ms with 25
deliveries, 10 ms with 100), and then for the claims and settlements of the deliveries in that step."""
_STEP_PAUSE_SECONDS = 0.02
"""The pause between two steps of a retry, so that the deliveries of one step are claimed before the next step."""
_CAUSES_MAX = 200
_CAUSE_PAGES_MAX = 40
"""The maximum number of pages in a search for causes. One page may not be enough, because most of its causes may belong
to other endpoints."""
_RESULTS_EVERY_SECONDS = 0.05
_IDLE_SECONDS = 1.0
"""The longest delay before the next step. It also applies if another process took the current step, because that
process will probably take the next step too."""


class BulkStepper:
    def __init__(
        self,
        store: Store,
        selector: Selector,
        accepter: Accepter,
        clock: Clock,
        telemetry: Telemetry,
        wake_worker: Callable[[], None],
    ) -> None:
        self._store = store
        self._selector = selector
        self._walker = Walker(store, selector)
        self._accepter = accepter
        self._clock = clock
        self._telemetry = telemetry
        self._wake_worker = wake_worker
        self._idle_rounds: Counter[UUID] = Counter()
        """For each operation, how many rounds in a row found nothing new."""

    async def advance(self, bulk: Bulk) -> float:
        """Take the next step of an operation. Returns the delay in seconds before the next one.

        A step that is rejected would be rejected again, so the operation is paused until an operator looks at it.
        """
        now = self._clock.now()
        if bulk.state is BulkState.RUNNING and not (bulk.in_flight or bulk.all_taken) and bulk.ready_at > now:
            return min((bulk.ready_at - now) / SECOND, _IDLE_SECONDS)
        try:
            written = await self._step(bulk, now)
        except (InvalidInput, Conflict, NotFound) as refusal:
            written = await self._pause(bulk, str(refusal))
        if written is None:
            return _IDLE_SECONDS
        return self._delay_after(bulk, written, (self._clock.now() - now) / SECOND)

    def keep_only(self, bulk_ids: AbstractSet[UUID]) -> None:
        """Forget the operations that have ended."""
        for bulk_id in self._idle_rounds.keys() - bulk_ids:
            del self._idle_rounds[bulk_id]
        self._walker.keep_only(bulk_ids)

    async def _pause(self, bulk: Bulk, why: str) -> Bulk | None:
        paused = replace(bulk, state=BulkState.PAUSED, note=f"paused: {why}")
        entry = bulk_audit_entry(bulk, self._clock.now(), "doorstep", "pause", paused.note)
        return await self._write(paused, bulk, entry=entry)

    def _delay_after(self, bulk: Bulk, written: Bulk, elapsed_seconds: float) -> float:
        """The delay after a step is as long as the step took. The store and the processor are therefore free for other
        work half of the time.

        A retry waits a fixed time instead, so that its deliveries are claimed before the next step. While there are no
        results, for example because endpoints are down, it waits longer after every round that found nothing.
        """
        if written.taken > bulk.taken or written.finished_at is not None:
            del self._idle_rounds[bulk.bulk_id]
            return _STEP_PAUSE_SECONDS if bulk.kind is BulkKind.RETRY else min(elapsed_seconds, _IDLE_SECONDS)
        advanced = written.cursor not in (None, bulk.cursor)
        rounds = 1 if written.in_flight < bulk.in_flight else max(1, self._idle_rounds[bulk.bulk_id] + (not advanced))
        self._idle_rounds[bulk.bulk_id] = rounds
        return min(_RESULTS_EVERY_SECONDS * rounds, _IDLE_SECONDS)

    async def _step(self, bulk: Bulk, now: Instant) -> Bulk | None:
        if bulk.state is not BulkState.RUNNING or bulk.all_taken:
            return await self._end(bulk, now)
        if bulk.canary and bulk.canaries is None:
            return await self._send_canaries(bulk, now)
        if bulk.canary and any(one.succeeded is None for one in bulk.canaries or ()):
            return await self._watch_canaries(bulk)
        count = _count_allowed(bulk, now)
        if count <= 0:
            return await self._wait(bulk)
        if bulk.kind is BulkKind.REPLAY:
            return await self._replay(bulk, count, now)
        return await self._take(bulk, count, now)

    async def _take(self, bulk: Bulk, count: int, now: Instant) -> Bulk | None:
        probing = bulk.kind is BulkKind.RETRY and bulk.in_flight == 0
        selected, advanced = await self._walker.next(bulk, 1 if probing else count)
        if not selected and advanced == bulk:
            return await self._wait(bulk)
        action = self._action(bulk, selected, now, forced=probing) if selected else None
        return await self._write(_paced(advanced, len(selected), now), bulk, action)

    async def _replay(self, bulk: Bulk, count: int, now: Instant) -> Bulk | None:
        """Send the next events to the target endpoint, oldest first.

        Each event has an idempotency key, so a step that is repeated after a crash sends nothing twice.
        """
        assert bulk.endpoint_id is not None, "a replay has a target endpoint"
        events = bulk.selection.events or EventFilter()
        before = bulk.created_at if events.created_before is None else min(events.created_before, bulk.created_at)
        oldest_first = replace(events, created_before=before, oldest_first=True)
        page = await self._store.page(bulk.org_id, oldest_first, bulk.cursor, count)
        drafts = []
        for summary in page.items:
            with suppress(NotFound):  # deleted or cleaned a moment ago
                view = await self._store.get(EventView, bulk.org_id, summary.event_id)
                key = f"replay:{bulk.bulk_id}:{summary.event_id}"
                drafts.append(replace(copy_of(view.event, bulk.endpoint_id), idempotency_key=key))
        if drafts:
            await self._accepter.accept(drafts)
        sent = len(drafts)
        replayed = replace(
            bulk,
            cursor=page.next,
            all_taken=page.next is None,
            taken=bulk.taken + sent,
            succeeded=bulk.succeeded + sent,
        )
        return await self._write(_paced(replayed, sent, now), bulk)

    def _action(self, bulk: Bulk, delivery_ids: tuple[UUID, ...], now: Instant, *, forced: bool) -> Action:
        about = f"bulk operation {bulk.bulk_id}"
        return Action(
            kind=ActionKind(bulk.kind),
            org_id=bulk.org_id,
            delivery_ids=delivery_ids,
            actor=bulk.actor,
            at=now,
            reason=f"{about}: {bulk.reason}" if bulk.reason else about,
            revive_at=now,
            forced=forced,
            only_in=bulk.selection.only_in,
        )

    async def _end(self, bulk: Bulk, now: Instant) -> Bulk | None:
        """End an operation that takes no more deliveries, as soon as all results are in.

        A cancelled operation ends immediately. It does not wait for the deliveries that it took, because they may be
        held for days.
        """
        if bulk.in_flight and bulk.state is not BulkState.CANCELLED:
            return await self._wait(bulk)
        state = BulkState.FINISHED if bulk.state is BulkState.RUNNING else bulk.state
        entry = bulk_audit_entry(bulk, self._clock.now(), "doorstep", "end", f"{state}: {bulk.progress}")
        note = f"{bulk.note}; {bulk.in_flight} still had no result" if bulk.in_flight else bulk.note
        return await self._write(replace(bulk, state=state, note=note, finished_at=now), bulk, entry=entry)

    async def _wait(self, bulk: Bulk) -> Bulk | None:
        """Record new results, if there are any. Otherwise nothing is written, because results may take days."""
        results = await self._store.count(bulk.org_id, BulkResults(bulk_id=bulk.bulk_id), limit=1)
        if not results.value:
            return bulk
        return await self._write(bulk, bulk)

    async def _write(
        self, bulk: Bulk, read: Bulk, action: Action | None = None, entry: AuditEntry | None = None
    ) -> Bulk | None:
        now = self._clock.now()
        step = await self._store.step_bulk(replace(bulk, updated_at=now), read.version, action, entry)
        if step is None:
            return None
        self._telemetry.emit_all(facts.moved(step.moved, now))
        if action is not None:
            self._wake_worker()
        return step.bulk

    # -- canaries ------------------------------------------------------------------------------------------

    async def _send_canaries(self, bulk: Bulk, now: Instant) -> Bulk | None:
        """Retry the newest dead letter of each cause."""
        groups, more = await self._causes(bulk)
        canaries = []
        for group in groups:
            delivery = await self._store.get(Delivery, bulk.org_id, group.sample_id)
            canaries.append(Canary(cause=group.cause, delivery_id=group.sample_id, attempt=delivery.attempt))
        selected = tuple(one.delivery_id for one in canaries)
        note = f"only the first {len(canaries)} causes are retried: there are too many" if more else ""
        sent = replace(bulk, canaries=tuple(canaries), all_taken=not canaries, note=note)
        action = self._action(bulk, selected, now, forced=True) if selected else None
        return await self._write(_paced(sent, len(selected), now), bulk, action)

    async def _causes(self, bulk: Bulk) -> tuple[list[CauseGroup], bool]:
        """The causes of the selected dead letters, and whether there are more causes than can have canaries."""
        filters = self._selector.dated(before_start(bulk).letters)
        groups: list[CauseGroup] = []
        cursor: str | None = None
        for _ in range(_CAUSE_PAGES_MAX):
            page = await self._store.page(bulk.org_id, CauseGroups(filter=filters), cursor, _CAUSES_MAX - len(groups))
            groups += page.items
            cursor = page.next
            if cursor is None or len(groups) == _CAUSES_MAX:
                break
        return groups, cursor is not None

    async def _watch_canaries(self, bulk: Bulk) -> Bulk | None:
        canaries = tuple([await self._updated(bulk.org_id, one) for one in bulk.canaries or ()])
        if canaries == bulk.canaries:
            return await self._wait(bulk)
        if any(one.succeeded is None for one in canaries):
            return await self._write(replace(bulk, canaries=canaries), bulk)
        failed = sum(not one.succeeded for one in canaries)
        note = f"{failed} of {len(canaries)} causes were not retried because their canary failed" if failed else ""
        notes = "; ".join(filter(None, (bulk.note, note)))
        all_taken = failed == len(canaries)
        return await self._write(replace(bulk, canaries=canaries, note=notes, all_taken=all_taken), bulk)

    async def _updated(self, org_id: UUID, canary: Canary) -> Canary:
        if canary.succeeded is not None:
            return canary
        try:
            delivery = await self._store.get(Delivery, org_id, canary.delivery_id)
        except NotFound:
            return replace(canary, succeeded=retry_succeeded(None, 0, canary.attempt))
        return replace(canary, succeeded=retry_succeeded(delivery.state, delivery.attempt, canary.attempt))


def _count_allowed(bulk: Bulk, now: Instant) -> int:
    """How many deliveries may be taken now. With a rate limit, only a few are taken at a time, so that the operation
    runs evenly instead of in bursts."""
    count = min(_STEP_MAX, IN_FLIGHT_MAX - bulk.in_flight)
    if bulk.rate_per_second is None:
        return count
    # While deliveries are in flight, the next ones may start one interval before the rate allows them. If they waited
    # for the full interval after a probe, the probe would have ended by then, and each of them would become a probe
    # itself.
    probe = seconds(1 / bulk.rate_per_second) if bulk.in_flight else 0
    return min(count, max(1, int(bulk.rate_per_second / 4))) if bulk.ready_at <= now + probe else 0


def _paced(bulk: Bulk, taken: int, now: Instant) -> Bulk:
    """The operation, updated after a step that took `taken` deliveries. Its next step waits as long as the rate
    requires."""
    if bulk.rate_per_second is None:
        return bulk
    return replace(bulk, ready_at=max(bulk.ready_at, now) + seconds(taken / bulk.rate_per_second))


_SEARCH_PAGES = (200, 200)
"""The sizes of the additional pages that one step searches for deliveries whose endpoint has a free slot."""


class Walker:
    """Walks through the deliveries that an operation selected."""

    def __init__(self, store: Store, selector: Selector) -> None:
        self._store = store
        self._selector = selector
        self._slots: dict[UUID, EndpointSlots] = {}
        """The slots of each operation, as this process last saw them."""

    async def next(self, bulk: Bulk, count: int) -> tuple[tuple[UUID, ...], Bulk]:
        """The next deliveries, and the operation as it must be stored once they have been taken."""
        if (named := bulk.selection.delivery_ids) is not None:
            begin = int(bulk.cursor or 0)
            end = begin + count
            return named[begin:end], replace(bulk, cursor=str(end), all_taken=end >= len(named))
        if bulk.kind is not BulkKind.RETRY:
            page = await self._page(bulk, count)
            return tuple(one.delivery_id for one in page.items), _past(bulk, page)
        return await self._search(bulk, await self._current_slots(bulk), count)

    def keep_only(self, bulk_ids: AbstractSet[UUID]) -> None:
        self._slots = {bulk_id: slots for bulk_id, slots in self._slots.items() if bulk_id in bulk_ids}

    async def _current_slots(self, bulk: Bulk) -> EndpointSlots:
        query = BulkInFlight(bulk_id=bulk.bulk_id)
        in_flight = await self._store.find(bulk.org_id, query) if bulk.in_flight else ()
        slots = self._slots[bulk.bulk_id] = EndpointSlots(in_flight, self._slots.get(bulk.bulk_id))
        return slots

    async def _search(self, bulk: Bulk, slots: EndpointSlots, count: int) -> tuple[tuple[UUID, ...], Bulk]:
        """Search page by page until enough deliveries are found, the selection ends, or this step has read its last
        page.

        If deliveries for endpoints that make progress are left on a page, the next step reads that page again. If only
        deliveries for blocked endpoints are left, the search continues with the next pages, because there may be many
        such deliveries at the beginning of the selection.
        """
        selected: tuple[UUID, ...] = ()
        for size in (count, *_SEARCH_PAGES):
            page = await self._page(bulk, size)
            open_ones = [one for one in page.items if _untried_since(one, bulk.created_at) and not slots.has(one)]
            found = tuple(islice((one.delivery_id for one in open_ones if slots.take(one)), count - len(selected)))
            left = [one for one in open_ones if not slots.has(one)]
            selected += found
            if found and left and (len(selected) == count or any(map(slots.makes_progress, left))):
                break
            bulk = _past(replace(bulk, passed_over=bulk.passed_over or bool(left)), page)
            if len(selected) == count or bulk.all_taken or (bulk.cursor is None and not bulk.causes_done):
                break
        return selected, bulk

    async def _page(self, bulk: Bulk, size: int) -> Page[Delivery]:
        causes = bulk.remaining_causes
        selection = before_start(bulk, None if causes is None else causes[0])
        return await self._selector.page(bulk.org_id, selection, bulk.cursor, size)


def _past(bulk: Bulk, page: Page[Delivery]) -> Bulk:
    """The operation, updated after a page was processed. It continues with the next page or, after the last page, with
    the next cause. After the last cause, it starts again if deliveries were passed over; otherwise, all deliveries have
    been taken."""
    if page.next is not None:
        return replace(bulk, cursor=page.next)
    if bulk.remaining_causes is not None and len(bulk.remaining_causes) > 1:
        return replace(bulk, cursor=None, causes_done=bulk.causes_done + 1)
    if bulk.passed_over:
        return replace(bulk, cursor=None, causes_done=0, passed_over=False)
    return replace(bulk, cursor=None, all_taken=True)


def _untried_since(delivery: Delivery, instant: Instant) -> bool:
    """Whether the delivery still needs its retry. A delivery that was attempted after `instant` and is pending again
    has already been retried."""
    return delivery.state is not DeliveryState.PENDING or (delivery.last_attempt_at or 0) <= instant


WINDOW_MAX = 25
_SHARES = IN_FLIGHT_MAX // WINDOW_MAX


class EndpointSlots:
    """The deliveries that a bulk retry has in flight, and how many more each endpoint may have in flight. `before`
    contains the slots as this process last saw them."""

    def __init__(self, in_flight: Iterable[InFlightRetry], before: EndpointSlots | None = None) -> None:
        self._endpoints: dict[UUID, UUID] = {}
        self._waiting: Counter[UUID] = Counter()
        self._held: Counter[UUID] = Counter()
        for one in in_flight:
            self._add(one.delivery_id, one.endpoint_id, waiting=one.waiting)
        self._progressing: set[UUID] = set()
        self._windows: dict[UUID, int] = {}
        if before is not None:
            self._progressing, self._windows = self._changes(before)

    @property
    def free(self) -> int:
        return IN_FLIGHT_MAX - len(self._endpoints)

    def has(self, delivery: Delivery) -> bool:
        """Whether the delivery is in flight: taken, but without a result."""
        return delivery.delivery_id in self._endpoints

    def take(self, delivery: Delivery) -> bool:
        """Give a delivery a slot if its endpoint may have one more."""
        endpoint_id = delivery.endpoint_id
        if self.free <= 0 or self._waiting[endpoint_id] >= self._limit(endpoint_id):
            return False
        self._add(delivery.delivery_id, endpoint_id, waiting=True)
        self._progressing.add(endpoint_id)
        return True

    def makes_progress(self, delivery: Delivery) -> bool:
        """Whether the delivery's endpoint has just been given a slot, or has had a result since the previous state."""
        return delivery.endpoint_id in self._progressing

    def _limit(self, endpoint_id: UUID) -> int:
        left_by_others = self.free + self._held[endpoint_id]
        return max(1, min(self._windows.get(endpoint_id, WINDOW_MAX), left_by_others // _SHARES))

    def _add(self, delivery_id: UUID, endpoint_id: UUID, *, waiting: bool) -> None:
        self._endpoints[delivery_id] = endpoint_id
        self._held[endpoint_id] += 1
        self._waiting[endpoint_id] += waiting

    def _changes(self, before: EndpointSlots) -> tuple[set[UUID], dict[UUID, int]]:
        """The endpoints with results since `before`, and the new windows of the endpoints that had deliveries in
        flight."""
        ended = Counter(endpoint for one, endpoint in before._endpoints.items() if one not in self._endpoints)
        old = {endpoint_id: before._windows.get(endpoint_id, WINDOW_MAX) for endpoint_id in before._held}
        return set(ended), {one: self._window(one, window, ended[one]) for one, window in old.items()}

    def _window(self, endpoint_id: UUID, old: int, ended: int) -> int:
        """The endpoint's new window. If none of its deliveries is waiting, the endpoint keeps up, and its window may
        grow. Without results the window stays as it is."""
        if not ended:
            return old
        return min(2 * ended if self._waiting[endpoint_id] else max(old, 2 * ended), WINDOW_MAX)


def before_start(bulk: Bulk, cause: int | None = None) -> Selection:
    """The selection as it was when the operation began. Deliveries that fail again later do not belong to it."""
    letters = bulk.selection.letters
    if letters is None:
        return bulk.selection
    before = bulk.created_at + 1 if letters.died_before is None else min(letters.died_before, bulk.created_at + 1)
    return replace(
        bulk.selection,
        letters=replace(letters, died_before=before, cause=letters.cause if cause is None else cause),
    )
