"""What operators and consumers do: acts on deliveries and acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import BindParameter, bindparam, case, literal_column, null, select, update

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import Action, ActionKind, ActionResult
from doorstep.model.attempt import Category, Code
from doorstep.model.claim import Moved, StatusChange
from doorstep.model.delivery import DeliveryState, cause_of
from doorstep.model.event import EventStatus
from doorstep.stores import notes
from doorstep.stores.incidents import death_of
from doorstep.stores.sql.queries.aggregation import tick
from doorstep.stores.sql.queries.audit import write_line
from doorstep.stores.sql.queries.incidents import incident_steps
from doorstep.stores.sql.queries.moves import CHANGED, MOVED, MOVER, Effect, Mover, move, parts, update_statuses
from doorstep.stores.sql.queries.ordering import turns_of, turns_to_end, unblock_after
from doorstep.stores.sql.queries.orgs import org_key
from doorstep.stores.sql.queries.rows import IN_ORG
from doorstep.stores.sql.queries.transaction import Transaction, execute, execute_on_postgres
from doorstep.stores.sql.schema import NEVER, deliveries, endpoints, events, orgs
from doorstep.stores.tally import Tally

# -- acts --------------------------------------------------------------------------------------------------

_AT: BindParameter[int] = bindparam("at")
_CLOSED = MOVED.values(due_at=null(), forced=False, settled_at=_AT)
_FORCED = bindparam("new_forced", type_=deliveries.c.forced.type)
_AT_ONCE = case(
    (deliveries.c.due_at == NEVER, NEVER),  # who is blocked keeps its place in the line
    (deliveries.c.due_at < _AT, deliveries.c.due_at),  # and who is overdue that among the others
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
        forced=_FORCED,
        cause=null(),
    ),
    DeliveryState.PENDING,
)
_EDIT_AND_REVIVE = Effect(_REVIVE.statement.values(payload=bindparam("new_payload")), DeliveryState.PENDING)
_DEAD_LETTER = Effect(
    _CLOSED.values(
        state=DeliveryState.DEAD.value,
        category=Category.PERMANENT.value,
        code=bindparam("new_code"),
        reason=bindparam("new_reason"),
        cause=bindparam("new_cause"),
    ),
    DeliveryState.DEAD,
)
_RESOLVE = Effect(MOVED.values(state=DeliveryState.RESOLVED.value, settled_at=_AT), DeliveryState.RESOLVED)
DELETE = Effect(CHANGED.values(deleted_at=_AT, settled_at=_AT), None, deletes=True)
CANCEL = Effect(_CLOSED.values(state=DeliveryState.CANCELLED.value), DeliveryState.CANCELLED)

_CHOSEN = MOVER.where(
    deliveries.c.org_id == bindparam("org"),
    deliveries.c.uid.in_(bindparam("uids", expanding=True)),
    deliveries.c.deleted_at.is_(None),
)
_TURNS_OF_CHOSEN = turns_of(_CHOSEN)
_LOCK_CHOSEN = _CHOSEN.order_by(deliveries.c.id).with_for_update(of=deliveries)


def act(act: Action) -> Transaction[tuple[ActionResult, Moved]]:
    org = yield from org_key(act.org_id)
    chosen = tuple(dict.fromkeys(act.delivery_ids))
    found = yield from _find(org, chosen)
    allowed = {uid: found[uid] for uid in chosen if uid in found and found[uid].state in act.possible_in}
    refused = {uid: found[uid].state if uid in found else None for uid in chosen if uid not in allowed}
    result = ActionResult(tuple(allowed), refused)
    yield from write_line(org, notes.act_line(act, result))
    moved = yield from _do(act, allowed.values())
    changes = yield from update_statuses(moved, act.at)
    yield from unblock_after(allowed.values(), act.at)
    moves = (mover.to(state) for mover, state in moved if state is not mover.state)
    return result, Moved(tuple(moves), tuple(changes))


def _find(org: int, chosen: Sequence[UUID]) -> Transaction[dict[UUID, Mover]]:
    """The deliveries of this organization among the chosen; a deleted dead letter counts as unknown."""
    found: dict[UUID, Mover] = {}
    yield execute_on_postgres(_TURNS_OF_CHOSEN, org=org, uids=chosen)
    for part in parts(chosen):
        rows = yield execute(_LOCK_CHOSEN, org=org, uids=part)
        found |= {mover.delivery_id: mover for mover in map(Mover.of, rows)}
    return found


def _do(act: Action, movers: Iterable[Mover]) -> Transaction[list[tuple[Mover, DeliveryState]]]:
    """Write what the act does to each; returns them with the states they are in now, in the order given."""
    moved: list[tuple[Mover, DeliveryState]] = []
    groups: dict[Effect, list[Mover]] = {}
    for mover in movers:
        effect = _effect(act, mover.state)
        groups.setdefault(effect, []).append(mover)
        moved.append((mover, effect.state or mover.state))
    for effect, group in groups.items():
        if effect is _DEAD_LETTER:
            yield from _dead_letter(group, Code.SKIPPED, notes.acted(act), act.at, notes.acted(act))
        else:
            yield from move(group, effect, act.at, notes.acted(act), **_values(act, effect))
    return moved


def _effect(act: Action, state: DeliveryState) -> Effect:
    match act.kind:
        case ActionKind.RETRY if state is DeliveryState.PENDING:
            return _FORCE
        case ActionKind.RETRY:
            return _REVIVE if act.payload is None else _EDIT_AND_REVIVE
        case ActionKind.SKIP:
            return _DEAD_LETTER
        case ActionKind.RESOLVE:
            return _RESOLVE
        case ActionKind.DELETE:
            return DELETE
        case ActionKind.CANCEL:
            return CANCEL


def _values(act: Action, effect: Effect) -> dict[str, object]:
    if effect is _FORCE:
        return {"at": act.at, "new_forced": act.forced}
    if effect is _REVIVE:
        return {"revive_at": act.revive_at, "new_forced": act.forced}
    if effect is _EDIT_AND_REVIVE:
        return {"revive_at": act.revive_at, "new_forced": act.forced, "new_payload": act.payload}
    return {"at": act.at}


# -- deliveries given up without a try ---------------------------------------------------------------------

_WAITING = (
    select(deliveries.c.id)
    .where(
        # A subquery, so that the order of the endpoint's index is known beforehand: else all that wait are sorted.
        deliveries.c.endpoint_id
        == select(endpoints.c.id).where(endpoints.c.uid == bindparam("endpoint")).scalar_subquery(),
        deliveries.c.state == literal_column("'pending'"),  # a parameter would keep its partial index from being used
        deliveries.c.created_at < bindparam("created_before"),
    )
    .order_by(deliveries.c.due_at, deliveries.c.id)
    .limit(bindparam("most"))
)
_LOCK = (
    MOVER.where(deliveries.c.id.in_(bindparam("keys", expanding=True)))
    .order_by(deliveries.c.id)
    .with_for_update(of=deliveries)
)
"""By key alone: with their state among the words, PostgreSQL may read all that wait to find these."""
_FOR_EVER: Instant = 2**63 - 1


def dead_letter_waiting(
    endpoint_id: UUID, code: str, reason: str, now: Instant, limit: int, created_before: Instant | None
) -> Transaction[Moved]:
    """Chosen first, and locked after the turns of their lines: what is claimed meanwhile is left out, and nothing
    takes its place, because that would be one whose turn has not been waited for."""
    before = _FOR_EVER if created_before is None else created_before
    rows = yield execute(_WAITING, endpoint=endpoint_id, created_before=before, most=limit)
    keys = [row[0] for row in rows]
    yield turns_to_end(keys)
    locked: dict[int, Mover] = {}
    for part in parts(keys):
        locked |= {mover.key: mover for mover in map(Mover.of, (yield execute(_LOCK, keys=part)))}
    waiting = [locked[key] for key in keys if key in locked and locked[key].state is DeliveryState.PENDING]
    return (yield from dead_letter_all(waiting, code, reason, now))


def dead_letter_all(movers: Sequence[Mover], code: str, reason: str, now: Instant) -> Transaction[Moved]:
    """Waiting deliveries, which the caller has locked after their turns, become dead letters without another try."""
    yield from _dead_letter(movers, code, reason, now, notes.buried(code))
    changes = yield from update_statuses([(mover, DeliveryState.DEAD) for mover in movers], now)
    yield from unblock_after(movers, now)
    return Moved(tuple(mover.to(DeliveryState.DEAD) for mover in movers), tuple(changes))


def _dead_letter(movers: Iterable[Mover], code: str, reason: str, at: Instant, note: str) -> Transaction[None]:
    """Endpoint by endpoint, because each has causes of its own."""
    by_endpoint: dict[UUID, list[Mover]] = {}
    for mover in movers:
        by_endpoint.setdefault(mover.endpoint_id, []).append(mover)
    for endpoint_id, group in by_endpoint.items():
        cause = cause_of(endpoint_id, code, reason)
        yield from move(group, _DEAD_LETTER, at, note, at=at, new_code=code, new_reason=reason, new_cause=cause)
        yield incident_steps((mover.org_key, death_of(mover, code, reason, cause, at)) for mover in group)


# -- the inbox ---------------------------------------------------------------------------------------------

_INBOX_EVENT = (
    select(events.c.id, events.c.org_id, events.c.correlation_id, events.c.status, events.c.delivery_count)
    .join(orgs, orgs.c.id == events.c.org_id)
    .where(IN_ORG, events.c.uid == bindparam("event"), events.c.deleted_at.is_(None))
    .with_for_update(of=events)
)
_ACKNOWLEDGE = (
    update(events)
    .where(events.c.id == bindparam("key"))
    .values(status=EventStatus.DELIVERED.value, ended_at=bindparam("at"))
)


def acknowledge(org_id: UUID, event_id: UUID, now: Instant) -> Transaction[StatusChange]:
    rows = yield execute(_INBOX_EVENT, org=org_id, event=event_id)
    if not rows:
        raise NotFound(f"no event {event_id}")
    key, org, correlation_id, status, delivery_count = rows[0]
    if delivery_count:
        raise Conflict(f"event {event_id} is delivered to endpoints; only events of the inbox are acknowledged")
    change = StatusChange(event_id, org_id, correlation_id, EventStatus(status), EventStatus.DELIVERED)
    if status == EventStatus.RECEIVED:
        tally = Tally()
        tally.statuses([(org, change)])
        yield execute(_ACKNOWLEDGE, key=key, at=now)
        yield from tick(tally, now)
    return change
