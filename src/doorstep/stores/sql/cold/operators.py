"""What operators and consumers do: acts on deliveries, acknowledgements, and the audit of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec
from sqlalchemy import BindParameter, bindparam, insert, literal_column, null, select, update

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.act import ACTS_ON, Act, ActKind, ActResult, AuditLine
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.model.move import Moved
from doorstep.model.outcome import Category, Code
from doorstep.model.settlement import StatusChange
from doorstep.stores import notes
from doorstep.stores.sql.cold.moves import CHANGED, MOVED, MOVER, Effect, Mover, move, parts, update_statuses
from doorstep.stores.sql.cold.registry import org_key
from doorstep.stores.sql.cold.rows import IN_ORG
from doorstep.stores.sql.cold.script import Row, Script, Step, ask
from doorstep.stores.sql.schema import audit, deliveries, endpoints, events, orgs

# -- acts --------------------------------------------------------------------------------------------------

_AT: BindParameter[int] = bindparam("at")
_CLOSED = MOVED.values(due_at=null(), forced=False, settled_at=_AT)
_FORCE = Effect(CHANGED.values(due_at=_AT, forced=True), None)
_REVIVE = Effect(
    MOVED.values(
        state=DeliveryState.PENDING.value,
        due_at=bindparam("revive_at"),
        settled_at=null(),
        retry_attempts=0,
        round_base=deliveries.c.attempt,
        forced=True,
    ),
    DeliveryState.PENDING,
)
_BURY = Effect(
    _CLOSED.values(
        state=DeliveryState.DEAD.value,
        category=Category.PERMANENT.value,
        code=bindparam("new_code"),
        reason=bindparam("new_reason"),
    ),
    DeliveryState.DEAD,
)
_RESOLVE = Effect(MOVED.values(state=DeliveryState.RESOLVED.value, settled_at=_AT), DeliveryState.RESOLVED)
_DELETE = Effect(CHANGED.values(deleted_at=_AT, settled_at=_AT), None)
_CANCEL = Effect(_CLOSED.values(state=DeliveryState.CANCELLED.value), DeliveryState.CANCELLED)

_CHOSEN = (
    MOVER.where(
        deliveries.c.org_id == bindparam("org"),
        deliveries.c.uid.in_(bindparam("uids", expanding=True)),
        deliveries.c.deleted_at.is_(None),
    )
    .order_by(deliveries.c.id)
    .with_for_update(of=deliveries)
)


def act(act: Act) -> Script[tuple[ActResult, Moved]]:
    org = yield from org_key(act.org_id)
    chosen = tuple(dict.fromkeys(act.delivery_ids))
    found = yield from _find(org, chosen)
    allowed = {uid: found[uid] for uid in chosen if uid in found and found[uid].state in ACTS_ON[act.kind]}
    refused = {uid: found[uid].state if uid in found else None for uid in chosen if uid not in allowed}
    result = ActResult(tuple(allowed), refused)
    yield _audit_step(org, _audit_of(act, chosen, result))
    moved = yield from _do(act, allowed.values())
    changes = yield from update_statuses(moved, act.at)
    moves = (mover.to(state) for mover, state in moved if state is not mover.state)
    return result, Moved(tuple(moves), tuple(changes))


def _find(org: int, chosen: Sequence[UUID]) -> Script[dict[UUID, Mover]]:
    """The deliveries of this organization among the chosen; a deleted dead letter counts as unknown."""
    found: dict[UUID, Mover] = {}
    for part in parts(chosen):
        rows = yield ask(_CHOSEN, org=org, uids=part)
        found |= {mover.delivery_id: mover for mover in map(Mover.of, rows)}
    return found


def _do(act: Act, movers: Iterable[Mover]) -> Script[list[tuple[Mover, DeliveryState]]]:
    """Write what the act does to each; returns them with the states they are in now, in the order given."""
    moved: list[tuple[Mover, DeliveryState]] = []
    groups: dict[Effect, list[Mover]] = {}
    for mover in movers:
        effect = _effect(act.kind, mover.state)
        groups.setdefault(effect, []).append(mover)
        moved.append((mover, effect.state or mover.state))
    for effect, group in groups.items():
        yield from move(group, effect, act.at, notes.acted(act), **_values(act, effect))
    return moved


def _effect(kind: ActKind, state: DeliveryState) -> Effect:
    match kind:
        case ActKind.RETRY:
            return _FORCE if state is DeliveryState.PENDING else _REVIVE
        case ActKind.SKIP:
            return _BURY
        case ActKind.RESOLVE:
            return _RESOLVE
        case ActKind.DELETE:
            return _DELETE
        case ActKind.CANCEL:
            return _CANCEL


def _values(act: Act, effect: Effect) -> dict[str, object]:
    if effect is _REVIVE:
        return {"revive_at": act.revive_at}
    if effect is _BURY:
        return {"at": act.at, "new_code": Code.SKIPPED, "new_reason": notes.acted(act)}
    return {"at": act.at}


def _audit_of(act: Act, chosen: Sequence[UUID], result: ActResult) -> AuditLine:
    return AuditLine(
        at=act.at,
        org_id=act.org_id,
        actor=act.actor,
        action=act.kind,
        subjects=tuple(map(str, chosen)),
        result=notes.result(result),
        reason=act.reason,
    )


# -- deliveries given up without a try ---------------------------------------------------------------------

_WAITING = (
    MOVER.where(
        endpoints.c.uid == bindparam("endpoint"),
        deliveries.c.state == literal_column("'pending'"),  # a parameter would keep its partial index from being used
        deliveries.c.created_at < bindparam("created_before"),
    )
    .order_by(deliveries.c.due_at, deliveries.c.id)
    .limit(bindparam("most"))
    .with_for_update(of=deliveries)
)
_FOR_EVER: Instant = 2**63 - 1


def bury(
    endpoint_id: UUID, code: str, reason: str, now: Instant, limit: int, created_before: Instant | None
) -> Script[Moved]:
    before = _FOR_EVER if created_before is None else created_before
    rows = yield ask(_WAITING, endpoint=endpoint_id, created_before=before, most=limit)
    movers = [Mover.of(row) for row in rows]
    yield from move(movers, _BURY, now, notes.buried(code), at=now, new_code=code, new_reason=reason)
    changes = yield from update_statuses([(mover, DeliveryState.DEAD) for mover in movers], now)
    return Moved(tuple(mover.to(DeliveryState.DEAD) for mover in movers), tuple(changes))


# -- the inbox ---------------------------------------------------------------------------------------------

_INBOX_EVENT = (
    select(events.c.id, events.c.correlation_id, events.c.status, events.c.delivery_count)
    .join(orgs, orgs.c.id == events.c.org_id)
    .where(IN_ORG, events.c.uid == bindparam("event"))
    .with_for_update(of=events)
)
_ACKNOWLEDGE = (
    update(events)
    .where(events.c.id == bindparam("key"))
    .values(status=EventStatus.DELIVERED.value, ended_at=bindparam("at"))
)


def acknowledge(org_id: UUID, event_id: UUID, now: Instant) -> Script[StatusChange]:
    rows = yield ask(_INBOX_EVENT, org=org_id, event=event_id)
    if not rows:
        raise NotFound(f"no event {event_id}")
    key, correlation_id, status, delivery_count = rows[0]
    if delivery_count:
        raise Conflict(f"event {event_id} is delivered to endpoints; only events of the inbox are acknowledged")
    if status == EventStatus.RECEIVED:
        yield ask(_ACKNOWLEDGE, key=key, at=now)
    return StatusChange(event_id, org_id, correlation_id, EventStatus(status), EventStatus.DELIVERED)


# -- audit -------------------------------------------------------------------------------------------------

_ADD_AUDIT = insert(audit)
_AUDIT = (
    select(audit.c.at, audit.c.actor, audit.c.action, audit.c.subjects, audit.c.result, audit.c.reason)
    .join(orgs, orgs.c.id == audit.c.org_id)
    .where(IN_ORG)
    .order_by(audit.c.id.desc())
    .limit(bindparam("most"))
)
_decode_subjects = msgspec.json.Decoder(tuple[str, ...]).decode


def add_audit(line: AuditLine) -> Script[None]:
    org = yield from org_key(line.org_id)
    yield _audit_step(org, line)


def audit_lines(org_id: UUID, limit: int) -> Script[list[AuditLine]]:
    rows = yield ask(_AUDIT, org=org_id, most=limit)
    return [_audit_line(org_id, row) for row in rows]


def _audit_step(org: int, line: AuditLine) -> Step:
    return ask(
        _ADD_AUDIT,
        org_id=org,
        at=line.at,
        actor=line.actor,
        action=line.action,
        subjects=msgspec.json.encode(line.subjects).decode(),
        result=line.result,
        reason=line.reason,
    )


def _audit_line(org_id: UUID, row: Row) -> AuditLine:
    at, actor, action, subjects, result, reason = row
    return AuditLine(
        at=at,
        org_id=org_id,
        actor=actor,
        action=action,
        subjects=_decode_subjects(subjects),
        result=result,
        reason=reason,
    )
