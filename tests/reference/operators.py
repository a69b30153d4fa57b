"""What operators and consumers do: acts on deliveries, acknowledgements, and the audit of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import Conflict
from doorstep.model.action import Action, ActionKind, ActionResult, AuditEntry
from doorstep.model.attempt import Category, Code
from doorstep.model.claim import Move, Moved, StatusChange
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState
from doorstep.model.event import EventStatus
from doorstep.stores import notes
from tests.reference.tables import DeliveryRow, Tables


class OperatorVerbs:
    """Changes that people ask for. Each act is audited once, with its result."""

    _tables: Tables

    async def act(self, act: Action) -> tuple[ActionResult, Moved]:
        self._tables.check_org(act.org_id)
        done: list[DeliveryRow] = []
        moves: list[Move] = []
        refused: dict[UUID, DeliveryState | None] = {}
        for delivery_id in dict.fromkeys(act.delivery_ids):
            row = self._find(act.org_id, delivery_id)
            if row is not None and row.delivery.state in act.possible_in:
                moves += self._do(act, row)
                done.append(row)
            else:
                refused[delivery_id] = row.delivery.state if row else None
        result = ActionResult(tuple(row.delivery.delivery_id for row in done), refused)
        self._tables.audit.append(notes.act_line(act, result))
        for wake in self._tables.wakes:
            wake()
        return result, Moved(tuple(moves), tuple(self._tables.update_statuses(done, act.at)))

    async def bury(
        self,
        endpoint_id: UUID,
        code: str,
        reason: str,
        now: Instant,
        limit: int,
        created_before: Instant | None = None,
    ) -> Moved:
        rows = [
            row
            for row in map(self._tables.by_key.__getitem__, self._tables.waiting[endpoint_id].all())
            if created_before is None or row.delivery.created_at < created_before
        ][:limit]
        return bury_all(self._tables, rows, code, reason, now)

    async def acknowledge(self, org_id: UUID, event_id: UUID, now: Instant) -> StatusChange:
        row = self._tables.event(org_id, event_id)
        if row.accepted_deliveries:
            raise Conflict(f"event {event_id} is delivered to endpoints; only events of the inbox are acknowledged")
        old = row.status
        if old is EventStatus.RECEIVED:
            self._tables.set_status(row, EventStatus.DELIVERED, now)
            self._tables.acknowledged[event_id] = now
        return StatusChange(event_id, org_id, row.event.correlation_id, old, EventStatus.DELIVERED)

    async def delete_event(self, org_id: UUID, event_id: UUID, actor: str, now: Instant, reason: str = "") -> Moved:
        event = self._tables.event(org_id, event_id)
        if event.states[DeliveryState.IN_PROGRESS]:
            raise Conflict(notes.in_progress(event_id))
        waiting = [row for row in event.deliveries if row.delivery.state is DeliveryState.PENDING]
        letters = [row for row in event.deliveries if row.delivery.state in DEAD_STATES and not row.delivery.deleted]
        moves = [
            move for row in waiting for move in self._tables.change(row, now, notes.deleted(actor), **_cancelled(now))
        ]
        for row in letters:
            self._tables.change(row, now, "", **_deleted(now))
        changes = self._tables.update_statuses(waiting, now)
        self._tables.erase(event, now)
        self._tables.audit.append(notes.deletion(org_id, event_id, actor, now, len(waiting), len(letters), reason))
        return Moved(tuple(moves), tuple(changes))

    async def add_audit(self, line: AuditEntry) -> None:
        self._tables.check_org(line.org_id)
        self._tables.audit.append(line)

    def _find(self, org_id: UUID, delivery_id: UUID) -> DeliveryRow | None:
        row = self._tables.deliveries.get(delivery_id)
        if row is None or row.delivery.org_id != org_id or row.delivery.deleted:
            return None
        return row

    def _do(self, act: Action, row: DeliveryRow) -> list[Move]:
        if act.kind is ActionKind.RETRY and row.delivery.state is not DeliveryState.PENDING:
            row.round_base = row.delivery.attempt
            row.own_payload = row.own_payload if act.payload is None else act.payload
        return self._tables.change(row, act.at, notes.acted(act), **_effect(act, row.delivery))


def bury_all(tables: Tables, rows: Sequence[DeliveryRow], code: str, reason: str, now: Instant) -> Moved:
    """Waiting deliveries become dead letters without another try."""
    dead, note = _dead(code, reason, now), notes.buried(code)
    moves = [move for row in rows for move in tables.change(row, now, note, **dead)]
    return Moved(tuple(moves), tuple(tables.update_statuses(rows, now)))


def _effect(act: Action, delivery: Delivery) -> dict[str, Any]:
    """The fields that an act changes in a delivery that allows it."""
    match act.kind:
        case ActionKind.RETRY if delivery.blocked:
            return {"forced": act.forced}
        case ActionKind.RETRY if delivery.state is DeliveryState.PENDING:
            assert delivery.due_at is not None, "only the blocked have no time"
            return {"due_at": min(delivery.due_at, act.at), "forced": act.forced}
        case ActionKind.RETRY:
            revived: dict[str, Any] = {"state": DeliveryState.PENDING, "due_at": act.revive_at, "settled_at": None}
            edited = delivery.edited or act.payload is not None
            return revived | {"retry_attempts": 0, "forced": act.forced, "edited": edited}
        case ActionKind.SKIP:
            return _dead(Code.SKIPPED, notes.acted(act), act.at)
        case ActionKind.RESOLVE:
            return {"state": DeliveryState.RESOLVED, "settled_at": act.at}
        case ActionKind.DELETE:
            return _deleted(act.at)
        case ActionKind.CANCEL:
            return _cancelled(act.at)


def _cancelled(at: Instant) -> dict[str, Any]:
    return {"state": DeliveryState.CANCELLED, "due_at": None, "blocked": False, "forced": False, "settled_at": at}


def _deleted(at: Instant) -> dict[str, Any]:
    return {"deleted": True, "settled_at": at}


def _dead(code: str, reason: str, at: Instant) -> dict[str, Any]:
    """The fields of a waiting delivery that becomes a dead letter without another try."""
    cause = {"category": Category.PERMANENT, "code": code, "reason": reason}
    return {"state": DeliveryState.DEAD, "due_at": None, "blocked": False, "forced": False, "settled_at": at} | cause
