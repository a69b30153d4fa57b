"""The `Store` protocol: every operation that Doorstep needs from a database. Read this module first.

Its methods form four groups. The engine methods implement the delivery guarantees; the others handle documents, lists
and figures. (The tests and sql/verbs.py call all of these methods "verbs".) These rules apply to all methods:

- Each call is one transaction: it stores everything or nothing.
- Time is an argument. A store never reads a clock and makes no decisions. It writes its caller's decisions if the
  current state allows them.
- Every store implements every method. Stores differ only in their declared `Features`. A method that belongs to a part
  that a store lacks raises NotOffered.
- A store that cannot write or cannot be reached raises StoreUnavailable, and recovers without being reopened.
- An id that does not exist and an id that belongs to another organization raise the same NotFound. For an unknown
  organization, every method that writes raises NotFound, and every list is empty.
- `org_id=None` in a read means every organization; only the engine's own reads use it.
- Bytes are stored unchanged. `accept` raises InvalidInput for text with a NUL or a lone surrogate. `settle` replaces
  these characters, because its text comes from receivers and an odd error message must not prevent a result from being
  written (stores/limits.py). History notes and audit results have the same wording in every store (stores/notes.py).
- Open deliveries (pending or in progress) to the same endpoint form an ordering group if their events share an ordering
  key. If a delivery is accepted while another delivery in its group is open, it is blocked: it has no due time. Every
  method that ends or removes an open delivery unblocks the next delivery in the group. That delivery becomes due
  immediately, or at its event's `deliver_at` if that is later and the delivery is not forced. A delivery is blocked at
  most once, so newer deliveries may overtake a retried dead letter.
- Every method that changes something also updates the counters of the minute that contains its `now`, in the same
  transaction (model/rollup.py). It adds an incident for each change that may cause an alert (model/alert.py): a dead
  letter, an opened or closed circuit, an endpoint that was disabled, enabled or deleted, or a changed rule or silence.

One contract suite (tests/contract) runs on every store and compares the store with a reference model (tests/reference).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, Protocol, TypeVar
from uuid import UUID

from msgspec.structs import astuple

from doorstep.clock import SECOND, Instant
from doorstep.model.action import Action, ActionResult, AuditEntry
from doorstep.model.alert import AlertConfig, AlertWrite
from doorstep.model.bulk import Bulk, BulkStep
from doorstep.model.claim import Claim, Lane, Lease, Moved, Quota, Settled, Settlement, WorkerEntry
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint
from doorstep.model.entity import Entity, EntityChange, Phase, PipelineDeclaration
from doorstep.model.event import EventView, Receipt, Submission
from doorstep.model.inbox import InboxAnswer, InboxAnswered
from doorstep.model.listing import BoundedQuery, Count, DeadLetterFilter, Page, PagedQuery, RetryQueueFilter
from doorstep.model.org import ApiKey, KeyCheck, Org, Routing
from doorstep.model.outbox import OutboxMessage
from doorstep.model.record import Record
from doorstep.model.rollup import FIGURES, Figures, Point, Span
from doorstep.stores.limits import COUNT_MAX
from doorstep.stores.program_sql import NO_DEFINITIONS, SqlDefinitions

T = TypeVar("T")
EndpointKey = TypeVar("EndpointKey", bound=UUID | None)


class Part(StrEnum):
    """A part of Doorstep that a store may lack. The values are plural nouns, as people see them."""

    STATISTICS = "statistics"
    ALERTS = "alerts"
    OUTBOX = "outbox messages"
    PIPELINES = "pipelines"
    BULK = "bulk operations"
    BATCHES = "batches"
    ATTEMPTS = "lists of all attempts"
    SEARCH = "searchable fields"


class Features(Record, frozen=True):
    """The differences between stores."""

    many_machines: bool
    """Processes on several machines can share the store. They all use the store's time instead of their own clocks."""
    notices_posts: bool
    """The store calls the `Topic.OUTBOX` wake-up whenever another program commits, also without `announce_posts`."""
    notices_writes: bool = False
    """The store calls the wake-ups of all topics whenever another process has written anything, even a claim."""
    announces_work: bool = False
    """The store calls the wake-ups of a topic when another process has added work to it. So an idle process polls only
    as a precaution: a process may die between its write and its wake-up."""
    lacks: frozenset[Part] = frozenset()
    """The parts that the store does not offer. Methods that belong to such a part raise NotOffered."""


class Topic(StrEnum):
    """The kind of work that a wake-up announces."""

    DELIVERIES = "deliveries"
    OUTBOX = "outbox"
    INCIDENTS = "incidents"
    """Also announces other changes that services look for at most once a second, such as bulk operations. A store that
    announces work announces these after writes of the own process, too."""


LOCK_MAX: Instant = 120 * SECOND
"""A lock of a task that ends later than this from now was acquired while the clock was ahead (`Store.shift_waits`). A
longer lock is also taken for one: its holder may lose it whenever a process starts, which does no harm."""


class Task(StrEnum):
    """Background work that only one process at a time should do. The values name locks in databases, so they must not
    change."""

    OUTBOX = "outbox"
    ROLLUPS = "roller"
    ALERTS = "watch"
    METRICS = "meter"


Document = Org | ApiKey | KeyCheck | Endpoint | AlertConfig | Bulk | WorkerEntry | PipelineDeclaration
"""The records that `Store.write` puts and deletes."""


class Put(Record, frozen=True, kw_only=True):
    """Store a document if its stored version is still the version on which the change is based."""

    document: Document
    expected_version: int | None = None
    """0: the document must not exist yet. N: the document must be at version N, and is stored as version N + 1. None is
    for documents without a version: the document is created or replaced."""
    limit: int | None = None
    """The maximum number of documents of this kind in an organization. Creating one more raises Conflict. Deleted
    endpoints do not count. Expired alert settings are removed to make room."""


class Delete(Record, frozen=True, kw_only=True):
    """Remove a document, regardless of its version. To delete an endpoint, do not use this; `Put` it with the state
    `deleted`."""

    document: AlertConfig | WorkerEntry


class Retention(Record, frozen=True, kw_only=True):
    """The records that `clean` may remove. If a field is 0, all records that it applies to are kept. Expired
    idempotency keys are always removed."""

    settled_before: Instant = 0
    """Remove records from before this instant: deliveries that were delivered, resolved, cancelled or deleted,
    with their attempts and history; events that have no deliveries left; acknowledged inbox events; circuit changes,
    except the newest of each endpoint; bulk operations, once their items have been removed."""
    dead_before: Instant = 0
    """Remove dead letters, archived or not, that became dead before this instant, with their attempts and history, and
    the events that have no deliveries left."""
    inbox_before: Instant = 0
    """Remove inbox events that were accepted before this instant and never acknowledged."""
    audit_before: Instant = 0
    alerts_before: Instant = 0
    """Remove alerts that ended before this instant and are not scheduled for review."""
    silences_before: Instant = 0
    """Remove silences that ended before this instant."""
    workers_before: Instant = 0
    """Remove workers whose last heartbeat was before this instant."""


class Cleaned(Record, frozen=True):
    """How many rows one call of `clean` removed."""

    deliveries: int = 0
    """Deliveries that are not dead letters."""
    dead_letters: int = 0
    attempts: int = 0
    events: int = 0
    idempotency_keys: int = 0
    inbox_events: int = 0
    """Inbox events that were never acknowledged. `events` does not include them."""
    circuit_changes: int = 0
    audit_entries: int = 0
    bulk_items: int = 0
    """Records of the deliveries that bulk operations retried."""
    bulks: int = 0
    alerts: int = 0
    """Alerts and silences."""
    workers: int = 0

    @property
    def total(self) -> int:
        return sum(astuple(self))


class Store(Protocol):
    features: Features
    aggregate_max: ClassVar[int]
    """The number of rows that `aggregate` can move or drop in one call without delaying other work."""

    # -- life cycle ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Raises ConfigError if the schema is not current (see `migrate`)."""

    async def close(self) -> None: ...

    async def migrate(self, definitions: SqlDefinitions = NO_DEFINITIONS) -> None:
        """Upgrade the schema to the current version, and run the definitions of the program that have changed. Does
        nothing if both are current."""

    async def time(self) -> Instant:
        """The store's own time. All processes that share the store use this time."""

    def on_wakeup(self, topic: Topic, wake: Callable[[], None]) -> None:
        """Register `wake`, which the store calls in the event loop when another process may have added work. The calls
        are only hints: they may be lost or repeated. Wake-ups of `Topic.INCIDENTS` also follow writes of this process
        that may have added an incident."""

    def wake_others(self, topic: Topic) -> None:
        """Wake the other processes that use `on_wakeup`, unless they detect changes automatically. Call this in the
        event loop."""

    async def any_waiting(self, topic: Topic) -> bool:
        """Whether the outbox (`Topic.OUTBOX`) or the list of incidents (`Topic.INCIDENTS`) has an entry. This must be
        very cheap, because it is called constantly."""

    async def announce_posts(self, wanted: bool) -> bool:
        """Ask for a wake-up of `Topic.OUTBOX` after every commit of a message, whichever program made it, or end that.
        Returns whether every message that is committed from now on causes one. If not, a transaction that began before
        may still commit messages: ask again later. The request ends without notice when the store loses its connection;
        repeat it, which costs nothing."""

    async def acquire_lock(self, task: Task, holder: str, now: Instant, until: Instant) -> bool:
        """Acquire or renew the lock of a task. Returns False if another holder has it. The lock ends when the holder
        calls `release_lock`, or at `until` (in the store's time). It may end earlier if the process dies. The lock only
        avoids duplicate work; two holders at the same time do no harm."""

    async def release_lock(self, task: Task, holder: str) -> None:
        """Release the lock of a task. Does nothing if another holder has the lock."""

    # -- 1. engine: from acceptance to settlement ----------------------------------------------------------

    async def accept(
        self, submissions: Sequence[Submission], routing: Mapping[UUID, int], now: Instant, lease: Lease | None = None
    ) -> list[Receipt]:
        """Store events, their deliveries and idempotency keys durably. Returns one receipt per submission, in order.

        With a lease, deliveries of new events that are marked `claimable` are also claimed, as `claim` would claim them:
        the attempt is counted, the delivery gets its first token, the history its entry, and the event is queued. The
        claims are in the receipts. A delivery with an ordering key is not claimed, nor is one whose endpoint has a
        circuit that is not closed or that counts failures. Without a lease, the mark means nothing.

        `routing` has the routing version of each organization that sends events. Raises StaleRouting and stores nothing
        if one of these organizations or its endpoints have changed since that version was read. An idempotency key is
        valid for 24 hours from `now` within its organization; two submissions in one call may share a key. REPEATED and
        CONFLICT receipts describe the first event with the key, even if that event has been removed. If an event with
        the same id is already stored, nothing is added, and the receipt is ACCEPTED and marked `known`. So a caller
        that did not receive the receipts may repeat the call. A delivery has the same `created_at` as its event.
        """

    async def routing(self, known: Mapping[UUID, int]) -> list[Routing]:
        """The routing of these organizations, in any order. For each of them, `known` has the version that the caller
        knows. If that is still the stored version, the organization is left out. If it is an earlier one, only the
        endpoints that have changed since are returned, including deleted ones. If it is -1 or a later one (the database
        was replaced by an older copy), all endpoints that are not deleted are returned. An organization that does not
        exist is left out; one that was deleted is not."""

    async def due_lanes(self, now: Instant, later_max: int | None = None) -> list[Lane]:
        """One lane for each endpoint with waiting deliveries, whether or not they are due yet. Lanes are sorted by the
        due time of their first delivery.

        Blocked deliveries do not count. Endpoints are included regardless of their state. A lane includes the stored
        circuit if there is one. The cost is one index seek per endpoint, regardless of the number of waiting
        deliveries.

        With `later_max`, a store may leave out what a worker cannot attempt yet: the lanes of paused and disabled
        endpoints, and those without a due delivery. Of the latter, it returns at least the `later_max` that are due
        first, and all that have deliveries that wait for a recovery.
        """

    async def claim(
        self,
        quotas: Sequence[Quota],
        now: Instant,
        lease_until: Instant,
        worker: str,
        forced_max: int = 0,
        unserved: Sequence[UUID] = (),
    ) -> list[Claim]:
        """Claim up to `forced_max` forced deliveries, then due deliveries within each endpoint's quota, oldest
        first.

        Forced deliveries (retried by an operator) are claimed regardless of the quotas if their endpoint is active and
        not in `unserved`, which lists the endpoints whose handler this worker does not have. Forced deliveries count
        toward the concurrency limit, but not toward the rate limit. Other deliveries are claimed only if their endpoint
        has a quota. "Oldest first" means sorted by due time, then by creation time. A quota's `concurrency_max` limits
        the deliveries in progress for its endpoint across all workers; stores/limits.py defines how the rate and
        `bytes_max` are applied.

        A claim increments `attempt` and gets a new token; no two claims of a delivery ever have the same token. The
        delivery is due again at `lease_until`. `retry_attempts` is the number of earlier attempts in the current round,
        but at most `retries_max`. The event changes from received to queued; if several of its deliveries are claimed
        in the same call, only the first claim is marked `picked_up`.
        """

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        """Write the results of claims: for each claim, the attempt row, the new state, the event status and the
        history.

        A settlement whose token is not the newest, or whose delivery is no longer in progress, is late: its attempt row
        is stored (marked late, with no next retry) and nothing else changes. If one call settles the same claim twice,
        the second settlement is late. If the delivery has been removed, the settlement is reported as late, but no row
        is stored.

        Every result ends the claim (`claimed_at`, `worker` and `forced` are cleared), sets `last_attempt_at` to the
        time at which the response finished, and sets `response_code` to the response status. A failure stores the
        category, code and reason, and sets `first_failed_at` if it is not set. A retry also stores the settlement's
        `retries_max`. Success clears the category, code and reason. Delivered and dead deliveries get `now` as
        `settled_at`. An event has at most one StatusChange per call, with the highest `retry_attempts` among its
        deliveries in that call.
        """

    async def release(self, claims: Sequence[Claim], now: Instant) -> list[Claim]:
        """Release claims without attempting them. Their deliveries become due again immediately, and no attempt is
        counted. Returns the released claims.

        The event stays queued, because it was picked up. The token is not reused. A forced delivery stays forced. A
        claim that is not the newest, or whose delivery is no longer in progress, is ignored.
        """

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        """Unsettled claims whose lease has ended (`lease_until` <= now), oldest first: their workers are lost or stuck.

        Each claim contains its current token, with which it can be settled on behalf of its lost worker. If that worker
        still settles the claim afterwards, its settlement is late. Each claim also contains the code of the previous
        failure (`last_code`). Its payload is empty (b""), because settling does not need the payload.
        """

    async def renew_leases(self, worker: str, now: Instant) -> None:
        """Let all leases of this worker begin again at `now`, with their length: the clock was set forward, or the
        worker stood still. A lease that another worker has taken over is not affected."""

    async def shift_waits(self, now: Instant, limit: int) -> int:
        """Repair what was written while the clock was ahead. A lease, a circuit's pause or the wait for a retry that
        begins more than a second (`JUMP`) after `now` begins at `now` and keeps its length; what begins less than a
        second after it may have been written since `now` was read. A delivery that has never been attempted, or that
        an operator retried, is due at `now`, or at its later `deliver_at`. Locks of tasks that end more than LOCK_MAX
        after `now` are released; others may be held by a process that is running.

        Changes up to `limit` waiting deliveries and returns their number; call it again until there are fewer. Repeating
        it does no harm. A wait that began earlier is left as it is, and so may last longer than intended.
        """

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        """Write the next version of a circuit. Returns False if the stored circuit is no longer at `expected_version`.

        If the state changes, the change is added to the circuit's history, with `reason` and the circuit's
        `changed_at`. An endpoint that has never failed has no stored circuit: its circuit is closed, at version 0.
        """

    # -- 1. engine: actions --------------------------------------------------------------------------------

    async def act(self, action: Action) -> tuple[ActionResult, Moved]:
        """Apply an operator's action to each delivery whose state allows it, and add an audit entry.

        An id that is given twice counts once. A deleted dead letter counts as unknown. RETRY makes a waiting delivery
        due at `action.at`. It makes a dead letter due at `action.revive_at`, in a new round (no retries used, no
        `settled_at`). In both cases the delivery gets the action's `forced` flag and keeps its last error until the
        next attempt. An overdue or blocked delivery keeps its due time. SKIP makes the delivery a dead
        letter; it keeps the error of its last attempt, or becomes a permanent failure with the code SKIPPED if there
        was none. SKIP, CANCEL, RESOLVE and DELETE set `settled_at`. DELETE changes neither the delivery's state nor the
        event's status. A payload given with RETRY replaces the delivery's payload for every later attempt. The history
        gets one entry per change of state; the audit log gets one per action, with the sizes and hashes of the payloads
        that it replaces. In the history, an actor that is the prefix of a key is shown as the name of that key.
        """

    async def step_bulk(
        self, bulk: Bulk, expected_version: int, action: Action | None = None, entry: AuditEntry | None = None
    ) -> BulkStep | None:
        """Write the next version of a bulk operation, apply its next action and add `entry`. Returns None and changes
        nothing if the stored operation is no longer at `expected_version`, so each step is done only once.

        The results of the action are added to `taken` and `refused`. The deliveries that a RETRY retries are recorded.
        Each step checks which of these retries have ended (`retry_succeeded`) and adds them to `succeeded` or `failed`.
        A delivery that the operation retries more than once counts only once, also in `taken`.
        """

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
        """Lease up to `limit` inbox events to a consumer, which nobody else can then lease before `until`. Returns them
        in the order in which they became available, then by id. An empty `event_types` means all types; with `user_id`,
        only this user's events are leased.

        An event becomes available when it is accepted, or at its `deliver_at`, and again when its lease or the delay of
        its nack ends (`visible_at` <= now). A lease increments `receive_count`, which is the token of the lease; no two
        leases of an event have the same token. The status stays "received". Fewer events are leased if their payloads
        reach INBOX_BYTES_MAX, but at least one if any is available. The cost does not depend on the size of the inbox
        or on the number of leased events.
        """

    async def answer_inbox(
        self, org_id: UUID, answers: Sequence[InboxAnswer], actor: str, now: Instant
    ) -> InboxAnswered:
        """Acknowledge inbox events, or make them available again, with an audit entry for each kind of answer. Each
        event must occur only once. `inbox_result` (model/inbox.py) decides what becomes of an answer; if an event does
        not exist, the result is NOT_FOUND.

        An acknowledged event changes from received to delivered. Acknowledging it again changes nothing. A nack ends the
        lease (`leased_by`) and sets `visible_at`.
        """

    async def delete_event(self, org_id: UUID, event_id: UUID, actor: str, now: Instant, reason: str = "") -> Moved:
        """Remove an event from every list, erase its payload and metadata, and add an audit entry with the reason.
        Raises Conflict while one of its deliveries is in progress, because a worker already has the payload.

        Waiting deliveries are cancelled, the action DELETE is applied to dead letters, and other deliveries stay. From
        then on, reading or acknowledging the event raises NotFound. Its deliveries, attempts and history can still be
        read by id until retention removes them.
        """

    async def dead_letter_waiting(
        self,
        endpoint_id: UUID,
        code: str,
        reason: str,
        now: Instant,
        limit: int,
        created_before: Instant | None = None,
    ) -> Moved:
        """Turn up to `limit` waiting deliveries of an endpoint into dead letters, without attempting them. Those that
        are due first are processed first.

        They become permanent failures with this code and reason; with the code SKIPPED, those that failed before keep
        their error, as in `act`. With `created_before`, only deliveries created before
        that instant are affected. If fewer than `limit` deliveries were moved, there may still be more. If none was
        moved, none is left, unless all deliveries that the call found were claimed in the meantime.
        """

    # -- 1. engine: outbox ---------------------------------------------------------------------------------

    def post_on(self, connection: object, message: OutboxMessage, wake: Callable[[], None]) -> Awaitable[None] | None:
        """Put an event into the outbox on the program's own connection, in its current transaction.

        This is the only method that does not need an open store, and the only one that takes effect when the program
        commits. It inserts one row, without locks or reads. On a blocking connection, the row has been inserted when
        the call returns. On an asyncio connection, the caller must await the result. `wake` is called after the commit
        if the connection reports commits. Otherwise it is called soon after the insert, possibly before the commit.
        Raises InvalidInput unless `connection` is a connection to this kind of database and is in a transaction.
        """

    async def outbox(self, limit: int) -> list[OutboxMessage]:
        """Up to `limit` committed messages, in the order in which they were posted. Fewer are returned if the total
        size of their payloads reaches OUTBOX_BYTES_MAX. Rejected messages are left out. If the row of a message cannot
        be read, the message has a `flaw`."""

    async def clear_outbox(self, event_ids: Sequence[UUID]) -> None:
        """Remove accepted messages. Unknown ids are ignored. A power failure may undo the removal."""

    async def reject(self, event_id: UUID, reason: str, now: Instant) -> None:
        """Mark a message that can never be accepted, so that `outbox` leaves it out. A message that is already rejected
        keeps its first reason."""

    async def requeue(self, event_ids: Sequence[UUID], entry: AuditEntry) -> list[OutboxMessage]:
        """Put rejected messages back into the outbox. Returns them as they were before, in any order.

        Each organization that owns some of these messages gets a copy of `entry` in its audit log, with the ids and the
        number of its own messages. Messages of organizations that do not exist are added to the copy for the
        organization of `entry`."""

    async def discard(self, event_ids: Sequence[UUID], entry: AuditEntry) -> list[OutboxMessage]:
        """Remove rejected messages and return them, in any order. Audited like `requeue`."""

    # -- 1. engine: pipelines and alerts -------------------------------------------------------------------

    async def put_entity(
        self,
        entity: Entity,
        expected_version: int,
        change: EntityChange | None = None,
        messages: Sequence[OutboxMessage] = (),
        entry: AuditEntry | None = None,
    ) -> bool:
        """Write the next version of an entity. Returns False if the stored entity is no longer at `expected_version`.

        Version 0 creates the entity. An entity that reuses the id of a deleted one is a different entity, distinguished
        by its `created_at`. The outbox messages, the history entry and `entry` are stored in the same transaction; if
        the result is False, nothing is stored. The caller must have checked that the change of status is allowed.
        """

    async def delete_entity(self, entity: Entity, entry: AuditEntry, arrival: UUID | None = None) -> Moved | None:
        """Remove an entity and its history, and write `entry`. If the event that created the entity (`arrival`) still
        exists, it is deleted too, as by `delete_event`, with the actor of `entry`. Returns None and removes nothing if
        the entity has changed since it was read."""

    async def write_alerts(self, write: AlertWrite) -> bool:
        """Write alerts, remove their incidents and post their messages. Returns False and changes nothing if one of the
        incidents no longer exists, an alert has changed, or another alert with the same subject is open. In
        `write.changes`, list the end of an alert before the next alert with the same subject."""

    # -- 1. engine: retention ------------------------------------------------------------------------------
    # Each call does a bounded part of the work, oldest records first.

    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        """Archive up to `limit` dead letters that were settled before `dead_before` and are not deleted. `settled_at`,
        the time at which they became dead letters, does not change."""

    async def expire(self, code: str, reason: str, since: Instant, now: Instant, limit: int) -> Moved:
        """Turn waiting deliveries of expired events into dead letters, for up to `limit` events that expired after
        `since` and no later than `now`.

        Events that expired first are processed first. Deliveries in progress are left to their worker. The waiting
        deliveries become permanent failures with this code and reason, as in `dead_letter_waiting`.
        """

    async def clean(self, retention: Retention, now: Instant, limit: int) -> Cleaned:
        """Remove the rows that `retention` specifies, oldest first and at most `limit` of each kind."""

    async def clean_entities(
        self,
        org_id: UUID,
        pipeline: str,
        status: str,
        phases: Collection[Phase],
        before: Instant,
        cursor: str | None,
        limit: int,
    ) -> tuple[int, str | None]:
        """Examine the next `limit` entities with this status, oldest first. Remove each one that is in one of these
        phases and last changed before `before`. Returns how many were removed, and the cursor for the next call. The
        cursor is None if no other entity is old enough."""

    # -- 2. documents --------------------------------------------------------------------------------------

    async def get(self, kind: type[T], org_id: UUID | None, key: UUID | tuple[str, str]) -> T:
        """One stored record. Raises NotFound if it does not exist.

        The key of an Endpoint (even a deleted one), Alert, Bulk or Delivery is its id. The key of a DeliveryPayload is
        the id of the delivery; if the event was deleted, this raises NotFound. The key of an Entity is (pipeline,
        entity id), the key of a Circuit is the id of the endpoint, and the key of an EventView is the id of the event.
        If no circuit is stored, the result is a closed circuit at version 0.

        In an EventView, an event that is still in the outbox has the status "received", or "failed" if its message was
        rejected. `deliveries` is the number of accepted deliveries. `retry_attempts` is the highest value among its
        deliveries. `last_retry_at` is the latest `last_attempt_at` among deliveries with more than one attempt.
        `next_retry_at` is the earliest next retry of a delivery whose endpoint is active, and not before the next probe
        while the circuit is open. `failed_at` is the time at which the status became "failed"; it is None for any other
        status.
        """

    async def get_many(self, kind: type[T], org_id: UUID | None, keys: Sequence[UUID]) -> list[T]:
        """The existing records with these ids, each of them once, in any order. `kind` is Endpoint (including deleted
        endpoints), Circuit (only stored circuits), Delivery, DeliveryPayload or EventSummary."""

    async def write(self, changes: Sequence[Put | Delete], entry: AuditEntry | None = None) -> bool:
        """Apply all changes and add `entry` to the audit log. Returns False and changes nothing if a document is not at
        its expected version, or if a document to delete does not exist.

        If `changes` is empty, this only adds the entry. Writing an endpoint or changing an organization gives the
        organization a new routing version, later than those of all others. Writing an alert setting requires an entry,
        whose `at` is the time of the change. Raises Conflict if another API key has the same digest. A crash may undo
        writes that contain only workers' heartbeats.
        """

    async def revoke_key(self, org_id: UUID, key_id: UUID, now: Instant, entry: AuditEntry) -> ApiKey:
        """Revoke a key, write `entry` and return the key. A key that is already revoked is returned unchanged.

        Raises Conflict for a valid admin key if no other valid admin key expires at the same time or later, because
        without this key the organization would be locked out earlier (stores/limits.py). This is checked in the same
        transaction, so two admins who revoke each other's keys cannot both succeed.
        """

    # -- 3. lists ------------------------------------------------------------------------------------------
    # Pass the cursor of a page to read the next page. An invalid cursor raises InvalidInput. An item is returned
    # exactly once if it keeps matching the filter and keeps its position, even if other items change. Every call
    # examines a limited number of index entries, regardless of the filter (stores/limits.py). A call that reaches this
    # limit returns a cursor and the items found so far, possibly none.

    async def page(
        self, org_id: UUID | None, query: PagedQuery[T], cursor: str | None = None, limit: int = 50
    ) -> Page[T]: ...

    async def count(self, org_id: UUID | None, query: PagedQuery[T], limit: int = COUNT_MAX) -> Count:
        """The number of items in a list: events, inbox events, the retry queue, dead letters, entities,
        WaitingDeliveries or BulkResults. At most `limit` index entries are examined; if there are more, the value is a
        lower bound."""

    async def count_by_endpoint(
        self, org_id: UUID, query: RetryQueueFilter | DeadLetterFilter, limit: int = COUNT_MAX
    ) -> dict[UUID, int]:
        """The number of items per endpoint, among the entries that `count` would examine."""

    async def find(self, org_id: UUID | None, query: BoundedQuery[T]) -> list[T]:
        """All items of a list that is short enough to be returned without paging."""

    # -- 4. figures ----------------------------------------------------------------------------------------
    # The methods above write counters, and `aggregate` regularly moves these into roll-ups. Each read adds up both from
    # one snapshot, so the results are always exact. The endpoint None stands for the whole organization. If `org_id` is
    # also None, the endpoint None stands for all organizations except the reserved one.

    async def aggregate(
        self, now: Instant, limit: int | None = None, *, minutes_before: Instant = 0, hours_before: Instant = 0
    ) -> int:
        """Move up to `limit` counters of past minutes into roll-ups. Also drop up to `limit` roll-ups of each span:
        minutes that began before `minutes_before`, and hours and days that began before `hours_before`. The default
        limit is `aggregate_max`. The rows moved and the rows dropped for each span are counted separately. The largest
        of these counts is returned; if it equals the limit, more rows may be left. Several processes may call this at
        the same time."""

    async def figures(
        self,
        org_id: UUID | None,
        endpoint_ids: Sequence[EndpointKey],
        since: Instant | None = None,
        until: Instant | None = None,
        names: tuple[str, ...] = FIGURES,
    ) -> dict[EndpointKey, Figures]:
        """Sums for each of these endpoints, all from one snapshot; zeros for an unknown endpoint. Without `since` or
        `until`, the sums cover all time. A range is extended to whole minutes, or to whole hours if it is longer than
        FINE_RANGE (`rollup_parts`). To save time, only the figures in `names` are added up; the others are 0."""

    async def series(
        self,
        org_id: UUID | None,
        endpoint_ids: Sequence[EndpointKey],
        span: Span,
        since: Instant,
        until: Instant,
        names: tuple[str, ...] = FIGURES,
    ) -> dict[EndpointKey, list[Point]]:
        """The figures of each endpoint per span (such as minute or hour), for spans that begin at `since` or later and
        before `until`, oldest first. Spans in which nothing happened, or that are no longer stored, have no point."""

    async def dead_letters_by_hour(
        self, org_id: UUID, causes: Sequence[int], since: Instant, hours: int
    ) -> dict[int, tuple[int, ...]]:
        """For each cause, the number of current dead letters (of any event type) that became dead in each of the
        `hours` hours from `since`. At most DEAD_LETTERS_COUNTED_MAX entries are read in total, so if there are very
        many dead letters, some counts are lower bounds."""

    async def waiting_since(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        """For each of these endpoints, the earliest `owed_since` of its open deliveries. This instant may be in the
        future. Endpoints without open deliveries are left out. Only the WAITING_EXAMINED_MAX deliveries that are due
        first are examined, so if there are more, an older delivery with a later due time may be missed."""

    async def circuit_counts(self, org_id: UUID | None = None) -> Mapping[CircuitState, int]:
        """The number of endpoints in each circuit state. States without endpoints are included, with the number 0.
        Deleted endpoints do not count. Without `org_id`, all organizations except the reserved one are counted."""
