"""Actions of operators and consumers on deliveries and events, one by one or in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import Conflict
from doorstep.model.action import Action, ActionKind, ActionResult, AuditEntry
from doorstep.model.attempt import Category, Code
from doorstep.model.bulk import IN_FLIGHT_MAX, Bulk, BulkKind, BulkStep
from doorstep.model.claim import Move, Moved, StatusChange
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState
from doorstep.model.event import EventStatus, EventView
from doorstep.model.inbox import InboxAnswer, InboxAnswered, InboxResult, inbox_result
from doorstep.stores import notes
from doorstep.stores.limits import INBOX_BYTES_MAX, count_within
from doorstep.stores.store import Topic
from tests.reference.finds import FindVerbs
from tests.reference.projections import view_of
from tests.reference.tables import BulkItem, DeliveryRow, Tables


class ActionVerbs(FindVerbs):
    """Every action writes one audit entry, which contains its result."""

    async def act(self, action: Action) -> tuple[ActionResult, Moved]:
        self._tables.check_org(action.org_id)
        done: list[DeliveryRow] = []
        moves: list[Move] = []
        refused: dict[UUID, DeliveryState | None] = {}
        edits: list[notes.Edit] = []
        for delivery_id in dict.fromkeys(action.delivery_ids):
            row = self._find_row(action.org_id, delivery_id)
            if row is not None and row.delivery.state in action.possible_in:
                if action.payload is not None:
                    before = row.event.event.payload if row.own_payload is None else row.own_payload
                    edits.append(notes.Edit(delivery_id, before, action.payload))
                moves += self._apply(action, row)
                done.append(row)
            else:
                refused[delivery_id] = row.delivery.state if row else None
        result = ActionResult(tuple(row.delivery.delivery_id for row in done), refused)
        self._tables.add_audit(notes.action_entry(action, result, edits))
        self._tables.wake(Topic.DELIVERIES)
        return result, Moved(tuple(moves), tuple(self._tables.update_statuses(done, action.at)))

    async def step_bulk(
        self, bulk: Bulk, expected_version: int, action: Action | None = None, entry: AuditEntry | None = None
    ) -> BulkStep | None:
        items = self.bulk_items(bulk.org_id, bulk.bulk_id)
        if self._tables.bulks[bulk.bulk_id].version != expected_version:
            return None
        succeeded, failed = self._collect(items)
        taken, refused, moved = 0, 0, Moved()
        if action is not None:
            result, moved = await self.act(action)
            taken, refused = len(result.done), len(result.refused)
            if bulk.kind is BulkKind.RETRY:
                taken = self._remember(items, result.done)
        stored = bulk.after(
            taken=taken, refused=refused, succeeded=succeeded, failed=failed, version=expected_version + 1
        )
        self._tables.bulks[bulk.bulk_id] = stored
        self._tables.add_audit(entry)
        return BulkStep(stored, moved)

    async def dead_letter_waiting(
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
            for row in self._tables.by_due(DeliveryState.PENDING, endpoint_id)
            if created_before is None or row.delivery.created_at < created_before
        ][:limit]
        return dead_letter_all(self._tables, rows, code, reason, now)

    async def lease_inbox(
        self,
        org_id: UUID,
        event_types: Sequence[str],
        limit: int,
        holder: str,
        now: Instant,
        until: Instant,
        user_id: str | None = None,
    ) -> list[EventView]:
        self._tables.check_org(org_id)
        waiting = [
            row
            for row in self._tables.events.values()
            if row.event.org_id == org_id
            and row.is_leasable(now)
            and (not event_types or row.event.event_type in event_types)
            and user_id in (None, row.event.user_id)
        ]
        rows = sorted(waiting, key=lambda row: (row.leasable_at, row.event.event_id))[:limit]
        rows = rows[: count_within((len(row.event.payload) for row in rows), INBOX_BYTES_MAX)]
        for row in rows:
            row.visible_at, row.leased_by, row.receive_count = until, holder, row.receive_count + 1
        return [view_of(row, self._tables) for row in rows]

    async def answer_inbox(
        self, org_id: UUID, answers: Sequence[InboxAnswer], actor: str, now: Instant
    ) -> InboxAnswered:
        self._tables.check_org(org_id)
        results: dict[UUID, InboxResult] = {}
        changes: list[StatusChange] = []
        for answer in answers:
            row = self._tables.events.get(answer.event_id)
            if row is None or row.event.org_id != org_id or row.deleted:
                results[answer.event_id] = InboxResult.NOT_FOUND
                continue
            result = inbox_result(answer, row.status, row.accepted_deliveries, row.receive_count, row.event.user_id)
            results[answer.event_id] = result
            if result is InboxResult.NACKED:
                row.visible_at, row.leased_by = answer.visible_at, None
            elif result is InboxResult.ACKNOWLEDGED and row.status is EventStatus.RECEIVED:
                self._tables.set_status(row, EventStatus.DELIVERED, now)
                self._tables.acknowledged[answer.event_id] = now
                change = EventStatus.RECEIVED, EventStatus.DELIVERED
                event = row.event
                changes.append(
                    StatusChange(answer.event_id, org_id, event.correlation_id, *change, user_id=event.user_id)
                )
        answered = InboxAnswered(results, tuple(changes))
        self._tables.add_audit(*notes.inbox_entries(org_id, answered, actor, now))
        return answered

    async def delete_event(self, org_id: UUID, event_id: UUID, actor: str, now: Instant, reason: str = "") -> Moved:
        event = self._tables.event(org_id, event_id)
        if event.states[DeliveryState.IN_PROGRESS]:
            raise Conflict(notes.in_progress(event_id))
        waiting = [row for row in event.deliveries if row.delivery.state is DeliveryState.PENDING]
        letters = [row for row in event.deliveries if row.delivery.state in DEAD_STATES and not row.delivery.deleted]
        note = notes.deleted(self._tables.actor_name(org_id, actor))
        moves = [move for row in waiting for move in self._tables.change(row, now, note, **_cancelled(now))]
        for row in letters:
            self._tables.change(row, now, "", **_deleted(now))
        changes = self._tables.update_statuses(waiting, now)
        self._tables.erase(event, now)
        self._tables.add_audit(notes.deletion_entry(org_id, event_id, actor, now, len(waiting), len(letters), reason))
        return Moved(tuple(moves), tuple(changes))

    def _find_row(self, org_id: UUID, delivery_id: UUID) -> DeliveryRow | None:
        row = self._tables.deliveries.get(delivery_id)
        if row is None or row.delivery.org_id != org_id or row.delivery.deleted:
            return None
        return row

    def _apply(self, action: Action, row: DeliveryRow) -> list[Move]:
        if action.kind is ActionKind.RETRY and row.delivery.state is not DeliveryState.PENDING:
            row.round_base, row.uncounted, row.on_recovery = row.delivery.attempt, 0, False
            row.own_payload = row.own_payload if action.payload is None else action.payload
        note = notes.acted(action, self._tables.actor_name(action.org_id, action.actor))
        if action.kind is ActionKind.SKIP:
            return _dead_letter(self._tables, row, Code.SKIPPED, note, action.at, note)
        return self._tables.change(row, action.at, note, **_effect(action, row.delivery))

    def _remember(self, items: dict[UUID, BulkItem], done: tuple[UUID, ...]) -> int:
        """Remember the deliveries that were retried; return how many of them are new."""
        new = [delivery_id for delivery_id in done if delivery_id not in items]
        items |= {one: BulkItem(self._tables.deliveries[one].delivery.attempt) for one in new}
        return len(new)

    def _collect(self, items: dict[UUID, BulkItem]) -> tuple[int, int]:
        """Record the result of every item whose retry has ended; return how many succeeded and how many failed."""
        unknown = ((uid, item) for uid, item in items.items() if item.succeeded is None)
        ended = {True: 0, False: 0}
        for delivery_id, item in islice(unknown, IN_FLIGHT_MAX):
            item.succeeded = self.bulk_result(delivery_id, item)
            if item.succeeded is not None:
                ended[item.succeeded] += 1
        return ended[True], ended[False]


def dead_letter_all(tables: Tables, rows: Sequence[DeliveryRow], code: str, reason: str, now: Instant) -> Moved:
    """Turn waiting deliveries into dead letters without another attempt."""
    moves = [move for row in rows for move in _dead_letter(tables, row, code, reason, now, notes.dead(code))]
    return Moved(tuple(moves), tuple(tables.update_statuses(rows, now)))


def _dead_letter(tables: Tables, row: DeliveryRow, code: str, reason: str, at: Instant, note: str) -> list[Move]:
    """A skip is not a failure: a delivery that failed before keeps its error."""
    if code == Code.SKIPPED and row.delivery.code is not None:
        return tables.change(row, at, note, skipped=reason, **_dead(at))
    error = {"category": Category.PERMANENT, "code": code, "reason": reason}
    return tables.change(row, at, note, **_dead(at), **error)


def _effect(action: Action, delivery: Delivery) -> dict[str, Any]:
    """The fields that an action changes in a delivery whose state allows the action."""
    match action.kind:
        case ActionKind.RETRY if delivery.blocked:
            return {"forced": action.forced}
        case ActionKind.RETRY if delivery.state is DeliveryState.PENDING:
            return {"due_at": min(delivery.due_at or action.at, action.at), "forced": action.forced}
        case ActionKind.RETRY:
            revived: dict[str, Any] = {"state": DeliveryState.PENDING, "due_at": action.revive_at, "settled_at": None}
            edited = delivery.edited or action.payload is not None
            return revived | {"retry_attempts": 0, "forced": action.forced, "edited": edited}
        case ActionKind.RESOLVE:
            return {"state": DeliveryState.RESOLVED, "settled_at": action.at}
        case ActionKind.DELETE:
            return _deleted(action.at)
        case ActionKind.CANCEL:
            return _cancelled(action.at)
        case ActionKind.SKIP:
            raise AssertionError("a skip makes a dead letter, see _dead_letter")


def _cancelled(at: Instant) -> dict[str, Any]:
    return {"state": DeliveryState.CANCELLED, "due_at": None, "blocked": False, "forced": False, "settled_at": at}


def _deleted(at: Instant) -> dict[str, Any]:
    return {"deleted": True, "settled_at": at}


def _dead(at: Instant) -> dict[str, Any]:
    """The new fields of a waiting delivery that becomes a dead letter without another attempt."""
    return {"state": DeliveryState.DEAD, "due_at": None, "blocked": False, "forced": False, "settled_at": at}
