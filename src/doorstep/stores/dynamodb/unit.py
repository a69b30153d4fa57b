"""A unit of work: one event, some of its deliveries, and everything that is written together with them.

Changes are computed in memory and written in one transaction, each row on the condition that its version is still the
one that was read. If another writer was faster, the transaction is refused as a whole, the rows are read again and the
change is computed again (`EventUnits.change`). This is the only way in which a delivery or the status of an event changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from random import random
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import StoreUnavailable
from doorstep.model.claim import Move, StatusChange
from doorstep.model.delivery import (
    DEAD_STATES,
    DONE_STATES,
    OPEN_STATES,
    Delivery,
    DeliveryState,
    HistoryEntry,
    IllegalTransition,
    cause_of,
    check_transition,
)
from doorstep.model.event import EVENT_TRANSITIONS, EventStatus, status_of
from doorstep.stores.dynamodb.client import Aws, ConditionFailed
from doorstep.stores.dynamodb.groups import move
from doorstep.stores.dynamodb.rows import (
    HISTORY_KEPT,
    DeliveryRow,
    EventRow,
    delivery_from,
    delivery_item,
    delivery_key,
    event_from,
    event_item,
    event_key,
)
from doorstep.stores.dynamodb.writes import Write, put_versioned

T = TypeVar("T")

RACES_MAX = 40
"""How often a change is computed again. Each lost race means that another writer succeeded, and 40 deliveries of one
event are settled one after another before this is reached."""
_RACE_PAUSE_SECONDS = 0.01


class EventUnit:
    """The rows as read, and as they will be written."""

    def __init__(self, event: EventRow, deliveries: Sequence[DeliveryRow]) -> None:
        self._event_read = event
        self._read = {row.delivery.delivery_id: row for row in deliveries}
        self.event = event
        self.rows = dict(self._read)
        self.moves: list[Move] = []
        self.ended: list[tuple[UUID, UUID]] = []
        """Deliveries that are no longer open, as (endpoint, delivery)."""
        self.reopened: list[tuple[UUID, UUID]] = []
        """Deliveries that are open again."""
        self.at: Instant = 0
        """The time of the last change."""
        self._extra: list[Write] = []

    def change(self, delivery_id: UUID, at: Instant, note: str, **fields: Any) -> None:
        """Check and apply a change of a delivery, and write its history. Fields of the row have their names here too."""
        row = self.rows[delivery_id]
        own = {name: fields.pop(name) for name in set(fields) & _ROW_FIELDS}
        old, new = row.delivery, replace(row.delivery, **fields)
        if new.state is not old.state:
            check_transition(old.state, new.state)
            new = _with_cause(new)
            own["history"] = _kept((*row.history, HistoryEntry(at, old.state, new.state, new.attempt, note)))
            self._count(old, new)
            self.moves.append(self._move(old, new))
        if old.state in OPEN_STATES and new.state not in OPEN_STATES:
            self.ended.append((new.endpoint_id, delivery_id))
        if old.state not in OPEN_STATES and new.state in OPEN_STATES:
            self.reopened.append((new.endpoint_id, delivery_id))
        self.at = at
        self.rows[delivery_id] = replace(row, delivery=new, **own)
        if self.event.deliveries == 1:
            self._show(new)

    def change_event(self, **fields: Any) -> None:
        self.event = replace(self.event, **fields)

    def set_status(self, status: EventStatus, at: Instant) -> None:
        old = self.event.status
        if (old, status) not in EVENT_TRANSITIONS:
            raise IllegalTransition(f"an event cannot go from {old} to {status}")
        self.change_event(status=status, failed_at=at if status is EventStatus.FAILED else None)

    def update_status(self, at: Instant, retry_attempts: int = 0) -> StatusChange | None:
        """Derive the status of the event from its deliveries. Returns the change, if any."""
        event = self.event
        old = event.status
        new = status_of(
            open_count=event.open_count,
            dead_count=event.dead_count,
            done_count=event.done_count,
            picked_up=old is not EventStatus.RECEIVED,
        )
        if new is old:
            return None
        self.set_status(new, at)
        kept = event.event
        return StatusChange(
            kept.event_id, kept.org_id, kept.correlation_id, old, new, retry_attempts, user_id=kept.user_id
        )

    def add(self, write: Write) -> None:
        """Write something else in the same transaction."""
        self._extra.append(write)

    def remove(self, delivery_id: UUID) -> None:
        del self.rows[delivery_id]

    def writes(self) -> list[Write]:
        """The writes of this unit. The versions of the changed rows are increased."""
        found: list[Write] = []
        if self.event is not self._event_read:
            self.event = replace(self.event, version=self._event_read.version + 1)
            found.append(put_versioned(event_item(self.event), self._event_read.version))
        for delivery_id, read in self._read.items():
            row = self.rows.get(delivery_id)
            if row is not None and row is not read:
                row = self.rows[delivery_id] = replace(row, version=read.version + 1)
                found.append(put_versioned(delivery_item(row), read.version))
        return found + self._extra

    @property
    def changed(self) -> list[DeliveryRow]:
        """The deliveries that are written."""
        return [row for one, row in self.rows.items() if row is not self._read[one]]

    def _show(self, only: Delivery) -> None:
        """Keep the figures of an event with one delivery in its own item, where lists and people find them."""
        last_retry_at = only.last_attempt_at if only.attempt > 1 else None
        if (only.retry_attempts, last_retry_at) != (self.event.retry_attempts, self.event.last_retry_at):
            self.change_event(retry_attempts=only.retry_attempts, last_retry_at=last_retry_at)

    def _count(self, old: Delivery, new: Delivery) -> None:
        event = self.event
        self.event = (
            replace(
                event,
                open_count=event.open_count + (new.state in OPEN_STATES) - (old.state in OPEN_STATES),
                dead_count=event.dead_count + (new.state in DEAD_STATES) - (old.state in DEAD_STATES),
                done_count=event.done_count + (new.state in DONE_STATES) - (old.state in DONE_STATES),
            )
            if _class_of(old.state) != _class_of(new.state)
            else event
        )

    def _move(self, old: Delivery, new: Delivery) -> Move:
        return Move(
            delivery_id=new.delivery_id,
            event_id=new.event_id,
            endpoint_id=new.endpoint_id,
            org_id=new.org_id,
            correlation_id=self.event.event.correlation_id,
            old_state=old.state,
            new_state=new.state,
            attempt=new.attempt,
        )


class EventUnits:
    """Reads units and writes them."""

    def __init__(self, aws: Aws, announce: Callable[[Sequence[DeliveryRow], Instant], None]) -> None:
        """`announce` is called with the deliveries that were written, and the time of the write."""
        self._aws = aws
        self._announce = announce

    async def read(self, event_id: UUID, delivery_ids: Collection[UUID]) -> EventUnit | None:
        """The event with these deliveries, as far as they exist; None if the event does not exist."""
        keys = [event_key(event_id), *(delivery_key(event_id, one) for one in delivery_ids)]
        found = await self._aws.get_many(keys)
        event = found.get(keys[0])
        if event is None:
            return None
        return EventUnit(event_from(event), [delivery_from(found[key]) for key in keys[1:] if key in found])

    async def write(self, unit: EventUnit) -> bool:
        """Returns False, and writes nothing, if a row has changed since it was read."""
        writes = unit.writes()
        if not writes:
            return True
        try:
            await self._aws.transact(writes)
        except ConditionFailed:
            return False
        self._announce(unit.changed, unit.at)
        return True

    async def change(
        self,
        event_id: UUID,
        delivery_ids: Collection[UUID],
        change: Callable[[EventUnit], T],
        unit: EventUnit | None = None,
    ) -> tuple[T, EventUnit] | None:
        """Apply a change to the newest state and write it. `unit` is used for the first try, without a read. None if
        the event does not exist."""
        for number in range(RACES_MAX):
            unit = unit or await self.read(event_id, delivery_ids)
            if unit is None:
                return None
            result = change(unit)
            if (unit.ended or unit.reopened) and unit.event.event.ordering_key is not None:
                for write in await move(self._aws, unit.event, unit.ended, unit.reopened, unit.at):
                    unit.add(write)
            if await self.write(unit):
                return result, unit
            unit = None
            await asyncio.sleep(_RACE_PAUSE_SECONDS * random() * min(number, 10))
        raise StoreUnavailable(f"event {event_id} keeps being changed by others; try again")


def in_parts(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _class_of(state: DeliveryState) -> tuple[bool, bool, bool]:
    return state in OPEN_STATES, state in DEAD_STATES, state in DONE_STATES


def _with_cause(delivery: Delivery) -> Delivery:
    """Give every dead letter a cause; clear the cause when a new round begins."""
    match delivery.state:
        case DeliveryState.DEAD:
            cause = cause_of(delivery.endpoint_id, delivery.code or "", delivery.reason or "")
            return replace(delivery, cause=cause)
        case DeliveryState.PENDING:
            return replace(delivery, cause=None)
    return delivery


def _kept(history: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    if len(history) <= HISTORY_KEPT:
        return history
    return (history[0], *history[1 - HISTORY_KEPT :])


_ROW_FIELDS = frozenset(DeliveryRow.__struct_fields__) - {"delivery", "version", "history"}


async def gather(calls: Sequence[Awaitable[T]]) -> list[T]:
    """The results in order. All calls end before the first error is raised, so that none goes on unseen."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
