"""Waits that are stored as instants, and what becomes of them when the clock is set."""

from __future__ import annotations

from sqlalchemy import BindParameter, and_, bindparam, case, or_, select, text, update

from doorstep.clock import JUMP, Instant
from doorstep.stores.sql.queries.transaction import LIMIT, Row, Transaction, execute, execute_each, execute_on_sqlite
from doorstep.stores.sql.schema import IN_PROGRESS, NEVER, PENDING, circuits, deliveries, events, variables
from doorstep.stores.store import LOCK_MAX, Task

_D, _C, _V = deliveries.c, circuits.c, variables.c
_NOW: BindParameter[Instant] = bindparam("now")
_AHEAD: BindParameter[Instant] = bindparam("ahead")
"""What began later than this was written while the clock was ahead. What began a little later than `now` was written
after `now` was read."""

_BEGIN_NOW = {"due_at": _D.due_at - _D.claimed_at + _NOW, "claimed_at": _NOW}
_RENEW = (
    update(deliveries)
    .where(text(IN_PROGRESS), _D.worker == bindparam("holder"), _D.claimed_at < _NOW)
    .values(_BEGIN_NOW)
)
_SHIFT_LEASES = update(deliveries).where(text(IN_PROGRESS), _D.claimed_at > _AHEAD).values(_BEGIN_NOW)
_SHIFT_CIRCUITS = (
    update(circuits)
    .where(_C.changed_at > _AHEAD)
    .values(
        until=_C.until - _C.changed_at + _NOW,
        failing_since=case((_C.failing_since > _NOW, _NOW), else_=_C.failing_since),
        changed_at=_NOW,
        version=_C.version + 1,
    )
)
_RELEASE_LOCKS = (
    update(variables)
    .where(_V.name.in_([task.value for task in Task]), _V.value > bindparam("until_max"))
    .values(value=0)
)
# The condition names the index of pending deliveries, and the order is the index's, so that no other row is read.
_LATE = (
    select(_D.id, _D.due_at, _D.last_attempt_at, events.c.deliver_at)
    .join(events, events.c.id == _D.event_id)
    .where(
        text(f"doorstep_deliveries.{PENDING}"),
        _D.due_at > _NOW,
        _D.due_at < NEVER,
        or_(
            _D.last_attempt_at > _AHEAD,
            and_(
                or_(_D.last_attempt_at.is_(None), _D.forced),
                or_(events.c.deliver_at.is_(None), _D.due_at > events.c.deliver_at),
            ),
        ),
    )
    .order_by(_D.endpoint_id, _D.due_at, _D.id)
    .limit(LIMIT)
    .with_for_update(of=deliveries, skip_locked=True)
)
_SHIFT = (
    update(deliveries)
    .where(_D.id == bindparam("key"))
    .values(due_at=bindparam("due"), last_attempt_at=bindparam("attempted"))
)


def renew_leases(worker: str, now: Instant) -> Transaction[None]:
    yield execute(_RENEW, holder=worker, now=now)


def shift_waits(now: Instant, limit: int) -> Transaction[int]:
    ahead = now + JUMP
    yield execute(_SHIFT_LEASES, now=now, ahead=ahead)
    yield execute(_SHIFT_CIRCUITS, now=now, ahead=ahead)
    yield execute_on_sqlite(_RELEASE_LOCKS, until_max=now + LOCK_MAX)
    rows = yield execute(_LATE, now=now, ahead=ahead, limit=limit)
    yield execute_each(_SHIFT, [_shifted(row, now) for row in rows])
    return len(rows)


def _shifted(row: Row, now: Instant) -> dict[str, object]:
    key, due_at, attempted_at, deliver_at = row
    if attempted_at is not None and attempted_at > now + JUMP:
        return {"key": key, "due": due_at - attempted_at + now, "attempted": now}
    return {"key": key, "due": max(now, deliver_at or 0), "attempted": attempted_at}
