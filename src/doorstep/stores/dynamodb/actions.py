"""What operators, consumers and services do to deliveries and events.

An action on many deliveries is one transaction per event, so that of a large action some deliveries may be done and
others not when a process dies. Its audit entry is written last, with the result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import Action, ActionKind, ActionResult
from doorstep.model.attempt import Category, Code
from doorstep.model.claim import Move, Moved, StatusChange
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState
from doorstep.model.event import EventStatus, EventView
from doorstep.model.inbox import InboxAnswer, InboxAnswered, InboxResult, inbox_result
from doorstep.stores import notes
from doorstep.stores.dynamodb.client import key_from
from doorstep.stores.dynamodb.finds import FindVerbs
from doorstep.stores.dynamodb.rows import DeliveryRow, EventRow, event_from, instant
from doorstep.stores.dynamodb.tables import DUE_INDEX, SHARDS
from doorstep.stores.dynamodb.unit import EventUnit, gather, in_parts
from doorstep.stores.limits import INBOX_BYTES_MAX, count_within
from doorstep.stores.store import Topic

_AT_ONCE = 24
"""How many deliveries of one event one transaction changes."""
_INBOX_CANDIDATES = 3
"""How many inbox events are looked at in each partition for one that is leased: an index is late, and other consumers
lease at the same time."""


class ActionVerbs(FindVerbs):
    async def act(self, action: Action) -> tuple[ActionResult, Moved]:
        await self._check_org(action.org_id)
        name = await self._actor_name(action.org_id, action.actor)
        ids = list(dict.fromkeys(action.delivery_ids))
        events = await self._find_events(ids)
        of_event: defaultdict[UUID, list[UUID]] = defaultdict(list)
        for delivery_id in ids:
            if delivery_id in events:
                of_event[events[delivery_id]].append(delivery_id)
        acted = await gather(
            [
                self._act_on(action, name, event_id, part)
                for event_id, own in of_event.items()
                for part in in_parts(own, _AT_ONCE)
            ]
        )
        found: dict[UUID, Literal[True] | DeliveryState | None] = {
            delivery_id: done for one in acted for delivery_id, done in one.results.items()
        }
        done = tuple(one for one in ids if found.get(one) is True)
        refused = {one: state for one in ids if not isinstance(state := found.get(one), bool)}
        result = ActionResult(done, refused)
        edits = {edit.delivery_id: edit for one in acted for edit in one.edits}
        ordered = [edits[one] for one in ids if one in edits]
        await self._add_audit(notes.action_entry(action, result, ordered))
        self._wake(Topic.DELIVERIES)
        moves = {move.delivery_id: move for one in acted for move in one.moves}
        return result, Moved(
            tuple(moves[one] for one in ids if one in moves), tuple(one.change for one in acted if one.change)
        )

    async def _act_on(self, action: Action, name: str, event_id: UUID, delivery_ids: Sequence[UUID]) -> _Acted:
        def change(unit: EventUnit) -> _Acted:
            acted = _Acted()
            used = 0
            for delivery_id in delivery_ids:
                row = unit.rows.get(delivery_id)
                if row is None or row.delivery.org_id != action.org_id or row.delivery.deleted:
                    acted.results[delivery_id] = None
                elif row.delivery.state not in action.possible_in:
                    acted.results[delivery_id] = row.delivery.state
                else:
                    if action.payload is not None:
                        acted.edits.append(notes.Edit(delivery_id, row.payload(unit.event), action.payload))
                    _apply(unit, action, name, row)
                    used = max(used, unit.rows[delivery_id].delivery.retry_attempts)
                    acted.results[delivery_id] = True
            acted.change = unit.update_status(action.at, used) if unit.ended or unit.moves else None
            acted.moves = unit.moves
            return acted

        done = await self._units.change(event_id, delivery_ids, change)
        return _Acted() if done is None else done[0]

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
            for row in await self._open_rows(endpoint_id, limit)
            if created_before is None or row.delivery.created_at < created_before
        ]
        return await self._dead_letter_all(rows[:limit], code, reason, now)

    async def _dead_letter_all(self, rows: Sequence[DeliveryRow], code: str, reason: str, now: Instant) -> Moved:
        """Turn waiting deliveries into dead letters without another attempt."""
        of_event: defaultdict[UUID, list[UUID]] = defaultdict(list)
        for row in rows:
            of_event[row.delivery.event_id].append(row.delivery.delivery_id)

        def change_of(ids: Sequence[UUID]) -> Callable[[EventUnit], StatusChange | None]:
            def change(unit: EventUnit) -> StatusChange | None:
                used = 0
                for delivery_id in ids:
                    row = unit.rows.get(delivery_id)
                    if row is not None and row.delivery.state is DeliveryState.PENDING:
                        _dead_letter(unit, row, code, reason, now, notes.dead(code))
                        used = max(used, row.delivery.retry_attempts)
                return unit.update_status(now, used)

            return change

        parts = [(event_id, part) for event_id, own in of_event.items() for part in in_parts(own, _AT_ONCE)]
        done = await gather([self._units.change(event_id, part, change_of(part)) for event_id, part in parts])
        moves = {move.delivery_id: move for one in done if one is not None for move in one[1].moves}
        ordered = [moves[row.delivery.delivery_id] for row in rows if row.delivery.delivery_id in moves]
        return Moved(tuple(ordered), tuple(one[0] for one in done if one is not None and one[0] is not None))

    async def delete_event(self, org_id: UUID, event_id: UUID, actor: str, now: Instant, reason: str = "") -> Moved:
        found = await self._event_with_deliveries(event_id)
        if found is None or found[0].event.org_id != org_id or found[0].deleted:
            raise NotFound(f"no event {event_id}")
        ids = [row.delivery.delivery_id for row in found[1]]
        if len(ids) > _AT_ONCE * 2:
            raise Conflict(
                f"on DynamoDB an event with up to {_AT_ONCE * 2} deliveries can be deleted, and event {event_id} has"
                f" {len(ids)}; wait for its retention"
            )
        note = notes.deleted(await self._actor_name(org_id, actor))

        def change(unit: EventUnit) -> tuple[int, int, StatusChange | None]:
            rows = list(unit.rows.values())
            if unit.event.deleted:
                raise NotFound(f"no event {event_id}")
            if any(row.delivery.state is DeliveryState.IN_PROGRESS for row in rows):
                raise Conflict(notes.in_progress(event_id))
            waiting = [row for row in rows if row.delivery.state is DeliveryState.PENDING]
            letters = [row for row in rows if row.delivery.state in DEAD_STATES and not row.delivery.deleted]
            for row in rows:
                fields: dict[str, Any] = {"own_payload": None, "edited": False}
                if row in waiting:
                    fields |= _cancelled(now)
                elif row in letters:
                    fields |= _deleted(now)
                unit.change(row.delivery.delivery_id, now, note, **fields)
            used = max((row.delivery.retry_attempts for row in waiting), default=0)
            status = unit.update_status(now, used) if waiting else None
            erased = replace(unit.event.event, payload=b"", metadata=b"{}")
            acknowledged_at = unit.event.acknowledged_at
            if not unit.event.deliveries and acknowledged_at is None:
                acknowledged_at = now
            unit.change_event(event=erased, deleted=True, acknowledged_at=acknowledged_at)
            return len(waiting), len(letters), status

        done = await self._units.change(event_id, ids, change)
        if done is None:
            raise NotFound(f"no event {event_id}")
        (cancelled, dead_letters, status), unit = done
        await self._add_audit(notes.deletion_entry(org_id, event_id, actor, now, cancelled, dead_letters, reason))
        return Moved(tuple(unit.moves), () if status is None else (status,))

    # -- the inbox -----------------------------------------------------------------------------------------

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
        await self._check_org(org_id)

        def leasable(row: EventRow) -> bool:
            return (
                row.in_inbox
                and row.leasable_at <= now
                and (not event_types or row.event.event_type in event_types)
                and user_id in (None, row.event.user_id)
            )

        candidates = await self._inbox_candidates(org_id, leasable, limit * _INBOX_CANDIDATES, now)
        rows = candidates[:limit]
        rows = rows[: count_within((len(row.event.payload) for row in rows), INBOX_BYTES_MAX)]

        def lease(unit: EventUnit) -> EventRow | None:
            if not leasable(unit.event):
                return None
            unit.change_event(visible_at=until, leased_by=holder, receive_count=unit.event.receive_count + 1)
            return unit.event

        done = await gather([self._units.change(row.event.event_id, (), lease, EventUnit(row, [])) for row in rows])
        leased = [one[0] for one in done if one is not None and one[0] is not None]
        return list(await self._views(EventView, [(row, []) for row in leased]))

    async def _inbox_candidates(
        self, org_id: UUID, leasable: Callable[[EventRow], bool], limit: int, now: Instant
    ) -> list[EventRow]:
        """Events that may be leased, in the order in which they became available."""
        before = instant(now + 1)
        found = await gather(
            [
                self._aws.query(f"inbox#{org_id}#{shard}", index=DUE_INDEX, before=before, limit=max(limit, 100))
                for shard in range(SHARDS)
            ]
        )
        items = sorted((item for items in found for item in items), key=lambda item: item[DUE_INDEX.sort_key]["S"])
        rows = map(event_from, (await self._aws.get_many(map(key_from, items))).values()) if items else ()
        return sorted((row for row in rows if leasable(row)), key=lambda row: (row.leasable_at, row.event.event_id))

    async def answer_inbox(
        self, org_id: UUID, answers: Sequence[InboxAnswer], actor: str, now: Instant
    ) -> InboxAnswered:
        await self._check_org(org_id)
        done = await gather([self._answer(org_id, answer, now) for answer in answers])
        results = {answer.event_id: result for answer, (result, _) in zip(answers, done, strict=True)}
        answered = InboxAnswered(results, tuple(change for _, change in done if change is not None))
        await self._add_audit(*notes.inbox_entries(org_id, answered, actor, now))
        return answered

    async def _answer(self, org_id: UUID, answer: InboxAnswer, now: Instant) -> tuple[InboxResult, StatusChange | None]:
        def change(unit: EventUnit) -> tuple[InboxResult, StatusChange | None]:
            row = unit.event
            if row.event.org_id != org_id or row.deleted:
                return InboxResult.NOT_FOUND, None
            result = inbox_result(answer, row.status, row.deliveries, row.receive_count, row.event.user_id)
            if result is InboxResult.NACKED:
                unit.change_event(visible_at=answer.visible_at, leased_by=None)
            elif result is InboxResult.ACKNOWLEDGED and row.status is EventStatus.RECEIVED:
                unit.set_status(EventStatus.DELIVERED, now)
                unit.change_event(acknowledged_at=now)
                event = row.event
                moved = (EventStatus.RECEIVED, EventStatus.DELIVERED)
                return result, StatusChange(event.event_id, org_id, event.correlation_id, *moved, user_id=event.user_id)
            return result, None

        done = await self._units.change(answer.event_id, (), change)
        return (InboxResult.NOT_FOUND, None) if done is None else done[0]


class _Acted:
    """What became of the deliveries of one event: True if the action was applied, else the state."""

    def __init__(self) -> None:
        self.results: dict[UUID, Literal[True] | DeliveryState | None] = {}
        self.edits: list[notes.Edit] = []
        self.moves: list[Move] = []
        self.change: StatusChange | None = None


def _apply(unit: EventUnit, action: Action, name: str, row: DeliveryRow) -> None:
    fields: dict[str, Any] = {}
    if action.kind is ActionKind.RETRY and row.delivery.state is not DeliveryState.PENDING:
        fields = {"round_base": row.delivery.attempt, "uncounted": 0, "on_recovery": False}
        if action.payload is not None:
            fields["own_payload"] = action.payload
    note = notes.acted(action, name)
    if action.kind is ActionKind.SKIP:
        _dead_letter(unit, row, Code.SKIPPED, note, action.at, note)
    else:
        unit.change(row.delivery.delivery_id, action.at, note, **fields, **_effect(action, row.delivery))


def _dead_letter(unit: EventUnit, row: DeliveryRow, code: str, reason: str, at: Instant, note: str) -> None:
    """A skip is not a failure: a delivery that failed before keeps its error."""
    error = {"category": Category.PERMANENT, "code": code, "reason": reason}
    if code == Code.SKIPPED and row.delivery.code is not None:
        error = {}
    unit.change(row.delivery.delivery_id, at, note, **_dead(at), **error)


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
