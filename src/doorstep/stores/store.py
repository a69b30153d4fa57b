"""The store: every verb that Doorstep needs of a database. Read this first.

Four verbs carry the guarantees: `accept`, `claim_due`, `settle`, `release`. Rules for all of them:

- Each call is one transaction: all of it is kept, or none.
- Time is an argument. A store never asks a clock and never decides; it writes what was decided, if it may.
- No method is optional. What a database cannot do alike is a declared `Capabilities` field.
- A store that cannot write or be reached raises StoreUnavailable, and works again by itself later.
- What is unknown and what belongs to another organization are the same NotFound, for every verb that names one
  thing; so is an unknown organization for every verb that writes under it.
- Bytes are kept as they are. Text with a NUL or a lone surrogate is InvalidInput in `accept` and is replaced in
  what a receiver caused (`settle`), because a strange error text must not keep a result from being written
  (stores/text.py). History notes and audit results have one wording (stores/notes.py).
- Deliveries of one endpoint whose events share an ordering key form a line. One that is accepted while another of its
  line is open (pending or in progress) is blocked: it waits, with no due time. Whatever ends or takes away an open one
  looks who is the first of the line then. If that is blocked, it becomes due: now, but not before its event's
  `deliver_at` unless it is forced. Nobody is blocked again, so a dead letter that is retried may be overtaken.

One contract suite (tests/contract) runs on every store; stores/memory/ is the reference model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol
from uuid import UUID

from msgspec.structs import astuple

from doorstep.clock import Instant
from doorstep.model.act import Act, ActResult, AuditLine
from doorstep.model.attempt import Attempt
from doorstep.model.batch import BatchFilter
from doorstep.model.bulk import Bulk, BulkStep, UnderWay
from doorstep.model.circuit import Circuit, CircuitChange
from doorstep.model.claim import Claim, Lane, Quota
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.endpoint import Endpoint, EndpointState, Routing
from doorstep.model.entity import Entity, EntityChange, EntityFilter
from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.listing import CauseGroup, Count, EventFilter, Letters, Page, Queue
from doorstep.model.move import Moved
from doorstep.model.noun import Noun
from doorstep.model.org import ApiKey, Org
from doorstep.model.posting import Posting
from doorstep.model.settlement import Settled, Settlement, StatusChange
from doorstep.model.submission import Receipt, Submission
from doorstep.stores.bounds import COUNT_MAX


class Capabilities(Noun, frozen=True):
    """Where stores differ, said openly."""

    many_machines: bool
    """Processes on other machines can share it, so all follow its time."""
    notices_postings: bool
    """Calls what was given to `on_posted` after every commit of other programs, so that nobody needs to poll."""


class Cleaned(Noun, frozen=True):
    """How many rows one round of cleaning removed."""

    deliveries: int = 0
    attempts: int = 0
    events: int = 0
    idempotency_keys: int = 0
    inbox_events: int = 0
    """Events that nobody ever acknowledged; `events` leaves them out."""
    circuit_changes: int = 0
    audit_lines: int = 0
    bulk_items: int = 0
    """What bulk operations remember of the deliveries that they retried."""
    bulks: int = 0

    @property
    def total(self) -> int:
        return sum(astuple(self))


class Store(Protocol):
    capabilities: Capabilities

    # -- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. The schema must be current (`migrate`); otherwise this raises ConfigError saying so."""

    async def close(self) -> None: ...

    async def migrate(self) -> None:
        """Bring the schema to the current version; harmless when it is."""

    async def time(self) -> Instant:
        """The store's own idea of the time, which all processes sharing it follow."""

    def on_wakeup(self, wake: Callable[[], None]) -> None:
        """Call `wake` (from the event loop) when other processes may have accepted work. A hint: may be lost."""

    # -- the path ------------------------------------------------------------------------------------------

    async def accept(self, submissions: Sequence[Submission], routing_version: int, now: Instant) -> list[Receipt]:
        """Keep events with their deliveries and idempotency keys, durably; one receipt each, in order.

        Raises StaleRouting, keeping nothing, if endpoints changed since `routing_version` was read. An
        idempotency key counts for 24 hours from `now` within its organization; two submissions of one call may
        share one. REPEATED and CONFLICT receipts carry the figures of the first event, even when that has been
        cleaned away meanwhile. An event id that is already kept is answered ACCEPTED and `known`, and adds
        nothing, so a caller that lost the answer may repeat the call. A delivery's `created_at` is that of its event.
        """

    async def lanes(self, now: Instant) -> list[Lane]:
        """One lane for each endpoint that has waiting deliveries, due or not, in the order of their due times.

        What is blocked does not count. Endpoints in every state are among them; a lane carries the stored circuit,
        where there is one. Costs one index seek an endpoint, however many deliveries wait behind it.
        """

    async def claim_due(
        self,
        quotas: Sequence[Quota],
        now: Instant,
        lease_until: Instant,
        worker: str,
        forced_max: int = 0,
        unserved: Sequence[UUID] = (),
    ) -> list[Claim]:
        """Take due deliveries, oldest first within each quota, after up to `forced_max` forced ones.

        Forced deliveries (an operator's retry) are taken whatever the quotas say, as long as their endpoint is
        active and not `unserved` (one that this worker cannot reach, because it lacks the handler); they count as in
        flight, but not for the rate. Nothing else is taken from an endpoint without a
        quota. "Oldest" is by due time, then by creation. A quota's `concurrency_max` bounds all that is in progress
        for its endpoint, whoever holds it; the rate is stores/rate.py, its `bytes_max` stores/weight.py.

        A claim counts an attempt, takes the next token (one that no claim of the delivery ever had), is due again
        at `lease_until`, and has used `attempt - 1` retries since the round began, at most `retries_max`. The event
        goes from received to queued; of its deliveries claimed together only the first is `picked_up`.
        """

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        """Write the results of claims: attempt row, new state, event status and history, together.

        A settlement whose token is no longer the newest, or whose delivery is no longer in progress, is late:
        its attempt row is kept (marked late, with no next retry) and nothing else changes. The same claim twice in
        one call is settled by the first and late by the second. Of a delivery that has been cleaned away no row is
        kept, but it is reported late.

        Every result ends the claim (`claimed_at`, `worker` and `forced` are cleared) and sets `last_attempt_at` to
        the end of the reply and `response_code` to its status. A failure keeps category, code and reason, sets
        `first_failed_at` once, and a retry takes over the settlement's `retries_max`. Success clears category, code
        and reason. Delivered and dead are `settled_at` now. An event has at most one StatusChange a call, with the
        highest `retry_attempts` of its deliveries in that call.
        """

    async def release(self, claims: Sequence[Claim], now: Instant) -> list[Claim]:
        """Hand back claims that were never tried: due again at once, attempt uncounted. Returns the released.

        The event stays queued: it was picked up. The token stays used, a forced delivery stays forced. A claim
        that is no longer the newest or no longer in progress is left alone.
        """

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        """Claims whose lease has ended (`lease_until` <= now) unsettled, oldest first: their workers are lost or stuck.

        They carry the token that they hold, so that whoever settles them on their behalf fences the lost worker,
        and no payload (b""), which nobody needs for that.
        """

    # -- the outbox ----------------------------------------------------------------------------------------

    def post_on(self, connection: object, posting: Posting, wake: Callable[[], None]) -> Awaitable[None] | None:
        """Put an event into the outbox on a connection of the program's own, in the transaction that it is in.

        The one verb that needs no opened store, and ends with somebody else's commit. It inserts one row: no lock, no
        look at anything. For a blocking connection that has been done at the return, for an asyncio one it is to be
        awaited. `wake` is called after the commit, where the connection tells of it; else soon after the insert, which
        is then too early. InvalidInput for what is no connection to this kind of database, or is in no transaction.
        """

    async def post(self, postings: Sequence[Posting]) -> None:
        """The same in a transaction of the store's own."""

    async def outbox(self, limit: int) -> list[Posting]:
        """What is posted and committed, in the order of posting; fewer than `limit` where the payloads reach
        OUTBOX_BYTES_MAX. What was set aside is left out; a row that cannot be read has a `flaw`."""

    async def any_posted(self) -> bool:
        """Whether `outbox` would give anything; asked all the time, so it costs next to nothing."""

    async def clear_outbox(self, event_ids: Sequence[UUID]) -> None:
        """These have been accepted. Unknown ones are none of our business. May be forgotten in a power cut."""

    async def set_aside(self, event_id: UUID, refusal: str, now: Instant) -> None:
        """Leave a posting where it is, and out of `outbox`: it can never be accepted. The first refusal stays."""

    async def refused(self, limit: int) -> list[Posting]:
        """What was set aside, in the order of posting."""

    async def put_back(self, event_ids: Sequence[UUID]) -> list[Posting]:
        """Those of these that were set aside are in `outbox` again; returns them as they were, in any order."""

    async def discard(self, event_ids: Sequence[UUID]) -> list[Posting]:
        """Remove those of these that were set aside; returns them, in any order."""

    async def hold_outbox(self, holder: str, now: Instant, until: Instant) -> bool:
        """Take or keep the right to forward, unless somebody else has it. It ends with `leave_outbox`, at `until` (by the
        store's own time), or earlier when the process is gone. Only a way to save work: two who forward at once do no
        harm."""

    async def leave_outbox(self, holder: str) -> None:
        """Let go of that right, if one has it."""

    def on_posted(self, wake: Callable[[], None]) -> None:
        """Call `wake` (from the event loop) when there may be something in the outbox. A hint: may be lost."""

    def tell_posted(self) -> None:
        """Tell the other processes so (from the event loop), where they do not notice by themselves."""

    # -- endpoints and circuits ----------------------------------------------------------------------------

    async def routing(self) -> Routing:
        """All endpoints that are not deleted, in the order of their creation, with the version of this picture."""

    async def routing_version(self) -> int: ...

    async def put_endpoint(
        self,
        endpoint: Endpoint,
        expected_version: int,
        line: AuditLine | None = None,
        living_max: int | None = None,
    ) -> bool:
        """Write an endpoint computed from `expected_version` (stored as version + 1); False if another was faster.

        Version 0 is that of an endpoint that does not exist yet, and creates it. A write bumps the routing version
        and keeps `line` in the same transaction; one that came too late changes nothing. NotFound for an unknown
        organization; Conflict for a new endpoint of an organization that has `living_max` that are not deleted.
        """

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        """One endpoint, deleted ones too; NotFound otherwise."""

    async def circuit(self, endpoint_id: UUID) -> Circuit:
        """The stored circuit, or a closed one of version 0."""

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        """Write a circuit computed from `expected_version` (stored as version + 1); False if another was faster.

        A change of state is added to the circuit's history with `reason`, at the circuit's `changed_at`.
        """

    async def circuit_history(self, endpoint_id: UUID) -> list[CircuitChange]:
        """The changes of state, oldest first."""

    async def bury(
        self,
        endpoint_id: UUID,
        code: str,
        reason: str,
        now: Instant,
        limit: int,
        created_before: Instant | None = None,
    ) -> Moved:
        """Move up to `limit` waiting deliveries of an endpoint to the dead letters, without a try, oldest due first.

        They are permanent failures with this code and reason; `created_before` spares what is not older. There may
        be more even if it were fewer than `limit`, but not if it was none, unless all of them were claimed meanwhile.
        """

    # -- operators -----------------------------------------------------------------------------------------

    async def act(self, act: Act) -> tuple[ActResult, Moved]:
        """Do what an operator said to each delivery that allows it, and audit it, in one transaction.

        An id named twice counts once; a deleted dead letter counts as unknown. RETRY makes a waiting delivery due at
        `act.at` and a dead one at `act.revive_at` in a new round (no retries used, no `settled_at`); both are forced
        and keep the last error until they are tried. One that is overdue or blocked keeps its place, and is only
        forced. SKIP is
        a permanent failure with the code SKIPPED. SKIP, CANCEL, RESOLVE and DELETE set `settled_at`; DELETE leaves the
        state, and so the event's status, as it was. A payload given with RETRY is the delivery's own from then on, for
        every later attempt. History has one line per change of state; the audit has one line per act.
        """

    async def acknowledge(self, org_id: UUID, event_id: UUID, now: Instant) -> StatusChange:
        """An inbox consumer has the event: received becomes delivered. Conflict if push endpoints take it.

        Acknowledging again changes nothing: the answer names delivered as the old status too.
        """

    async def add_audit(self, line: AuditLine) -> None: ...

    async def delete_event(self, org_id: UUID, event_id: UUID, actor: str, now: Instant) -> Moved:
        """Take an event out of every list and erase what its sender gave; audited. Conflict while one of its
        deliveries is in progress, because its worker has the payload in its hands.

        What waits is cancelled, dead letters are deleted as DELETE does it, the rest stays as it is. To `event`,
        `acknowledge` and `payload` it is unknown from then on; deliveries, attempts and history can still be read by
        their ids, until they are cleaned away.
        """

    # -- bulk operations -----------------------------------------------------------------------------------

    async def add_bulk(self, bulk: Bulk, line: AuditLine | None = None) -> None:
        """Keep a new operation, and `line` in the same transaction."""

    async def bulk(self, org_id: UUID, bulk_id: UUID) -> Bulk: ...

    async def list_bulk(self, org_id: UUID, cursor: str | None, limit: int) -> Page[Bulk]:
        """The newest first."""

    async def live_bulks(self) -> list[Bulk]:
        """Those that go on or wait for results, of every organization, oldest first."""

    async def step_bulk(
        self, bulk: Bulk, expected_version: int, act: Act | None = None, line: AuditLine | None = None
    ) -> BulkStep | None:
        """Write a bulk operation computed from `expected_version` together with its next act and `line`; None if
        another was faster, and then nothing was done.

        What the act did is added to `taken` and `refused`. What a RETRY retried is remembered, and each step looks at
        what became of that (`retried_well`), and adds to `succeeded` and `failed`. Each delivery counts once, also
        in `taken`, even if it is retried again.
        """

    async def bulk_has_results(self, org_id: UUID, bulk_id: UUID) -> bool:
        """Whether anything that a bulk retry has taken ended since its last step: a step would count it."""

    async def bulk_under_way(self, org_id: UUID, bulk_id: UUID) -> list[UnderWay]:
        """What a bulk retry has taken and what is without result now, up to UNDER_WAY_MAX of it."""

    async def bulk_failures(self, org_id: UUID, bulk_id: UUID, cursor: str | None, limit: int) -> Page[Delivery]:
        """What a bulk retry retried in vain, in the order of creation."""

    # -- entities of pipelines -----------------------------------------------------------------------------

    async def put_entity(
        self,
        entity: Entity,
        expected_version: int,
        change: EntityChange | None = None,
        posted: Sequence[Posting] = (),
        line: AuditLine | None = None,
    ) -> bool:
        """Write an entity computed from `expected_version` (stored as version + 1); False if another was faster.

        Version 0 is that of an entity that does not exist yet, and creates it; a later one that was given the name of
        an entity that was deleted is another, told by its `created_at`. What it posts to the outbox, its line
        of history and `line` are kept in the same transaction; a write that came too late keeps nothing. Whether its
        status may follow the one before was decided by whoever calls. NotFound for an unknown organization.
        """

    async def delete_entity(self, entity: Entity, line: AuditLine) -> bool:
        """Remove an entity and its history, with `line`; False if it is no longer as it was given."""

    async def entity(self, org_id: UUID, pipeline: str, entity_id: str) -> Entity: ...

    async def entity_history(self, org_id: UUID, pipeline: str, entity_id: str) -> list[EntityChange]:
        """Every change of its status, oldest first."""

    async def list_entities(
        self, org_id: UUID, wanted: EntityFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Entity]:
        """In the order of their creation, the newest first; bounded as every list is."""

    async def adrift(
        self, org_id: UUID, pipeline: str, endpoint_ids: Sequence[UUID], cursor: str | None, limit: int
    ) -> Page[Entity]:
        """Those of the next `limit` running entities that nothing carries on, in the order of their creation: their
        event waits in no outbox, and none of these endpoints has it still to do."""

    async def expecting(self, org_id: UUID, pipeline: str, event_ids: Sequence[UUID]) -> list[Entity]:
        """The running entities whose present event is one of these."""

    async def untouched(self, org_id: UUID, pipeline: str, dead_before: Instant, limit: int) -> list[Entity]:
        """Up to `limit` dead entities whose status last changed before `dead_before`, oldest first."""

    async def clean_entities(
        self, org_id: UUID, pipeline: str, status: str, before: Instant, cursor: str | None, limit: int
    ) -> tuple[int, str | None]:
        """Of the next `limit` entities with this status, in the order of their creation, remove those that have had it
        since `before`; returns how many, and where to go on: None once the rest is too young."""

    # -- reading -------------------------------------------------------------------------------------------

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        """The event with the figures of its deliveries; one that is in the outbox is received, or failed if set aside.

        `deliveries` is as many as were accepted; `retry_attempts` is the highest; `last_retry_at` the latest
        `last_attempt_at` of those with more than one attempt; `next_retry_at` the first of theirs; `failed_at` is
        when the status became failed, while it is.
        """

    async def summaries(self, org_id: UUID, event_ids: Sequence[UUID]) -> list[EventSummary]:
        """Those of the events that are there, in any order, each once: figures without payloads, for who asks often."""

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        """The deliveries of an event in the order of their creation; none for an unknown event."""

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery: ...

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        """The attempt log by number, rows of one number in the order of the calls that wrote them; it outlives the
        deletion of a dead letter."""

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        """Every transition in order, the acceptance first."""

    async def tally(self) -> dict[DeliveryState, int]:
        """How many deliveries are in each of the states, zeros too, counted row by row: for tests and reports."""

    async def payload(self, org_id: UUID, delivery_id: UUID) -> bytes:
        """What goes out for a delivery: its own payload if an operator edited it, else that of its event."""

    # -- lists ---------------------------------------------------------------------------------------------
    #
    # Page by page, from where the cursor of the page before says; InvalidInput for any other cursor. Whatever changes
    # meanwhile, what matches all the time is met exactly once, if its place in the order stays. What a call costs is
    # bounded whatever the filter (stores/bounds.py): after so many index entries it gives what it found, perhaps
    # nothing, and a cursor. An organization that does not exist has empty lists.

    async def list_events(
        self, org_id: UUID, wanted: EventFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[EventSummary]:
        """Events by their ids, that is by creation, the newest first unless asked otherwise."""

    async def inbox(
        self, org_id: UUID, status: EventStatus, cursor: str | None = None, limit: int = 50
    ) -> Page[EventView]:
        """RECEIVED: events that no endpoint takes, until they are acknowledged. FAILED: failed events.

        Oldest first, by their ids. A page has at least one event, and ends when its payloads reach INBOX_BYTES_MAX.
        """

    async def count_inbox(self, org_id: UUID, status: EventStatus, limit: int = COUNT_MAX) -> Count: ...

    async def retry_queue(
        self, org_id: UUID, wanted: Queue, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        """What failed at least once and is not settled, by `due_at`, then by their ids."""

    async def count_retry_queue(self, org_id: UUID, wanted: Queue, limit: int = COUNT_MAX) -> Count:
        """Counts look at no more than `limit` entries; beyond, the value is only a floor."""

    async def dead_letters(
        self, org_id: UUID, wanted: Letters, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        """Dead letters by the time they died (`settled_at`), then by their ids, the newest first."""

    async def count_dead_letters(self, org_id: UUID, wanted: Letters, limit: int = COUNT_MAX) -> Count: ...

    async def cause_groups(
        self, org_id: UUID, wanted: Letters, cursor: str | None = None, limit: int = 50
    ) -> Page[CauseGroup]:
        """Dead letters by cause. Pages go through the causes in an order of their own; a page has the most recent
        death first. With an event type only the newest letters of each cause are looked at for it (GROUP_DEPTH).
        """

    async def list_batches(
        self, org_id: UUID, wanted: BatchFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        """The batch deliveries by their ids, that is by creation, the newest first; see model/batch.py. What an operator
        deleted is left out."""

    async def list_endpoints(
        self, org_id: UUID, state: EndpointState | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Endpoint]:
        """Endpoints by their ids, that is by creation, the oldest first; deleted ones only if asked for."""

    async def list_audit(
        self,
        org_id: UUID,
        actor: str | None = None,
        action: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[AuditLine]:
        """The lines as they were written, the newest first."""

    # -- keeping house -------------------------------------------------------------------------------------

    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> Moved:
        """Up to `limit` dead letters settled before `dead_before` and not deleted become archived, oldest first.
        `settled_at` stays: it is when they died."""

    async def expire(self, code: str, reason: str, since: Instant, now: Instant, limit: int) -> Moved:
        """Move what still waits of up to `limit` events that expired after `since`, up to `now`, to the dead letters.

        The events that expired first go first; what is in progress is left to its worker. The deliveries become
        permanent failures with this code and reason, as `bury` makes them.
        """

    async def clean(
        self,
        settled_before: Instant,
        now: Instant,
        limit: int,
        *,
        inbox_before: Instant = 0,
        audit_before: Instant = 0,
    ) -> Cleaned:
        """Remove what has been kept long enough, oldest first, up to `limit` of each kind:

        deliveries settled before (delivered, resolved, cancelled, deleted), with their attempts and history and the
        events of which nothing is left; events acknowledged before; changes of circuits before, but never the newest
        of an endpoint; bulk operations that ended before, once nothing is left of what they remember; inbox events
        accepted before `inbox_before` that nobody acknowledged; audit lines before `audit_before`; idempotency keys
        that no longer count. Dead letters stay.
        """

    # -- organizations and keys ----------------------------------------------------------------------------

    async def put_org(self, org: Org) -> None:
        """Create an organization, or replace it and bump the routing version: its policies may have changed."""

    async def orgs(self) -> list[Org]: ...

    async def put_key(self, key: ApiKey, line: AuditLine | None = None) -> None:
        """Create or replace a key, and keep `line` in the same transaction; Conflict if another one has its digest."""

    async def revoke_key(self, org_id: UUID, key_id: UUID, now: Instant, line: AuditLine) -> ApiKey:
        """The key with its end, `now`, kept together with `line`; one that was revoked before is left as it is.

        Conflict if the organization would be without an admin key earlier than with it (stores/revoking.py), which is
        looked at in the same transaction: two admins who revoke each other's keys do not both succeed.
        """

    async def keys(self, org_id: UUID) -> list[ApiKey]:
        """The keys of an organization in the order of their creation."""

    async def find_key(self, digest: bytes) -> ApiKey | None:
        """The key with this digest, revoked and expired ones too."""
