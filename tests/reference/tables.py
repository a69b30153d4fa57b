"""The rows of the reference model, and the one gate through which every delivery changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.alert import Alert, AlertConfig, Incident
from doorstep.model.attempt import Attempt
from doorstep.model.bulk import Bulk
from doorstep.model.circuit import Circuit, CircuitChange
from doorstep.model.claim import Move, StatusChange
from doorstep.model.delivery import (
    DEAD_STATES,
    DONE_STATES,
    OPEN_STATES,
    Delivery,
    DeliveryState,
    HistoryLine,
    IllegalTransition,
    cause_of,
    check_transition,
)
from doorstep.model.endpoint import Endpoint
from doorstep.model.entity import EntityChange
from doorstep.model.event import EVENT_TRANSITIONS, Event, EventStatus, Receipt, status_of
from doorstep.model.org import ApiKey, Org
from doorstep.model.outbox import OutboxMessage
from doorstep.model.worker import WorkerEntry
from doorstep.stores import notes
from doorstep.stores.incidents import death_of
from doorstep.stores.tally import Tally
from tests.reference.audit_log import AuditLog
from tests.reference.due_index import DueIndex
from tests.reference.lines import Line, Lines
from tests.reference.ticks import Ticks

NEVER: Instant = 2**62
"""Where the blocked are found among those that wait: after all that have a time."""


class EventRow:
    """An event, its status, and how many of its deliveries are open, dead, done or cancelled."""

    __slots__ = ("accepted_deliveries", "deleted", "deliveries", "event", "failed_at", "states", "status")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.status = EventStatus.RECEIVED
        self.states: Counter[DeliveryState] = Counter()
        self.deliveries: list[DeliveryRow] = []
        self.accepted_deliveries = 0
        self.failed_at: Instant | None = None
        self.deleted = False

    def status_now(self) -> EventStatus:
        """What the deliveries add up to. An event that has left `received` never returns there."""
        return status_of(
            open_count=self._count(OPEN_STATES),
            dead_count=self.dead_count,
            done_count=self._count(DONE_STATES),
            picked_up=self.status is not EventStatus.RECEIVED,
        )

    @property
    def dead_count(self) -> int:
        return self._count(DEAD_STATES)

    def set_status(self, status: EventStatus, at: Instant) -> None:
        if (self.status, status) not in EVENT_TRANSITIONS:
            raise IllegalTransition(f"an event cannot go from {self.status} to {status}")
        self.status = status
        self.failed_at = at if status is EventStatus.FAILED else None

    def _count(self, states: Iterable[DeliveryState]) -> int:
        return sum(self.states[state] for state in states)


class DeliveryRow:
    """A delivery as readers see it, and what only the store knows of it."""

    __slots__ = ("attempts", "delivery", "event", "history", "key", "own_payload", "round_base", "token")

    def __init__(self, key: int, delivery: Delivery, event: EventRow) -> None:
        self.key = key
        """Grows with every delivery: the order of creation."""
        self.delivery = delivery
        self.event = event
        self.token = 0
        """That of the newest claim; it never goes back."""
        self.round_base = 0
        """The attempt after which the present round of retries began."""
        self.own_payload: bytes | None = None
        """What an operator edited it to be."""
        self.attempts: list[Attempt] = []
        self.history = [HistoryLine(delivery.created_at, None, delivery.state, 0, notes.ACCEPTED)]

    @property
    def payload(self) -> bytes:
        """What goes out."""
        return self.event.event.payload if self.own_payload is None else self.own_payload

    @property
    def line(self) -> Line | None:
        """That in which it waits for its turn, if its event has an ordering key."""
        key = self.event.event.ordering_key
        return None if key is None else (self.delivery.endpoint_id, key)

    def retries_used(self, attempt: int, retries_max: int) -> int:
        """How many retries an attempt of this number means: none for the first of a round."""
        return min(max(attempt - 1 - self.round_base, 0), retries_max)


class BulkItem:
    """A delivery that a bulk operation retried, and how that ended once it is known."""

    __slots__ = ("attempt", "succeeded")

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.succeeded: bool | None = None


class BulkRow:
    __slots__ = ("bulk", "items", "key")

    def __init__(self, key: int, bulk: Bulk) -> None:
        self.key = key
        """Grows with every operation: the order of creation."""
        self.bulk = bulk
        self.items: dict[UUID, BulkItem] = {}


class EntityRow:
    __slots__ = ("document", "history", "key")

    def __init__(self, key: int) -> None:
        self.key = key
        """Grows with every entity: the order of creation."""
        self.document = b""
        self.history: list[EntityChange] = []


class AlertRow:
    __slots__ = ("alert", "key")

    def __init__(self, key: int, alert: Alert) -> None:
        self.key = key
        """Grows with every alert: the order of creation."""
        self.alert = alert


class Tables:
    """Everything that is kept. Rows are found by id; each index holds the keys of the rows it is for."""

    def __init__(self) -> None:
        self.orgs: dict[UUID, Org] = {}
        self.keys: dict[UUID, ApiKey] = {}
        self.endpoints: dict[UUID, Endpoint] = {}
        self.routing_version = 0
        self.rate_next_at: dict[UUID, Instant] = {}
        self.circuits: dict[UUID, Circuit] = {}
        self.circuit_history: defaultdict[UUID, list[CircuitChange]] = defaultdict(list)
        self.events: dict[UUID, EventRow] = {}
        self.deliveries: dict[UUID, DeliveryRow] = {}
        self.idempotency: dict[tuple[UUID, str], tuple[Instant, bytes, Receipt]] = {}
        self.audit = AuditLog()
        self.bulks: dict[UUID, BulkRow] = {}
        self.entities: dict[tuple[UUID, str, str], EntityRow] = {}
        self.declared_pipelines: dict[tuple[UUID, str], Instant] = {}
        self.wakes: list[Callable[[], None]] = []
        self.outbox: dict[UUID, OutboxMessage] = {}
        self.workers: dict[str, WorkerEntry] = {}
        self.held: dict[str, tuple[str, Instant]] = {}
        self.ticks = Ticks()
        self.incidents: dict[int, Incident] = {}
        self.alerts: dict[UUID, AlertRow] = {}
        self.arrangements: dict[UUID, AlertConfig] = {}
        self.posted_wakes: list[Callable[[], None]] = []

        self.by_key: dict[int, DeliveryRow] = {}
        self.waiting: defaultdict[UUID, DueIndex] = defaultdict(DueIndex)
        self.forced = DueIndex()
        self.leased = DueIndex()
        self.in_flight: Counter[UUID] = Counter()
        self.lines = Lines()
        self.dead = DueIndex()
        self.removable = DueIndex()
        self.acknowledged: dict[UUID, Instant] = {}
        self._last_key = 0
        self._last_bulk_key = 0
        self._last_incident_key = 0
        self._last_alert_key = 0

    def add(self, delivery: Delivery, event: EventRow) -> None:
        self._last_key += 1
        row = DeliveryRow(self._last_key, delivery, event)
        if row.line is not None and self.lines.first(row.line) is not None:
            row.delivery = replace(delivery, due_at=None, blocked=True)
        self.deliveries[delivery.delivery_id] = self.by_key[row.key] = row
        event.deliveries.append(row)
        event.accepted_deliveries += 1
        event.states[delivery.state] += 1
        self._index(row)

    def add_bulk(self, bulk: Bulk) -> None:
        self._last_bulk_key += 1
        self.bulks[bulk.bulk_id] = BulkRow(self._last_bulk_key, bulk)

    def put_alert(self, alert: Alert) -> None:
        if alert.alert_id in self.alerts:
            self.alerts[alert.alert_id].alert = alert
        else:
            self._last_alert_key += 1
            self.alerts[alert.alert_id] = AlertRow(self._last_alert_key, alert)

    def add_incident(self, incident: Incident | None) -> None:
        if incident is not None:
            self._last_incident_key += 1
            self.incidents[self._last_incident_key] = replace(incident, key=self._last_incident_key)

    def change(self, row: DeliveryRow, at: Instant, note: str, **fields: Any) -> list[Move]:
        """The gate: every change of a delivery is checked, counted, written to its history and indexed here.

        Returns the move that it was; none if the state stayed.
        """
        old, new = row.delivery, replace(row.delivery, **fields)
        if new.state is not old.state:
            check_transition(old.state, new.state)
            new = _with_cause(new)
            row.history.append(HistoryLine(at, old.state, new.state, new.attempt, note))
            row.event.states[old.state] -= 1
            row.event.states[new.state] += 1
        self._unindex(row)
        row.delivery = new
        self._index(row)
        self._count_move(old, new, at)
        if new.state is DeliveryState.DEAD and old.state is not new.state:
            self.add_incident(death_of(new, new.code or "", new.reason or "", new.cause, at))
        if row.line is not None and old.state in OPEN_STATES:
            self._unblock_first(row.line, at)
        return [_move(row, old.state)] if new.state is not old.state else []

    def update_statuses(self, rows: Iterable[DeliveryRow], at: Instant) -> list[StatusChange]:
        """Bring the events of changed deliveries up to date; one StatusChange for each that has another status."""
        retries: dict[UUID, tuple[EventRow, int]] = {}
        for row in rows:
            _, highest = retries.get(row.event.event.event_id, (row.event, 0))
            retries[row.event.event.event_id] = (row.event, max(highest, row.delivery.retry_attempts))
        changes = (self._update_status(event, used, at) for event, used in retries.values())
        return [change for change in changes if change]

    def set_status(self, event: EventRow, status: EventStatus, at: Instant) -> None:
        tally = Tally()
        tally.status(event.event.org_id, event.status, status, called_off=not event.dead_count)
        self.ticks.add(tally, at)
        event.set_status(status, at)

    def remove(self, row: DeliveryRow, at: Instant) -> None:
        """Forget a delivery, its attempts and its history, and its event when nothing is left of that."""
        self._unindex(row)
        del self.deliveries[row.delivery.delivery_id], self.by_key[row.key]
        row.event.deliveries.remove(row)
        if not row.event.deliveries:
            self.remove_event(row.event.event.event_id, at)

    def remove_event(self, event_id: UUID, at: Instant) -> None:
        self._count_leaving(self.events.pop(event_id), at)

    def event(self, org_id: UUID, event_id: UUID) -> EventRow:
        """An event of this organization that was not deleted; NotFound otherwise."""
        row = self.events.get(event_id)
        if row is None or row.event.org_id != org_id or row.deleted:
            raise NotFound(f"no event {event_id}")
        return row

    def erase(self, event: EventRow, at: Instant) -> None:
        """Forget what the sender gave, but not that there was something."""
        self._count_leaving(event, at)
        event.deleted = True
        event.event = replace(event.event, payload=b"", metadata=b"{}")
        for row in event.deliveries:
            row.own_payload = None
            self.change(row, at, "", edited=False)
        if not event.accepted_deliveries:
            self.acknowledged.setdefault(event.event.event_id, at)

    def check_org(self, org_id: UUID) -> None:
        if org_id not in self.orgs:
            raise NotFound(f"no organization {org_id}")

    def _unblock_first(self, line: Line, at: Instant) -> None:
        """Whoever is the first of a line now may go: at once, but not before its own time, if it has one."""
        key = self.lines.first(line)
        if key is not None and self.by_key[key].delivery.blocked:
            row = self.by_key[key]
            deliver_at = 0 if row.delivery.forced else row.event.event.deliver_at or 0
            self.change(row, at, "", blocked=False, due_at=max(at, deliver_at))

    def _update_status(self, event: EventRow, retry_attempts: int, at: Instant) -> StatusChange | None:
        old, new = event.status, event.status_now()
        if new is old:
            return None
        self.set_status(event, new, at)
        return StatusChange(
            event.event.event_id, event.event.org_id, event.event.correlation_id, old, new, retry_attempts
        )

    def _count_move(self, old: Delivery, new: Delivery, at: Instant) -> None:
        """Those that a try ends are counted with what it came to: see `settle`."""
        tally = Tally()
        if new.deleted and not old.deleted:
            tally.moved((new.org_id, new.endpoint_id), old.state, None)
        elif new.state is not old.state and old.state is not DeliveryState.IN_PROGRESS:
            tally.moved((new.org_id, new.endpoint_id), old.state, new.state)
        self.ticks.add(tally, at)

    def _count_leaving(self, event: EventRow, at: Instant) -> None:
        """An event that was deleted has left already when it is cleaned away."""
        if not event.deleted:
            tally = Tally()
            tally.status(event.event.org_id, event.status, None)
            self.ticks.add(tally, at)

    def _index(self, row: DeliveryRow) -> None:
        for index, at in self._places(row.delivery):
            index.add(at, row.key)
        if row.line is not None and row.delivery.state in OPEN_STATES:
            self.lines.add(row.line, row.key)
        if row.delivery.state is DeliveryState.IN_PROGRESS:
            self.in_flight[row.delivery.endpoint_id] += 1

    def _unindex(self, row: DeliveryRow) -> None:
        for index, at in self._places(row.delivery):
            index.remove(at, row.key)
        if row.line is not None and row.delivery.state in OPEN_STATES:
            self.lines.remove(row.line, row.key)
        if row.delivery.state is DeliveryState.IN_PROGRESS:
            self.in_flight[row.delivery.endpoint_id] -= 1

    def _places(self, delivery: Delivery) -> Iterable[tuple[DueIndex, Instant]]:
        """The indexes that a delivery belongs to in its present state, each with the instant it is sorted by."""
        if delivery.blocked:
            return ((self.waiting[delivery.endpoint_id], NEVER),)
        if delivery.due_at is not None:
            if delivery.state is DeliveryState.IN_PROGRESS:
                return ((self.leased, delivery.due_at),)
            waiting = (self.waiting[delivery.endpoint_id], delivery.due_at)
            return (waiting, (self.forced, delivery.due_at)) if delivery.forced else (waiting,)
        assert delivery.settled_at is not None, "a delivery is due or settled, never neither"
        if delivery.state is DeliveryState.DEAD and not delivery.deleted:
            return ((self.dead, delivery.settled_at),)
        if delivery.state is DeliveryState.ARCHIVED and not delivery.deleted:
            return ()
        return ((self.removable, delivery.settled_at),)


def _with_cause(delivery: Delivery) -> Delivery:
    """Every death has a cause, and a new round begins without one."""
    match delivery.state:
        case DeliveryState.DEAD:
            cause = cause_of(delivery.endpoint_id, delivery.code or "", delivery.reason or "")
            return replace(delivery, cause=cause)
        case DeliveryState.PENDING:
            return replace(delivery, cause=None)
    return delivery


def _move(row: DeliveryRow, old_state: DeliveryState) -> Move:
    delivery = row.delivery
    return Move(
        delivery_id=delivery.delivery_id,
        event_id=delivery.event_id,
        endpoint_id=delivery.endpoint_id,
        org_id=delivery.org_id,
        correlation_id=row.event.event.correlation_id,
        old_state=old_state,
        new_state=delivery.state,
        attempt=delivery.attempt,
    )
