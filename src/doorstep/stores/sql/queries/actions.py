"""Operators' actions on deliveries. Also turns deliveries into dead letters without attempting them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import BindParameter, and_, bindparam, case, literal_column, null, select

from doorstep.clock import Instant
from doorstep.model.action import Action, ActionKind, ActionResult
from doorstep.model.attempt import Category, Code
from doorstep.model.claim import Moved
from doorstep.model.delivery import DeliveryState, cause_of
from doorstep.stores import notes
from doorstep.stores.incidents import dead_letter_incident
from doorstep.stores.sql.queries.accounts import actor_name, write_entry
from doorstep.stores.sql.queries.alerts import incident_steps
from doorstep.stores.sql.queries.deliveries import get_payloads
from doorstep.stores.sql.queries.moves import (
    CHANGED,
    MOVED,
    MOVER,
    Effect,
    Mover,
    lock_ordering_groups,
    move,
    ordering_locks,
    unblock_after,
    update_statuses,
)
from doorstep.stores.sql.queries.rows import org_key
from doorstep.stores.sql.queries.transaction import (
    KEYS,
    LIMIT,
    UIDS,
    Transaction,
    execute,
    execute_in_parts,
    execute_on_postgres,
)
from doorstep.stores.sql.schema import NEVER, deliveries, endpoints

# -- actions -----------------------------------------------------------------------------------------------

_AT: BindParameter[int] = bindparam("at")
_CLOSED = MOVED.values(due_at=null(), forced=False, settled_at=_AT)
_FORCED = bindparam("new_forced", type_=deliveries.c.forced.type)
_AT_ONCE = case(
    (
        and_(deliveries.c.due_at == NEVER, deliveries.c.attempt == 0),
        NEVER,
    ),  # a blocked delivery keeps its place in its ordering group
    (deliveries.c.due_at < _AT, deliveries.c.due_at),  # an overdue delivery keeps its due time, and so its place
    else_=_AT,
)
_FORCE = Effect(CHANGED.values(due_at=_AT_ONCE, forced=_FORCED), None)
_REVIVE = Effect(
    MOVED.values(
        state=DeliveryState.PENDING.value,
        due_at=bindparam("revive_at"),
        settled_at=null(),
        retry_attempts=0,
        round_base=deliveries.c.attempt,
        uncounted=0,
        on_recovery=False,
        forced=_FORCED,
        cause=null(),
    ),
    DeliveryState.PENDING,
)
_EDIT_AND_REVIVE = Effect(_REVIVE.statement.values(payload=bindparam("new_payload")), DeliveryState.PENDING)
_DEAD_AS_IT_IS = Effect(
    _CLOSED.values(state=DeliveryState.DEAD.value, cause=bindparam("new_cause")), DeliveryState.DEAD
)
"""Keeps the error of the last attempt."""
_DEAD_LETTER = Effect(
    _DEAD_AS_IT_IS.statement.values(
        category=Category.PERMANENT.value, code=bindparam("new_code"), reason=bindparam("new_reason")
    ),
    DeliveryState.DEAD,
)
_RESOLVE = Effect(MOVED.values(state=DeliveryState.RESOLVED.value, settled_at=_AT), DeliveryState.RESOLVED)
DELETE = Effect(CHANGED.values(deleted_at=_AT, settled_at=_AT), None, deletes=True)
CANCEL = Effect(_CLOSED.values(state=DeliveryState.CANCELLED.value), DeliveryState.CANCELLED)

_CHOSEN = MOVER.where(
    deliveries.c.org_id == bindparam("org"),
    deliveries.c.uid.in_(UIDS),
    deliveries.c.deleted_at.is_(None),
)
_LOCK_GROUPS_OF_CHOSEN = ordering_locks(_CHOSEN)
_LOCK_CHOSEN = _CHOSEN.order_by(deliveries.c.id).with_for_update(of=deliveries)


def act(action: Action) -> Transaction[tuple[ActionResult, Moved]]:
    org = yield from org_key(action.org_id)
    chosen = tuple(dict.fromkeys(action.delivery_ids))
    found = yield from _find(org, chosen)
    allowed = {uid: found[uid] for uid in chosen if uid in found and found[uid].state in action.possible_in}
    refused = {uid: found[uid].state if uid in found else None for uid in chosen if uid not in allowed}
    result = ActionResult(tuple(allowed), refused)
    edits = yield from _edits(action, result.done)
    yield from write_entry(org, notes.action_entry(action, result, edits))
    note = notes.acted(action, (yield from actor_name(action.org_id, action.actor)))
    moved = yield from _apply(action, note, allowed.values())
    changes = yield from update_statuses(moved, action.at)
    yield from unblock_after(allowed.values(), action.at)
    moves = (mover.to(state) for mover, state in moved if state is not mover.state)
    return result, Moved(tuple(moves), tuple(changes))


def _find(org: int, chosen: Sequence[UUID]) -> Transaction[dict[UUID, Mover]]:
    """Lock and read the chosen deliveries of this organization. A deleted dead letter counts as unknown."""
    yield execute_on_postgres(_LOCK_GROUPS_OF_CHOSEN, org=org, uids=chosen)
    rows = yield from execute_in_parts(_LOCK_CHOSEN, "uids", chosen, org=org)
    return {mover.delivery_id: mover for mover in map(Mover.of, rows)}


def _edits(action: Action, done: Sequence[UUID]) -> Transaction[list[notes.Edit]]:
    """The payloads that the action replaces, as they are before it."""
    if action.payload is None:
        return []
    before = yield from get_payloads(action.org_id, done)
    return [notes.Edit(one.delivery_id, one.payload, action.payload) for one in before]


def _apply(action: Action, note: str, movers: Iterable[Mover]) -> Transaction[list[tuple[Mover, DeliveryState]]]:
    """Apply the action to each delivery. Returns the deliveries with their new states, in the given order."""
    moved: list[tuple[Mover, DeliveryState]] = []
    groups: dict[Effect, list[Mover]] = {}
    for mover in movers:
        effect = _effect(action, mover.state)
        groups.setdefault(effect, []).append(mover)
        moved.append((mover, effect.state or mover.state))
    for effect, group in groups.items():
        if effect is _DEAD_LETTER:
            yield from _dead_letter(group, Code.SKIPPED, note, action.at, note)
        else:
            yield from move(group, effect, action.at, note, **_values(action, effect))
    return moved


def _effect(action: Action, state: DeliveryState) -> Effect:
    match action.kind:
        case ActionKind.RETRY if state is DeliveryState.PENDING:
            return _FORCE
        case ActionKind.RETRY:
            return _REVIVE if action.payload is None else _EDIT_AND_REVIVE
        case ActionKind.SKIP:
            return _DEAD_LETTER
        case ActionKind.RESOLVE:
            return _RESOLVE
        case ActionKind.DELETE:
            return DELETE
        case ActionKind.CANCEL:
            return CANCEL


def _values(action: Action, effect: Effect) -> dict[str, object]:
    if effect is _FORCE:
        return {"at": action.at, "new_forced": action.forced}
    if effect is _REVIVE:
        return {"revive_at": action.revive_at, "new_forced": action.forced}
    if effect is _EDIT_AND_REVIVE:
        return {"revive_at": action.revive_at, "new_forced": action.forced, "new_payload": action.payload}
    return {"at": action.at}


# -- deliveries dead-lettered without an attempt -----------------------------------------------------------

_WAITING = (
    select(deliveries.c.id)
    .where(
        # A subquery lets the planner use the order of the endpoint's index. A join would sort all waiting deliveries.
        deliveries.c.endpoint_id
        == select(endpoints.c.id).where(endpoints.c.uid == bindparam("endpoint")).scalar_subquery(),
        deliveries.c.state == literal_column("'pending'"),  # with a parameter, the partial index would not be used
        deliveries.c.created_at < bindparam("created_before"),
    )
    .order_by(deliveries.c.due_at, deliveries.c.id)
    .limit(LIMIT)
)
_LOCK = MOVER.where(deliveries.c.id.in_(KEYS)).order_by(deliveries.c.id).with_for_update(of=deliveries)
"""Selects deliveries by key alone. With a condition on the state, PostgreSQL might read every waiting delivery to find
them."""
_NO_END: Instant = 2**63 - 1


def dead_letter_waiting(
    endpoint_id: UUID, code: str, reason: str, now: Instant, limit: int, created_before: Instant | None
) -> Transaction[Moved]:
    """Choose the deliveries, lock their ordering groups, then lock the deliveries. A delivery that is claimed in the
    meantime is left out. No other delivery takes its place, because the ordering group of that delivery would not be
    locked."""
    before = _NO_END if created_before is None else created_before
    rows = yield execute(_WAITING, endpoint=endpoint_id, created_before=before, limit=limit)
    keys = [row[0] for row in rows]
    yield lock_ordering_groups(keys)
    locked = {mover.key: mover for mover in map(Mover.of, (yield from execute_in_parts(_LOCK, "keys", keys)))}
    waiting = [locked[key] for key in keys if key in locked and locked[key].state is DeliveryState.PENDING]
    return (yield from dead_letter_all(waiting, code, reason, now))


def dead_letter_all(movers: Sequence[Mover], code: str, reason: str, now: Instant) -> Transaction[Moved]:
    """Turn waiting deliveries into dead letters. The caller must have locked their ordering groups, then the
    deliveries."""
    yield from _dead_letter(movers, code, reason, now, notes.dead(code))
    changes = yield from update_statuses([(mover, DeliveryState.DEAD) for mover in movers], now)
    yield from unblock_after(movers, now)
    return Moved(tuple(mover.to(DeliveryState.DEAD) for mover in movers), tuple(changes))


def _dead_letter(movers: Iterable[Mover], code: str, reason: str, at: Instant, note: str) -> Transaction[None]:
    """Turn deliveries into dead letters, one cause at a time. A skip is not a failure, so a delivery that failed before
    keeps its error, and belongs to the cause of that error."""
    by_cause: dict[tuple[Effect, int], list[Mover]] = {}
    for mover in movers:
        if code == Code.SKIPPED and mover.code is not None:
            key = _DEAD_AS_IT_IS, cause_of(mover.endpoint_id, mover.code, mover.reason or "")
        else:
            key = _DEAD_LETTER, cause_of(mover.endpoint_id, code, reason)
        by_cause.setdefault(key, []).append(mover)
    for (effect, cause), group in by_cause.items():
        error = {"new_code": code, "new_reason": reason} if effect is _DEAD_LETTER else {}
        yield from move(group, effect, at, note, at=at, new_cause=cause, **error)
        yield incident_steps((mover.org_key, dead_letter_incident(mover, code, reason, cause, at)) for mover in group)
