"""The rows of the reference model, and the only method that changes a delivery."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import Alert, AlertConfig, Incident
from doorstep.model.attempt import Attempt, Code
from doorstep.model.bulk import Bulk
from doorstep.model.claim import Move, StatusChange, WorkerEntry
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
from doorstep.model.endpoint import Circuit, CircuitChange, Endpoint
from doorstep.model.entity import EntityChange, PipelineDeclaration
from doorstep.model.event import EVENT_TRANSITIONS, Event, EventStatus, Receipt, status_of
from doorstep.model.org import ApiKey, KeyCheck, Org
from doorstep.model.outbox import OutboxMessage
from doorstep.stores import notes
from doorstep.stores.incidents import dead_letter_incident
from doorstep.stores.store import Task, Topic
from doorstep.stores.tally import Tally
from tests.reference.rows import Counters, Documents

Group = tuple[UUID, str]
"""An ordering group: an endpoint and an ordering key."""


class EventRow:
    """An event, its status, and how many of its deliveries are open, dead, done or cancelled."""

    __slots__ = (
        *("accepted_deliveries", "deleted", "deliveries", "event", "failed_at", "search_keys", "states", "status"),
        *("leased_by", "receive_count", "visible_at"),
    )

    def __init__(self, event: Event, search_keys: Iterable[int] = ()) -> None:
        self.event = event
        self.search_keys = frozenset(search_keys)
        self.status = EventStatus.RECEIVED
        self.states: Counter[DeliveryState] = Counter()
        self.deliveries: list[DeliveryRow] = []
        self.accepted_deliveries = 0
        self.failed_at: Instant | None = None
        self.deleted = False
        self.receive_count = 0
        self.leased_by: str | None = None
        self.visible_at: Instant | None = None

    @property
    def leasable_at(self) -> Instant:
        """When an event of the inbox may be leased."""
        times = (self.visible_at, self.event.deliver_at, self.event.created_at)
        return next(at for at in times if at is not None)

    def is_leasable(self, now: Instant) -> bool:
        in_inbox = self.status is EventStatus.RECEIVED and not self.accepted_deliveries and not self.deleted
        return in_inbox and self.leasable_at <= now

    def status_now(self) -> EventStatus:
        """The status derived from the deliveries. An event that has left `received` never returns to it."""
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
    """A delivery as readers see it, plus the fields that only the store uses."""

    __slots__ = (
        "attempts",
        "delivery",
        "event",
        "history",
        "key",
        "on_recovery",
        "own_payload",
        "round_base",
        "token",
        "uncounted",
    )

    def __init__(self, key: int, delivery: Delivery, event: EventRow) -> None:
        self.key = key
        """Increases with each delivery, so it gives the order of creation."""
        self.delivery = delivery
        self.event = event
        self.token = 0
        """The token of the newest claim; it never decreases."""
        self.round_base = 0
        """The number of the attempt after which the current round of retries began."""
        self.uncounted = 0
        """How many attempts of the round used up no retry."""
        self.on_recovery = False
        """Whether the delivery waits for a recovery."""
        self.own_payload: bytes | None = None
        """The payload that an operator gave this delivery."""
        self.attempts: list[Attempt] = []
        self.history = [HistoryEntry(delivery.created_at, None, delivery.state, 0, notes.ACCEPTED)]

    @property
    def payload(self) -> bytes:
        """The bytes to send."""
        return self.event.event.payload if self.own_payload is None else self.own_payload

    @property
    def group(self) -> Group | None:
        """The ordering group, if the event has an ordering key."""
        key = self.event.event.ordering_key
        return None if key is None else (self.delivery.endpoint_id, key)

    def retries_used(self, attempt: int, retries_max: int) -> int:
        """How many retries an attempt with this number stands for; the first attempt of a round is no retry."""
        return min(max(attempt - 1 - self.round_base - self.uncounted, 0), retries_max)


class BulkItem:
    """A delivery that a bulk operation retried, with the result once it is known."""

    __slots__ = ("attempt", "succeeded")

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.succeeded: bool | None = None


EntityName = tuple[UUID, str, str]
"""Organization, pipeline and entity id."""


class Tables:
    """Everything that is stored. Rows are found by id."""

    def __init__(self) -> None:
        self.orgs: Documents[UUID, Org] = Documents()
        self.keys: Documents[UUID, ApiKey] = Documents()
        self.endpoints: Documents[UUID, Endpoint] = Documents()
        self.alert_configs: Documents[UUID, AlertConfig] = Documents()
        self.alerts: Documents[UUID, Alert] = Documents()
        self.incidents: Documents[int, Incident] = Documents()
        self.bulks: Documents[UUID, Bulk] = Documents()
        self.bulk_items: defaultdict[UUID, dict[UUID, BulkItem]] = defaultdict(dict)
        self.workers: Documents[str, WorkerEntry] = Documents()
        self.key_checks: Documents[None, KeyCheck] = Documents()
        self.pipelines: Documents[tuple[UUID, str], PipelineDeclaration] = Documents()
        self.entities: Documents[EntityName, bytes] = Documents()
        """Stored as encoded bytes, so that a caller who changes an entity's `data` changes only its own copy."""
        self.entity_history: defaultdict[EntityName, list[EntityChange]] = defaultdict(list)
        self.audit: Documents[int, AuditEntry] = Documents()
        self.outbox: dict[UUID, OutboxMessage] = {}
        self.circuits: dict[UUID, Circuit] = {}
        self.circuit_history: defaultdict[UUID, list[CircuitChange]] = defaultdict(list)
        self.changes = 0
        """The number of changes to organizations and their endpoints."""
        self.routing: defaultdict[UUID, int] = defaultdict(int)
        """The number of the last change of each organization."""
        self.changed: dict[UUID, int] = {}
        """The number of the last change of each endpoint."""
        self.rate_next_at: dict[UUID, Instant] = {}
        self.idempotency: dict[tuple[UUID, str], tuple[Instant, bytes, Receipt]] = {}
        self.locks: dict[Task, tuple[str, Instant]] = {}
        self.wakes: dict[Topic, list[Callable[[], None]]] = {topic: [] for topic in Topic}
        self.counters = Counters()

        self.events: dict[UUID, EventRow] = {}
        self.deliveries: dict[UUID, DeliveryRow] = {}
        self.open: dict[UUID, DeliveryRow] = {}
        """The deliveries that are pending or in progress."""
        self.acknowledged: dict[UUID, Instant] = {}
        self._last_key = 0

    def mark_changed(self, org_id: UUID, endpoint_id: UUID | None = None) -> None:
        """Number a change to an organization or one of its endpoints."""
        self.changes += 1
        self.routing[org_id] = self.changes
        if endpoint_id is not None:
            self.changed[endpoint_id] = self.changes

    def add(self, delivery: Delivery, event: EventRow) -> None:
        self._last_key += 1
        row = DeliveryRow(self._last_key, delivery, event)
        if row.group is not None and self.first_of(row.group) is not None:
            row.delivery = replace(delivery, due_at=None, blocked=True)
        self.deliveries[delivery.delivery_id] = self.open[delivery.delivery_id] = row
        event.deliveries.append(row)
        event.accepted_deliveries += 1
        event.states[delivery.state] += 1

    def by_due(self, state: DeliveryState, endpoint_id: UUID | None = None) -> list[DeliveryRow]:
        """Open deliveries by due time, then by creation, with blocked ones last; of one endpoint or of all."""
        rows = (row for row in self.open.values() if endpoint_id in (None, row.delivery.endpoint_id))
        found = [row for row in rows if row.delivery.state is state]
        return sorted(found, key=lambda row: (row.delivery.due_at is None, row.delivery.due_at or 0, row.key))

    def first_of(self, group: Group) -> DeliveryRow | None:
        """The first open delivery of an ordering group, which is the only one that may be attempted."""
        return min((row for row in self.open.values() if row.group == group), key=lambda row: row.key, default=None)

    def add_incident(self, incident: Incident | None) -> None:
        if incident is not None:
            key = self.incidents.next_number()
            self.incidents[key] = replace(incident, key=key)

    def add_audit(self, *entries: AuditEntry | None) -> None:
        for entry in entries:
            if entry is not None:
                self.audit[self.audit.next_number()] = entry

    def wake(self, topic: Topic) -> None:
        for wake in self.wakes[topic]:
            wake()

    def change(
        self, row: DeliveryRow, at: Instant, note: str, *, skipped: str | None = None, **fields: Any
    ) -> list[Move]:
        """Check, apply and count a change of a delivery, and write its history. Every change goes through here. A delivery
        that was `skipped`, with this reason, keeps its error; only its incident tells of the skip.

        Returns the move, or nothing if the state stayed the same.
        """
        old, new = row.delivery, replace(row.delivery, **fields)
        if new.state is not old.state:
            check_transition(old.state, new.state)
            new = _with_cause(new)
            row.history.append(HistoryEntry(at, old.state, new.state, new.attempt, note))
            row.event.states[old.state] -= 1
            row.event.states[new.state] += 1
        row.delivery = new
        if new.state in OPEN_STATES:
            self.open[new.delivery_id] = row
        else:
            self.open.pop(new.delivery_id, None)
        self._count_move(old, new, at)
        if new.state is DeliveryState.DEAD and old.state is not new.state:
            code, reason = (new.code or "", new.reason or "") if skipped is None else (Code.SKIPPED, skipped)
            self.add_incident(dead_letter_incident(new, code, reason, new.cause, at))
        if row.group is not None and old.state in OPEN_STATES:
            self._unblock_first(row.group, at)
        return [_move(row, old.state)] if new.state is not old.state else []

    def actor_name(self, org_id: UUID, actor: str) -> str:
        """The name of the key with this prefix, if there is exactly one name; otherwise the actor."""
        names = {key.name for key in self.keys if key.org_id == org_id and key.prefix == actor}
        return names.pop() if len(names) == 1 else actor

    def update_statuses(self, rows: Iterable[DeliveryRow], at: Instant) -> list[StatusChange]:
        """Update the events of changed deliveries. Returns one StatusChange for each event whose status changed."""
        retries: dict[UUID, tuple[EventRow, int]] = {}
        for row in rows:
            _, highest = retries.get(row.event.event.event_id, (row.event, 0))
            retries[row.event.event.event_id] = (row.event, max(highest, row.delivery.retry_attempts))
        changes = (self._update_status(event, used, at) for event, used in retries.values())
        return [change for change in changes if change]

    def set_status(self, event: EventRow, status: EventStatus, at: Instant) -> None:
        tally = Tally()
        tally.status(event.event.org_id, event.status, status, called_off=not event.dead_count)
        self.counters.add(tally, at)
        event.set_status(status, at)

    def remove(self, row: DeliveryRow, at: Instant) -> None:
        """Remove a delivery with its attempts and history; also its event if it has no other delivery. A dead letter no
        longer counts as one."""
        tally = Tally()
        if row.delivery.state in DEAD_STATES and not row.delivery.deleted:
            tally.moved((row.delivery.org_id, row.delivery.endpoint_id), row.delivery.state, None)
        self.counters.add(tally, at)
        del self.deliveries[row.delivery.delivery_id]
        row.event.deliveries.remove(row)
        if not row.event.deliveries:
            self.remove_event(row.event.event.event_id, at)

    def remove_event(self, event_id: UUID, at: Instant) -> None:
        self._count_leaving(self.events.pop(event_id), at)

    def event(self, org_id: UUID, event_id: UUID) -> EventRow:
        """An event of this organization. Raises NotFound if it does not exist or was deleted."""
        row = self.events.get(event_id)
        if row is None or row.event.org_id != org_id or row.deleted:
            raise NotFound(f"no event {event_id}")
        return row

    def erase(self, event: EventRow, at: Instant) -> None:
        """Erase the data that the sender provided; keep the rows."""
        self._count_leaving(event, at)
        event.deleted = True
        event.event = replace(event.event, payload=b"", metadata=b"{}")
        event.search_keys = frozenset()
        for row in event.deliveries:
            row.own_payload = None
            self.change(row, at, "", edited=False)
        if not event.accepted_deliveries:
            self.acknowledged.setdefault(event.event.event_id, at)

    def check_org(self, org_id: UUID) -> None:
        if org_id not in self.orgs:
            raise NotFound(f"no organization {org_id}")

    def _unblock_first(self, group: Group, at: Instant) -> None:
        """Make the first delivery of a group due: now, or at its event's `deliver_at` if that is later."""
        row = self.first_of(group)
        if row is not None and row.delivery.blocked:
            deliver_at = 0 if row.delivery.forced else row.event.event.deliver_at or 0
            self.change(row, at, "", blocked=False, due_at=max(at, deliver_at))

    def _update_status(self, event: EventRow, retry_attempts: int, at: Instant) -> StatusChange | None:
        old, new = event.status, event.status_now()
        if new is old:
            return None
        self.set_status(event, new, at)
        kept = event.event
        return StatusChange(
            kept.event_id, kept.org_id, kept.correlation_id, old, new, retry_attempts, user_id=kept.user_id
        )

    def _count_move(self, old: Delivery, new: Delivery, at: Instant) -> None:
        """Count a move, except one that ends an attempt: `settle` counts that together with its result."""
        tally = Tally()
        if new.deleted and not old.deleted:
            tally.moved((new.org_id, new.endpoint_id), old.state, None)
        elif new.state is not old.state and old.state is not DeliveryState.IN_PROGRESS:
            tally.moved((new.org_id, new.endpoint_id), old.state, new.state)
        self.counters.add(tally, at)

    def _count_leaving(self, event: EventRow, at: Instant) -> None:
        """Count that an event leaves its status. A deleted event was already counted when it was deleted."""
        if not event.deleted:
            tally = Tally()
            tally.status(event.event.org_id, event.status, None)
            self.counters.add(tally, at)


def _with_cause(delivery: Delivery) -> Delivery:
    """Give every dead letter a cause; clear the cause when a new round begins."""
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
