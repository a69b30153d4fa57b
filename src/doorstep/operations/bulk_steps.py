"""Beside the path: how a bulk operation is carried out, step by step.

A step is one transaction with the acts it makes and the place it has come to, fenced by a version. So a process
may die at any point, several may try at once, and still each delivery is acted upon once.

What a bulk retry revives is due like everything else, and only so much of it at a time (EndpointSlots): fresh events
to the same endpoint find a short queue, and to all endpoints a store that is soon free. One delivery goes ahead with
force when nothing is under way, as an operator's single retry would: it is the probe that gets a circuit closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import DAY, SECOND, Clock, Instant, seconds
from doorstep.engine import facts
from doorstep.engine.directory import Tuning
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import Action, ActionKind, AuditEntry
from doorstep.model.bulk import UNDER_WAY_MAX, Bulk, BulkKind, BulkState, Canary, Selection, UnderWay, retried_well
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.listing import CauseGroup, Count, DeadLetterFilter, EventFilter, Page, RetryQueueFilter
from doorstep.operations.events import Replayer
from doorstep.stores.protocol.bulk import BulkStore
from doorstep.stores.protocol.lists import ListStore
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
        chooser: Selector,
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

    def _act(self, bulk: Bulk, chosen: tuple[UUID, ...], now: Instant, *, forced: bool) -> Action:
        about = f"bulk operation {bulk.bulk_id}"
        return Action(
            kind=ActionKind(bulk.kind),
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
        self, bulk: Bulk, read: Bulk, act: Action | None = None, line: AuditEntry | None = None
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


def audit_line(bulk: Bulk, at: Instant, actor: str, action: str, result: str, reason: str = "") -> AuditEntry:
    """What is audited about an operation as a whole; each of its acts has a line of its own. Its reason is the one that
    it was begun with, unless this has one of its own."""
    return AuditEntry(
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


_SEARCH_PAGES = (200, 200)
"""How far one step looks for a delivery that has a place, past those of endpoints that have enough."""

Chosen = tuple[UUID, ...]


class Walker:
    def __init__(self, store: BulkStore, chooser: Selector) -> None:
        self._store = store
        self._chooser = chooser
        self._places: dict[UUID, EndpointSlots] = {}
        """Of each operation, as this process last saw them."""

    async def next(self, bulk: Bulk, room: int) -> tuple[Chosen, Bulk]:
        """The deliveries that come next, and the operation as it stands once they have been taken."""
        if (named := bulk.selection.delivery_ids) is not None:
            begin = int(bulk.cursor or 0)
            end = begin + room
            return named[begin:end], replace(bulk, cursor=str(end), all_taken=end >= len(named))
        if bulk.kind is not BulkKind.RETRY:
            page = await self._page(bulk, room)
            return tuple(one.delivery_id for one in page.items), _past(bulk, page)
        return await self._search(bulk, await self._look(bulk), room)

    def forget(self, bulk_id: UUID) -> None:
        self._places.pop(bulk_id, None)

    def keep_only(self, bulk_ids: AbstractSet[UUID]) -> None:
        self._places = {bulk_id: places for bulk_id, places in self._places.items() if bulk_id in bulk_ids}

    async def _look(self, bulk: Bulk) -> EndpointSlots:
        under_way = await self._store.bulk_under_way(bulk.org_id, bulk.bulk_id) if bulk.in_flight else ()
        places = self._places[bulk.bulk_id] = EndpointSlots(under_way, self._places.get(bulk.bulk_id))
        return places

    async def _search(self, bulk: Bulk, places: EndpointSlots, room: int) -> tuple[Chosen, Bulk]:
        """Go on page by page until there is enough, or the walk or this step is at its end.

        A page is looked at again while endpoints that get on have something left in it. Behind those that do not, the
        next pages are searched: their letters may be many, and come first.
        """
        chosen: Chosen = ()
        for size in (room, *_SEARCH_PAGES):
            page = await self._page(bulk, size)
            wanted = [one for one in page.items if _untried_since(one, bulk.created_at) and not places.has(one)]
            found = _with_place(wanted, places, room - len(chosen))
            left = [one for one in wanted if not places.has(one)]
            chosen += found
            if found and left and (len(chosen) == room or any(map(places.gets_on, left))):
                break
            bulk = _past(replace(bulk, passed_over=bulk.passed_over or bool(left)), page)
            if len(chosen) == room or bulk.all_taken or (bulk.cursor is None and not bulk.causes_done):
                break
        return chosen, bulk

    async def _page(self, bulk: Bulk, size: int) -> Page[Delivery]:
        causes = bulk.good_causes
        selection = before_start(bulk, None if causes is None else causes[0])
        return await self._chooser.page(bulk.org_id, selection, bulk.cursor, size)


def _with_place(wanted: list[Delivery], places: EndpointSlots, room: int) -> Chosen:
    chosen: list[UUID] = []
    for delivery in wanted:
        if len(chosen) == room:
            break
        if places.take(delivery):
            chosen.append(delivery.delivery_id)
    return tuple(chosen)


def _past(bulk: Bulk, page: Page[Delivery]) -> Bulk:
    """The operation behind a page: at the next page, else at the next cause, else at the start again or at the end."""
    if page.next is not None:
        return replace(bulk, cursor=page.next)
    if bulk.good_causes is not None and len(bulk.good_causes) > 1:
        return replace(bulk, cursor=None, causes_done=bulk.causes_done + 1)
    if bulk.passed_over:
        return replace(bulk, cursor=None, causes_done=0, passed_over=False)
    return replace(bulk, cursor=None, all_taken=True)


def _untried_since(delivery: Delivery, instant: Instant) -> bool:
    """One that failed again meanwhile has had its retry."""
    return delivery.state is not DeliveryState.PENDING or (delivery.last_attempt_at or 0) <= instant


WINDOW_MAX = 25
_SHARES = UNDER_WAY_MAX // WINDOW_MAX


class EndpointSlots:
    """What a bulk retry has under way, and who may have more of it. `before` is the last look of this process."""

    def __init__(self, under_way: Iterable[UnderWay], before: EndpointSlots | None = None) -> None:
        self._endpoints: dict[UUID, UUID] = {}
        self._waiting: Counter[UUID] = Counter()
        self._held: Counter[UUID] = Counter()
        for one in under_way:
            self._add(one.delivery_id, one.endpoint_id, waiting=one.waiting)
        self._getting_on: set[UUID] = set()
        self._windows: dict[UUID, int] = {}
        if before is not None:
            self._getting_on, self._windows = self._changes(before)

    @property
    def free(self) -> int:
        return UNDER_WAY_MAX - len(self._endpoints)

    def has(self, delivery: Delivery) -> bool:
        """Whether it has been taken and has no result yet."""
        return delivery.delivery_id in self._endpoints

    def take(self, delivery: Delivery) -> bool:
        """Give a delivery a place, if its endpoint may have one more."""
        endpoint_id = delivery.endpoint_id
        if self.free <= 0 or self._waiting[endpoint_id] >= self._room(endpoint_id):
            return False
        self._add(delivery.delivery_id, endpoint_id, waiting=True)
        self._getting_on.add(endpoint_id)
        return True

    def gets_on(self, delivery: Delivery) -> bool:
        """Whether its endpoint has just got a place, or had a result since the last look."""
        return delivery.endpoint_id in self._getting_on

    def _room(self, endpoint_id: UUID) -> int:
        left_by_others = self.free + self._held[endpoint_id]
        return max(1, min(self._windows.get(endpoint_id, WINDOW_MAX), left_by_others // _SHARES))

    def _add(self, delivery_id: UUID, endpoint_id: UUID, *, waiting: bool) -> None:
        self._endpoints[delivery_id] = endpoint_id
        self._held[endpoint_id] += 1
        self._waiting[endpoint_id] += waiting

    def _changes(self, before: EndpointSlots) -> tuple[set[UUID], dict[UUID, int]]:
        """The endpoints that had results since then, and the windows of those that had anything under way."""
        ended = Counter(endpoint for one, endpoint in before._endpoints.items() if one not in self._endpoints)
        old = {endpoint_id: before._windows.get(endpoint_id, WINDOW_MAX) for endpoint_id in before._held}
        return set(ended), {one: self._window(one, window, ended[one]) for one, window in old.items()}

    def _window(self, endpoint_id: UUID, old: int, ended: int) -> int:
        """One with nothing waiting keeps up, and may have more; while nothing ends there is nothing to tell from."""
        if not ended:
            return old
        return min(2 * ended if self._waiting[endpoint_id] else max(old, 2 * ended), WINDOW_MAX)


_EVENTS_EXAMINED = 50_000
"""Somebody waits for the count of events, among which those that are wanted may be rare."""


class Selector:
    """Finds what is selected, as it stands now."""

    def __init__(self, store: ListStore, clock: Clock, tuning: Tuning) -> None:
        self._store = store
        self._clock = clock
        self._archive_after = round(tuning.archive_after_days * DAY)

    async def page(self, org_id: UUID, selection: Selection, cursor: str | None, limit: int) -> Page[Delivery]:
        if selection.queue is not None:
            return await self._store.retry_queue(org_id, _waiting(selection.queue), cursor, limit)
        return await self._store.dead_letters(org_id, self.dated(selection.letters), cursor, limit)

    async def count(self, org_id: UUID, selection: Selection, limit: int) -> Count:
        if selection.delivery_ids is not None:
            return Count(len(selection.delivery_ids), exact=True)
        if selection.queue is not None:
            return await self._store.count_retry_queue(org_id, _waiting(selection.queue), limit)
        if selection.letters is not None:
            return await self._store.count_dead_letters(org_id, self.dated(selection.letters), limit)
        return await self._store.count_events(org_id, selection.events or EventFilter(), max(limit, _EVENTS_EXAMINED))

    async def by_endpoint(self, org_id: UUID, selection: Selection, limit: int) -> dict[UUID, int]:
        """For which endpoints it is; of more than `limit`, of so many of them."""
        if selection.queue is not None:
            return await self._store.retry_queue_by_endpoint(org_id, _waiting(selection.queue), limit)
        return await self._store.dead_letters_by_endpoint(org_id, self.dated(selection.letters), limit)

    def dated(self, letters: DeadLetterFilter | None) -> DeadLetterFilter:
        assert letters is not None, "a selection names deliveries, dead letters, the retry queue or events"
        return replace(letters, archived_before=self._clock.now() - self._archive_after)


def before_start(bulk: Bulk, cause: int | None = None) -> Selection:
    """The selection as it was when the operation began: what dies again or fails again later is not its own."""
    letters = bulk.selection.letters
    if letters is None:
        return bulk.selection
    before = bulk.created_at + 1 if letters.died_before is None else min(letters.died_before, bulk.created_at + 1)
    return replace(
        bulk.selection,
        letters=replace(letters, died_before=before, cause=letters.cause if cause is None else cause),
    )


def _waiting(queue: RetryQueueFilter) -> RetryQueueFilter:
    """What is being tried at this moment cannot be acted upon."""
    return replace(queue, waiting=True)
