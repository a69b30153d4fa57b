"""Counts the figures of model/rollup.py again from the rows: events, deliveries, attempts and history.

The rows that are recounted must not have been cleaned away. This module repeats the counting rules on purpose, so that
it does not depend on the code under test.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from uuid import UUID

from msgspec.structs import astuple

from doorstep.clock import SECOND, Instant
from doorstep.errors import NotFound
from doorstep.model.attempt import UNREACHED
from doorstep.model.delivery import Delivery, DeliveryState, HistoryEntry
from doorstep.model.event import EventStatus, EventView, status_of
from doorstep.model.listing import DeliveryAttempts, DeliveryHistory, EventDeliveries, EventFilter
from doorstep.model.rollup import FIGURES, RESPONSE_SECONDS, TTD_SECONDS, Figures
from doorstep.stores.store import Store

_S = DeliveryState
_OPEN, _DEAD, _DONE = {_S.PENDING, _S.IN_PROGRESS}, {_S.DEAD, _S.ARCHIVED}, {_S.DELIVERED, _S.RESOLVED}

LEVELS = (
    *("now_received", "now_queued", "now_delivered", "now_failed"),
    *("now_open", "now_dead", "now_archived"),
)
"""The figures that count what exists now. They can be recounted even after older rows were cleaned away."""


async def recount(store: Store, org_id: UUID, event_ids: Iterable[UUID]) -> dict[UUID | None, Figures]:
    """The figures of each endpoint; under the key None, the figures of the organization."""
    found: defaultdict[UUID | None, Counter[str]] = defaultdict(Counter)
    for event_id in event_ids:
        deliveries = await store.find(org_id, EventDeliveries(event_id=event_id))
        histories = [await store.find(org_id, DeliveryHistory(delivery_id=one.delivery_id)) for one in deliveries]
        counts = await _of_event(store, org_id, event_id, histories)
        owed_at = await _owed_at(store, org_id, event_id)
        for delivery, history in zip(deliveries, histories, strict=True):
            own = _of_delivery(delivery, history, max(delivery.created_at, owed_at))
            own.update(await _of_attempts(store, org_id, delivery.delivery_id))
            own["retried"] = own.pop("attempts", 0) - own["succeeded"] - own["died"]
            found[delivery.endpoint_id].update(own)
            counts.update(own)
        found[None].update(counts)
    return {owner: Figures(**figures) for owner, figures in found.items()} | ({} if found else {None: Figures()})


def differing(counted: Figures, right: Figures) -> list[tuple[str, int, int]]:
    """The figures in which the two arguments differ, each with both values."""
    pairs = zip(FIGURES, astuple(counted), astuple(right), strict=True)
    return [(name, one, other) for name, one, other in pairs if one != other]


async def all_events(store: Store, org_id: UUID) -> list[UUID]:
    """The ids of all events except deleted ones."""
    ids: list[UUID] = []
    cursor: str | None = None
    while True:
        page = await store.page(org_id, EventFilter(), cursor, 500)
        ids += [one.event_id for one in page.items]
        if page.next is None:
            return ids
        cursor = page.next


# -- events ------------------------------------------------------------------------------------------------


async def _of_event(
    store: Store, org_id: UUID, event_id: UUID, histories: Sequence[Sequence[HistoryEntry]]
) -> Counter[str]:
    try:
        status = (await store.get(EventView, org_id, event_id)).status
    except NotFound:
        return Counter(created=1) + _became(histories) if histories else Counter()
    counts = Counter({"created": 1, f"now_{status}": 1})
    if not histories:  # an event of the inbox
        counts["delivered"] = status is EventStatus.DELIVERED
    return counts + _became(histories)


async def _owed_at(store: Store, org_id: UUID, event_id: UUID) -> Instant:
    """The time at which the sender wanted the delivery. A deleted event no longer has it."""
    try:
        return (await store.get(EventView, org_id, event_id)).event.deliver_at or 0
    except NotFound:
        return 0


def _became(histories: Sequence[Sequence[HistoryEntry]]) -> Counter[str]:
    """How often the event became delivered and failed, reconstructed from the histories of its deliveries."""
    status, states, became = EventStatus.RECEIVED, Counter[DeliveryState](), Counter[str]()
    lines = sorted((timed for history in histories for timed in _in_order(history)), key=lambda timed: timed[0])
    for _, together in groupby(lines, key=lambda timed: timed[0]):
        picked_up = status is not EventStatus.RECEIVED
        for _, line in together:
            if line.old_state is not None:
                states[line.old_state] -= 1
            states[line.new_state] += 1
            picked_up |= line.new_state is _S.IN_PROGRESS
        counts = {name: sum(states[one] for one in group) for name, group in _GROUPS.items()}
        new = status_of(picked_up=picked_up, **counts)
        became["delivered"] += new is not status and new is EventStatus.DELIVERED
        became["failed"] += new is not status and new is EventStatus.FAILED and counts["dead_count"] > 0
        status = new
    return became


async def bounds(store: Store, org_id: UUID, event_ids: Iterable[UUID]) -> dict[str, tuple[int, int]]:
    """The lowest and highest possible number of times that the events became delivered and failed.

    Several processes wrote these histories, and each entry has the time at which its write began. Overlapping writes
    may have been committed in the opposite order. For example, if a dead letter was retried just before another
    delivery of the event died, the event never became failed. So two entries of different deliveries that are less than
    OVERLAP apart are counted in both orders.
    """
    least, most = Counter[str](), Counter[str]()
    for event_id in event_ids:
        deliveries = await store.find(org_id, EventDeliveries(event_id=event_id))
        histories = [await store.find(org_id, DeliveryHistory(delivery_id=one.delivery_id)) for one in deliveries]
        inbox = (await _of_event(store, org_id, event_id, histories))["delivered"] if not histories else 0
        lives = _possible_lives(histories) if histories else {(inbox, 0)}
        for position, name in enumerate(("delivered", "failed")):
            least[name] += min(life[position] for life in lives)
            most[name] += max(life[position] for life in lives)
    return {name: (least[name], most[name]) for name in ("delivered", "failed")}


OVERLAP: Instant = 2 * SECOND
"""Longer than a write waits for its commit, even on a busy machine."""
_Life = tuple[int, int]
"""How often an event became delivered, and how often it failed."""


def _possible_lives(histories: Sequence[Sequence[HistoryEntry]]) -> set[_Life]:
    """The results of every possible commit order of the entries. Entries of the same instant form one step."""
    timed = [list(_in_order(history)) for history in histories]
    ends = tuple(len(history) for history in timed)
    reached = defaultdict[int, dict[tuple[tuple[int, ...], EventStatus], set[_Life]]](dict)
    reached[0][(0,) * len(timed), EventStatus.RECEIVED] = {(0, 0)}
    for committed in range(sum(ends)):  # this order completes every position before any step leaves it
        for (positions, status), so_far in reached.pop(committed, {}).items():
            following = [timed[one][at][0] for one, at in enumerate(positions) if at < ends[one]]
            for instant in {one for one in following if one <= min(following) + OVERLAP}:
                moved = tuple(
                    at + (at < ends[one] and timed[one][at][0] == instant) for one, at in enumerate(positions)
                )
                new = _status_at(timed, moved, status)
                became = _change(status, new, timed, moved)
                lives = reached[sum(moved)].setdefault((moved, new), set())
                lives.update((d + became[0], f + became[1]) for d, f in so_far)
    return set[_Life]().union(*reached[sum(ends)].values())


def _states(
    timed: Sequence[Sequence[tuple[Instant, HistoryEntry]]], positions: Sequence[int]
) -> Counter[DeliveryState]:
    return Counter(history[at - 1][1].new_state for history, at in zip(timed, positions, strict=True) if at)


def _status_at(
    timed: Sequence[Sequence[tuple[Instant, HistoryEntry]]], positions: Sequence[int], status: EventStatus
) -> EventStatus:
    states = _states(timed, positions)
    picked_up = status is not EventStatus.RECEIVED or states[_S.IN_PROGRESS] > 0
    return status_of(picked_up=picked_up, **_grouped(states))


def _change(
    old: EventStatus,
    new: EventStatus,
    timed: Sequence[Sequence[tuple[Instant, HistoryEntry]]],
    positions: Sequence[int],
) -> _Life:
    dead = _grouped(_states(timed, positions))["dead_count"] > 0
    return int(new is not old and new is EventStatus.DELIVERED), int(
        new is not old and new is EventStatus.FAILED and dead
    )


def _grouped(states: Counter[DeliveryState]) -> dict[str, int]:
    return {name: sum(states[one] for one in group) for name, group in _GROUPS.items()}


def _in_order(history: Sequence[HistoryEntry]) -> Iterator[tuple[Instant, HistoryEntry]]:
    """The history entries with times that never decrease: several machines with different clocks wrote them."""
    return zip(accumulate((line.at for line in history), max), history, strict=True)


_GROUPS = {"open_count": _OPEN, "dead_count": _DEAD, "done_count": _DONE}


# -- deliveries --------------------------------------------------------------------------------------------


def _of_delivery(delivery: Delivery, history: Sequence[HistoryEntry], owed_at: Instant) -> Counter[str]:
    counts = Counter(deliveries=1)
    base = 0
    for line in history:
        if line.old_state in _DEAD and line.new_state is _S.PENDING:
            base = line.attempt  # an operator started a new round of retries
        base += line.note.endswith("no retry used")  # a probe, or an attempt that a recovery brought forward
        counts["dead"] += line.new_state is _S.DEAD
        if line.old_state is _S.IN_PROGRESS and line.new_state is not _S.PENDING:
            counts["succeeded" if line.new_state is _S.DELIVERED else "died"] += 1
            retries = max(line.attempt - 1 - base, 0)  # a deliberately broken store may count no attempt
            counts[f"retries_{min(retries, delivery.retries_max, 7)}"] += 1
        if line.new_state is _S.DELIVERED:
            span = max(line.at - owed_at, 0)
            counts[f"ttd_{sum(span > bound * SECOND for bound in TTD_SECONDS)}"] += 1
            counts["ttd_ms"] += (span + 500) // 1_000
    counts["now_open"] = delivery.state in _OPEN
    counts["now_dead"] = delivery.state is _S.DEAD and not delivery.deleted
    counts["now_archived"] = delivery.state is _S.ARCHIVED and not delivery.deleted
    return counts


async def _of_attempts(store: Store, org_id: UUID, delivery_id: UUID) -> Counter[str]:
    attempts = await store.find(org_id, DeliveryAttempts(delivery_id=delivery_id))
    on_time = [one for one in attempts if not one.late]
    counts = Counter(
        attempts=len(on_time),
        late=len(attempts) - len(on_time),
        blocked=sum(one.code == "BLOCKED" for one in on_time),
    )
    for span in (max(one.finished_at - one.started_at, 0) for one in on_time if one.code not in UNREACHED):
        counts[f"response_{sum(span > bound * SECOND for bound in RESPONSE_SECONDS)}"] += 1
        counts["response_us"] += span
    return counts
