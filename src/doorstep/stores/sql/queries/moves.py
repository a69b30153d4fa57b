"""Moves: deliveries that change state outside the hot path, with the resulting history entries and event statuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import BigInteger, Select, Update, bindparam, func, insert, literal_column, select, update

from doorstep.clock import Instant
from doorstep.model.claim import Move, Settlement, StatusChange
from doorstep.model.delivery import DEAD_STATES, DONE_STATES, OPEN_STATES, DeliveryState, check_transition
from doorstep.model.event import EventStatus, status_of
from doorstep.stores.sql.ddl import ordering_lock
from doorstep.stores.sql.queries.figures import add_counters
from doorstep.stores.sql.queries.transaction import (
    KEYS,
    Row,
    Step,
    Transaction,
    execute,
    execute_each,
    execute_in_parts,
    execute_on_postgres,
    new_parameters,
    new_values,
    parts,
)
from doorstep.stores.sql.schema import NEVER, deliveries, endpoints, events, history, orgs
from doorstep.stores.tally import Tally

MOVER = (
    select(
        deliveries.c.id,
        deliveries.c.uid,
        deliveries.c.org_id,
        deliveries.c.event_id,
        deliveries.c.state,
        deliveries.c.attempt,
        deliveries.c.retry_attempts,
        deliveries.c.moves,
        events.c.uid,
        endpoints.c.uid,
        orgs.c.uid,
        events.c.correlation_id,
        deliveries.c.ordering_key,
        events.c.event_type,
        deliveries.c.endpoint_id,
        deliveries.c.code,
        deliveries.c.reason,
    )
    .join(events, events.c.id == deliveries.c.event_id)
    .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
    .join(orgs, orgs.c.id == deliveries.c.org_id)
)
"""Selects the columns of a Mover. Add `with_for_update(of=deliveries)` to lock the deliveries."""


class Mover(NamedTuple):
    """A locked delivery that is about to be moved to another state. The fields have the values from before the move."""

    key: int
    delivery_id: UUID
    org_key: int
    event_key: int
    state: DeliveryState
    attempt: int
    retry_attempts: int
    moves: int
    event_id: UUID
    endpoint_id: UUID
    org_id: UUID
    correlation_id: str
    ordering_key: str | None
    event_type: str
    endpoint_key: int
    code: str | None
    """The code of the latest failure; None if no attempt has failed."""
    reason: str | None

    @classmethod
    def of(cls, row: Row) -> Mover:
        mover = cls._make(row)
        return mover._replace(state=DeliveryState(mover.state))

    def to(self, state: DeliveryState) -> Move:
        return Move(
            delivery_id=self.delivery_id,
            event_id=self.event_id,
            endpoint_id=self.endpoint_id,
            org_id=self.org_id,
            correlation_id=self.correlation_id,
            old_state=self.state,
            new_state=state,
            attempt=self.attempt,
        )


class Effect(NamedTuple):
    """An update of deliveries, and the state to which it moves them, or None if their state does not change."""

    statement: Update
    state: DeliveryState | None
    deletes: bool = False
    """Whether the update deletes dead letters, which then no longer count as dead letters."""


CHANGED = update(deliveries).where(deliveries.c.id.in_(KEYS))
MOVED = CHANGED.values(moves=deliveries.c.moves + 1)

_ADD_HISTORY = insert(history)
_EVENTS = (
    select(
        events.c.id,
        events.c.org_id,
        events.c.uid,
        orgs.c.uid,
        events.c.correlation_id,
        events.c.user_id,
        events.c.status,
        events.c.open_count,
        events.c.dead_count,
        events.c.done_count,
    )
    .join(orgs, orgs.c.id == events.c.org_id)
    .where(events.c.id.in_(KEYS))
    .order_by(events.c.id)
    .with_for_update(of=events)
)
_COUNTS = ("open_count", "dead_count", "done_count")
_COUNT = update(events).where(events.c.id.in_(KEYS)).values(new_parameters(_COUNTS))
_CHANGE_STATUS = _COUNT.values(new_parameters(("status", "ended_at")))


def move(movers: Sequence[Mover], effect: Effect, at: Instant, note: str, /, **values: object) -> Transaction[None]:
    """Apply an effect to deliveries and update the counters. If the effect changes their state, add a history entry for
    each."""
    if effect.state is not None:
        for mover in movers:
            check_transition(mover.state, effect.state)
    for part in parts(movers):
        yield execute(effect.statement, keys=[mover.key for mover in part], **values)
        if effect.state is not None:
            yield execute_each(_ADD_HISTORY, [_history_row(mover, effect.state, at, note) for mover in part])
    tally = Tally()
    for mover in movers:
        new = None if effect.deletes else effect.state or mover.state
        tally.moved((mover.org_key, mover.endpoint_key), mover.state, new)
    yield from add_counters(tally, at)


def update_statuses(moved: Iterable[tuple[Mover, DeliveryState]], at: Instant) -> Transaction[list[StatusChange]]:
    """Update the events of moved deliveries. Returns one StatusChange for each event whose status changed."""
    count_changes: dict[int, _CountChange] = {}
    for mover, state in moved:
        count_changes.setdefault(mover.event_key, _CountChange()).add(mover, state)
    changes: dict[int, StatusChange] = {}
    counted = Tally()
    for part in parts(sorted(count_changes)):
        # Most events get the same new values, so they are updated in groups. Updating the events of one bulk step one
        # by one took 160 ms on PostgreSQL.
        groups: dict[_NewStatus, list[int]] = {}
        for key, org, event_id, org_id, correlation_id, user_id, status, *counts in (yield execute(_EVENTS, keys=part)):
            old, count_change = EventStatus(status), count_changes[key]
            new = _new_status(old, counts, count_change)
            groups.setdefault(new, []).append(key)
            if new.changed:
                retries = count_change.retry_attempts
                changes[key] = StatusChange(event_id, org_id, correlation_id, old, new.status, retries, user_id)
                counted.status(org, old, new.status, called_off=not new.dead_count)
        for new, keys in groups.items():
            yield new.step(keys, at)
    yield from add_counters(counted, at)
    return [changes[key] for key in count_changes if key in changes]


class _CountChange:
    """The changes to the counts of an event, and the highest number of retries among its moved deliveries."""

    def __init__(self) -> None:
        self.open = self.dead = self.done = self.retry_attempts = 0

    def add(self, mover: Mover, state: DeliveryState) -> None:
        if state is not DeliveryState.PENDING:  # a return to pending starts a new round, with no retries used
            self.retry_attempts = max(self.retry_attempts, mover.retry_attempts)
        for changed, sign in ((mover.state, -1), (state, 1)):
            self.open += sign * (changed in OPEN_STATES)
            self.dead += sign * (changed in DEAD_STATES)
            self.done += sign * (changed in DONE_STATES)


class _NewStatus(NamedTuple):
    """The new status and counts of an event."""

    status: EventStatus
    changed: bool
    """Whether the status differs from the previous one."""
    open_count: int
    dead_count: int
    done_count: int

    def step(self, keys: Sequence[int], at: Instant) -> Step:
        counts = new_values({name: getattr(self, name) for name in _COUNTS})
        if not self.changed:
            return execute(_COUNT, keys=keys, **counts)
        ended_at = at if self.status is EventStatus.FAILED else None
        return execute(_CHANGE_STATUS, keys=keys, new_status=self.status, new_ended_at=ended_at, **counts)


def _new_status(old: EventStatus, old_counts: Sequence[int], count_change: _CountChange) -> _NewStatus:
    changes = (count_change.open, count_change.dead, count_change.done)
    counts = dict(zip(_COUNTS, map(add, old_counts, changes), strict=True))
    new = status_of(picked_up=old is not EventStatus.RECEIVED, **counts)
    return _NewStatus(new, new is not old, **counts)


def _history_row(mover: Mover, state: DeliveryState, at: Instant, note: str) -> dict[str, object]:
    return {
        "delivery_id": mover.key,
        "move": mover.moves + 1,
        "org_id": mover.org_key,
        "at": at,
        "old_state": mover.state,
        "new_state": state,
        "attempt": mover.attempt,
        "note": note,
    }


_D = deliveries.c
_KEYS = bindparam("keys", expanding=True, type_=_D.id.type)


# -- locks of ordering groups ------------------------------------------------------------------------------


def ordering_locks(chosen: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """A statement, for `execute_on_postgres`, that locks the ordering groups of the chosen deliveries.

    It locks all groups in one statement and always in the same order, so that transactions do not deadlock. An ordering
    key never changes, so it can be read before its delivery is locked.
    """
    group = chosen.with_only_columns(_D.endpoint_id, _D.ordering_key).subquery("ordering_group")
    lock = literal_column(ordering_lock("ordering_group"), type_=BigInteger()).label("lock_key")
    locks = select(lock).select_from(group).where(group.c.ordering_key.is_not(None)).distinct().order_by(lock)
    return select(func.pg_advisory_xact_lock(locks.subquery("locks").c.lock_key))


_LOCK_GROUPS = ordering_locks(select(deliveries).where(_D.id.in_(_KEYS)))


def lock_ordering_groups(keys: Sequence[int]) -> Step:
    """Lock the ordering groups of these deliveries."""
    return execute_on_postgres(_LOCK_GROUPS, keys=keys)


# -- unblocking --------------------------------------------------------------------------------------------

_ENDED, _OPEN = deliveries.alias("ended"), deliveries.alias("open")
_FIRST = (
    select(func.min(_OPEN.c.id))
    .where(
        _OPEN.c.endpoint_id == _ENDED.c.endpoint_id,
        _OPEN.c.ordering_key == _ENDED.c.ordering_key,
        _OPEN.c.due_at.is_not(None),
    )
    .scalar_subquery()
)
_FIRSTS = select(_FIRST).select_from(_ENDED).where(_ENDED.c.id.in_(_KEYS))
_BLOCKED = (
    select(_D.id, _D.forced, events.c.deliver_at)
    .join(events, events.c.id == _D.event_id)
    .where(_D.id.in_(_KEYS), _D.due_at == NEVER, _D.attempt == 0)
    .order_by(_D.id)
    .with_for_update(of=deliveries)
)
_UNBLOCK = update(deliveries).where(_D.id == bindparam("key")).values(due_at=bindparam("new_due_at"))


def unblock_after(movers: Iterable[Mover], now: Instant) -> Transaction[None]:
    """Unblock the next delivery in the ordering groups of deliveries that were pending before they were moved."""
    ended = (mover for mover in movers if mover.state is DeliveryState.PENDING and mover.ordering_key is not None)
    return (yield from unblock([mover.key for mover in ended], now))


def ended_and_ordered(settlements: Iterable[Settlement]) -> list[Any]:
    """The keys of the deliveries that end with these settlements and may be blocking other deliveries in their ordering
    group."""
    ending = (one for one in settlements if one.state is not DeliveryState.PENDING)
    return [one.claim.key for one in ending if one.claim.ordering_key is not None]


def unblock(ended: Sequence[int], now: Instant) -> Transaction[None]:
    """In each ordering group of the `ended` deliveries, unblock the first open delivery if it is blocked. That delivery
    becomes due now, or at its event's `deliver_at` if that is later and the delivery is not forced.

    Call this as the last step of a transaction that has locked these ordering groups.
    """
    firsts = {row[0] for row in (yield from execute_in_parts(_FIRSTS, "keys", ended)) if row[0] is not None}
    blocked = yield from execute_in_parts(_BLOCKED, "keys", sorted(firsts))
    yield execute_each(_UNBLOCK, [{"key": key, "new_due_at": _due_at(now, *own)} for key, *own in blocked])


def _due_at(now: Instant, forced: bool, deliver_at: Instant | None) -> Instant:
    return now if forced or deliver_at is None else max(now, deliver_at)
