"""Read operations for people and programs: events, deliveries, endpoints, circuits, workers and the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from doorstep.clock import DAY, Clock, Instant
from doorstep.coalesce import Coalescer, Shared, Weight
from doorstep.engine.directory import Directory, Tuning
from doorstep.errors import InvalidInput, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.attempt import Attempt, AttemptSummary
from doorstep.model.bulk import Bulk, BulkFailures
from doorstep.model.claim import LOST_KEPT, WorkerEntry
from doorstep.model.delivery import Delivery, DeliveryPayload, DeliveryState, HistoryEntry, Hold, as_seen
from doorstep.model.endpoint import Circuit, CircuitChange, CircuitState, Endpoint, EndpointState
from doorstep.model.entity import PipelineDeclarations
from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.listing import (
    AttemptFilter,
    AuditFilter,
    CauseGroup,
    CauseGroups,
    CircuitHistory,
    Count,
    DeadLetterFilter,
    DeliveryAttempts,
    DeliveryFilter,
    DeliveryHistory,
    EndpointFilter,
    EventDeliveries,
    EventFilter,
    InboxFilter,
    KeyNames,
    KeyPrefixes,
    Page,
    PagedQuery,
    RetryQueueFilter,
    Workers,
)
from doorstep.model.rollup import HOUR
from doorstep.operations.pages import at_least_shown, full_page
from doorstep.policy.circuit import hold_of
from doorstep.stores.limits import ID_MAX, KEY_MAX, read_cursor, write_cursor
from doorstep.stores.store import Part, Store

T = TypeVar("T")

_EventOf = tuple[UUID, UUID]
"""An organization and the id of one of its events."""
_WORKERS_MAX = 1_000
_NAMESAKES_MAX = 20
CAUSE_HOURS = 24
_LEVELS = ("now_dead", "now_archived", "now_failed")

Place = tuple[int, ...]
"""The position of an item in a list that is sorted in memory."""


class Reader:
    """Every read is bounded: lists are paginated with cursors, and counts stop at a limit."""

    def __init__(self, store: Store, directory: Directory, clock: Clock, tuning: Tuning) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._archive_after: Instant = round(tuning.archive_after_days * DAY)
        self._counts = Shared()
        self._summaries: Coalescer[_EventOf, EventSummary] = Coalescer(
            self._find_summaries, lambda _: Weight(1, 0), batch_max=Weight(100, 0), queue_max=Weight(100_000, 0)
        )

    # -- events --------------------------------------------------------------------------------------------

    async def event(self, org_id: UUID, event_id: UUID, user_id: str | None = None) -> EventView:
        """An event with its payload and status, even if it is still in the outbox. With `user_id`, another user's event
        is not found."""
        view = await self._store.get(EventView, org_id, event_id)
        _check_owner(view.event.user_id, user_id, event_id)
        return view

    async def summary(self, org_id: UUID, event_id: UUID, user_id: str | None = None) -> EventSummary:
        """The status of an event. Concurrent callers share one query. With `user_id`, another user's event is not
        found."""
        summary = await self._summaries.submit((org_id, event_id))
        _check_owner(summary.user_id, user_id, event_id)
        return summary

    async def _find_summaries(self, keys: list[_EventOf]) -> list[EventSummary | Exception]:
        found: dict[_EventOf, EventSummary] = {}
        for org_id in {org_id for org_id, _ in keys}:
            summaries = await self._store.get_many(
                EventSummary, org_id, [event_id for org, event_id in keys if org == org_id]
            )
            found |= {(org_id, summary.event_id): summary for summary in summaries}
        return [found.get(one) or NotFound(f"no event {one[1]}") for one in keys]

    async def events(self, org_id: UUID, filters: EventFilter, cursor: str | None, limit: int) -> Page[EventSummary]:
        """One page of events, newest first."""
        return await self._page(org_id, filters, cursor, limit)

    async def _page(self, org_id: UUID, query: PagedQuery[T], cursor: str | None, limit: int) -> Page[T]:
        return await full_page(self._store, self._clock, org_id, query, cursor, limit)

    async def inbox(
        self, org_id: UUID, status: EventStatus, cursor: str | None, limit: int, user_id: str | None = None
    ) -> tuple[Page[EventView], Count]:
        """One page of events that no push endpoint receives, oldest first, and the total number of such events. With
        the status FAILED, failed events instead; with `user_id`, only events of this user."""
        wanted = InboxFilter(status=status, user_id=user_id)
        page, count = await asyncio.gather(
            self._store.page(org_id, wanted, cursor, limit),
            self._counts.ask(("inbox", org_id, wanted), lambda: self._store.count(org_id, wanted)),
        )
        return page, at_least_shown(count, page, cursor)

    # -- deliveries ----------------------------------------------------------------------------------------

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        """The deliveries of an event, one for each endpoint that receives it."""
        return [self.seen(delivery) for delivery in await self._store.find(org_id, EventDeliveries(event_id=event_id))]

    async def delivery_page(
        self, org_id: UUID, filters: DeliveryFilter, cursor: str | None, limit: int
    ) -> Page[Described]:
        """One page of deliveries in any state, newest first."""
        filters = msgspec.structs.replace(filters, archived_before=self._clock.now() - self._archive_after)
        page = self._all_seen(await self._page(org_id, filters, cursor, limit))
        return Page(tuple(await self.described(org_id, page.items)), page.next)

    async def attempt_page(
        self, org_id: UUID, filters: AttemptFilter, cursor: str | None, limit: int
    ) -> Page[AttemptSummary]:
        """One page of attempts, newest first."""
        return await self._page(org_id, filters, cursor, limit)

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery:
        """One delivery in its current state."""
        return self.seen(await self._store.get(Delivery, org_id, delivery_id))

    async def payload(self, org_id: UUID, delivery_id: UUID) -> bytes:
        """The payload that a delivery sends: the event's, or its own if an operator edited it."""
        return (await self._store.get(DeliveryPayload, org_id, delivery_id)).payload

    async def payloads(self, org_id: UUID, delivery_ids: Sequence[UUID]) -> Mapping[UUID, bytes]:
        """The payloads of many deliveries. Deliveries whose event was deleted are left out."""
        found = await self._store.get_many(DeliveryPayload, org_id, delivery_ids)
        return {one.delivery_id: one.payload for one in found}

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        """The attempts of a delivery, oldest first."""
        return await self._store.find(org_id, DeliveryAttempts(delivery_id=delivery_id))

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryEntry]:
        """Every change of a delivery's state, oldest first."""
        return await self._store.find(org_id, DeliveryHistory(delivery_id=delivery_id))

    async def described_one(self, delivery: Delivery) -> Described:
        """A delivery with its endpoint and, if it is held, the reason."""
        return (await self.described(delivery.org_id, [delivery]))[0]

    async def retry_queue(
        self, org_id: UUID, filters: RetryQueueFilter, cursor: str | None, limit: int
    ) -> tuple[Page[Delivery], Count]:
        """One page of failed deliveries that will be retried, next retry first, and their total number."""
        page, count = await asyncio.gather(
            self.retry_queue_page(org_id, filters, cursor, limit), self.count_retry_queue(org_id, filters)
        )
        return page, at_least_shown(count, page, cursor)

    async def retry_queue_page(
        self, org_id: UUID, filters: RetryQueueFilter, cursor: str | None, limit: int
    ) -> Page[Delivery]:
        """One page of the retry queue, without the count."""
        return await self._page(org_id, filters, cursor, limit)

    async def count_retry_queue(self, org_id: UUID, filters: RetryQueueFilter) -> Count:
        """The number of deliveries in the retry queue. Concurrent callers share one query."""
        return await self._counts.ask(("queue", org_id, filters), lambda: self._store.count(org_id, filters))

    async def dead_letters(
        self, org_id: UUID, filters: DeadLetterFilter, cursor: str | None, limit: int
    ) -> tuple[Page[Delivery], Count]:
        """One page of dead letters, newest first, and their total number."""
        page, count = await asyncio.gather(
            self.dead_letter_page(org_id, filters, cursor, limit),
            self._counts.ask(("letters", org_id, filters), lambda: self._count_letters(org_id, filters)),
        )
        return page, at_least_shown(count, page, cursor)

    async def dead_letter_page(
        self, org_id: UUID, filters: DeadLetterFilter, cursor: str | None, limit: int
    ) -> Page[Delivery]:
        """One page of dead letters, without the count."""
        page = await self._page(org_id, self.dated(filters), cursor, limit)
        return self._all_seen(page)

    async def bulk_failures(self, org_id: UUID, bulk_id: UUID, cursor: str | None, limit: int) -> Page[Described]:
        """The deliveries that failed again after a bulk retry. Raises NotFound if there is no such operation."""
        await self._store.get(Bulk, org_id, bulk_id)
        page = self._all_seen(await self._store.page(org_id, BulkFailures(bulk_id=bulk_id), cursor, limit))
        return Page(tuple(await self.described(org_id, page.items)), page.next)

    def _all_seen(self, page: Page[Delivery]) -> Page[Delivery]:
        return Page(tuple(self.seen(delivery) for delivery in page.items), page.next)

    async def _count_letters(self, org_id: UUID, filters: DeadLetterFilter) -> Count:
        """Count dead letters. The date is added to the filter only here: if it were part of the shared key, no two
        callers would share a query."""
        return await self._store.count(org_id, self.dated(filters))

    async def cause_groups(
        self, org_id: UUID, filters: DeadLetterFilter, cursor: str | None, limit: int
    ) -> Page[CauseGroup]:
        return await self._page(org_id, CauseGroups(filter=self.dated(filters)), cursor, limit)

    async def described_causes(self, org_id: UUID, groups: Sequence[CauseGroup]) -> list[DescribedCause]:
        """Each cause with its endpoint's name, its dead letters by hour and its newest dead letter."""
        names = await self.endpoint_names(org_id, (one.endpoint_id for one in groups))
        since = self._clock.now() // HOUR * HOUR - (CAUSE_HOURS - 1) * HOUR
        by_hour = await self._store.dead_letters_by_hour(org_id, [one.cause for one in groups], since, CAUSE_HOURS)
        newest = await self._store.get_many(Delivery, org_id, [one.sample_id for one in groups])
        examples = {one.delivery_id: one for one in newest}
        return [
            DescribedCause(one, names[one.endpoint_id], by_hour[one.cause], examples.get(one.sample_id))
            for one in groups
        ]

    def dated(self, filters: DeadLetterFilter) -> DeadLetterFilter:
        """Add to the filter the time before which a dead letter counts as archived."""
        return msgspec.structs.replace(filters, archived_before=self._clock.now() - self._archive_after)

    def seen(self, delivery: Delivery) -> Delivery:
        return as_seen(delivery, self._clock.now(), self._archive_after)

    # -- counts and backlog --------------------------------------------------------------------------------

    async def stats(self, org_id: UUID) -> Stats:
        """The counts that operators watch, at a bounded cost. A count above the counting limit is replaced by the
        current number in the roll-ups. That number is exact, except that it includes dead letters that the cleaner has
        not archived yet."""
        dead = self.dated(DeadLetterFilter())
        levels = (await self._store.figures(org_id, [None], names=_LEVELS))[None]
        archived = msgspec.structs.replace(dead, archived=True)
        return Stats(
            retrying=await self.count_retry_queue(org_id, RetryQueueFilter()),
            dead=_or_level(await self._store.count(org_id, dead), levels.now_dead),
            archived=_or_level(await self._store.count(org_id, archived), levels.now_archived),
            inbox=await self._store.count(org_id, InboxFilter(status=EventStatus.RECEIVED)),
            failed=Count(levels.now_failed, exact=True),
            circuits_open=await self._circuits_open(org_id),
            oldest_due_at=(await self.backlog(org_id)).oldest_due_at,
        )

    async def dead_now(self, org_id: UUID) -> int:
        """The number of dead letters that the cleaner has not archived: from the roll-ups, or counted up to the limit of
        a count if the store has no statistics."""
        if Part.STATISTICS in self._store.features.lacks:
            return (await self._store.count(org_id, DeadLetterFilter())).value
        return (await self._store.figures(org_id, [None], names=("now_dead",)))[None].now_dead

    async def is_healthy(self, org_id: UUID) -> bool:
        """Whether no delivery waits for a retry and every circuit is closed."""
        retrying = await self.count_retry_queue(org_id, RetryQueueFilter())
        return not retrying.value and not await self._circuits_open(org_id)

    async def _circuits_open(self, org_id: UUID) -> int:
        counts = await self._store.circuit_counts(org_id)
        return sum(count for state, count in counts.items() if state is not CircuitState.CLOSED)

    async def backlog(self, org_id: UUID | None = None) -> Backlog:
        """The backlog of one organization. Without `org_id`, the backlog of all organizations except the reserved
        one."""
        await self._directory.refresh()
        now = self._clock.now()
        lanes = await self._counts.ask("lanes", lambda: self._store.due_lanes(now))
        lanes = [lane for lane in lanes if org_id in (None, lane.org_id)]
        await self._directory.load({lane.org_id for lane in lanes})
        active = [lane for lane in lanes if self._active(lane.endpoint_id, org_id)]
        due = [lane.due_at for lane in active if lane.due_at <= now and not lane.is_barred]
        return Backlog(len(active), min(due, default=None))

    async def waiting(self, org_id: UUID) -> list[Waiting]:
        """The endpoints with waiting deliveries, oldest due delivery first. Endpoints whose deliveries are held come
        last."""
        await self._directory.refresh()
        now = self._clock.now()
        lanes = await self._counts.ask("lanes", lambda: self._store.due_lanes(now))
        await self._directory.load((org_id,))
        endpoints = ((lane, self._directory.endpoint(lane.endpoint_id)) for lane in lanes)
        own = ((lane, one) for lane, one in endpoints if one is not None and one.org_id == org_id)
        found = (
            Waiting(lane.is_barred or one.state is not EndpointState.ACTIVE, lane.due_at, one) for lane, one in own
        )
        return sorted(found, key=lambda one: one.place)

    def _active(self, endpoint_id: UUID, org_id: UUID | None) -> bool:
        endpoint = self._directory.endpoint(endpoint_id)
        if endpoint is None or endpoint.state is not EndpointState.ACTIVE:
            return False
        return endpoint.org_id == org_id if org_id is not None else endpoint.org_id != OPERATIONS_ORG

    # -- endpoints and audit -------------------------------------------------------------------------------

    async def endpoints(
        self, org_id: UUID, state: EndpointState | None, cursor: str | None, limit: int
    ) -> Page[Endpoint]:
        return await self._page(org_id, EndpointFilter(state=state), cursor, limit)

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        """One endpoint in its current state."""
        return await self._store.get(Endpoint, org_id, endpoint_id)

    async def circuit(self, org_id: UUID, endpoint_id: UUID) -> Circuit:
        """The circuit of an endpoint."""
        await self._store.get(Endpoint, org_id, endpoint_id)
        return await self._store.get(Circuit, org_id, endpoint_id)

    async def circuit_history(self, org_id: UUID, endpoint_id: UUID, limit: int | None = None) -> list[CircuitChange]:
        """When and why the circuit opened and closed, oldest first. With `limit`, only the newest changes."""
        await self._store.get(Endpoint, org_id, endpoint_id)
        return await self._store.find(org_id, CircuitHistory(endpoint_id=endpoint_id, newest=limit))

    async def workers(self) -> list[WorkerEntry]:
        """The workers: first live workers by name, then lost workers, latest heartbeat first."""
        now = self._clock.now()
        found = await self._store.find(None, Workers(seen_after=now - LOST_KEPT, limit=_WORKERS_MAX))
        live = sorted((one for one in found if not one.is_lost(now)), key=lambda one: one.name)
        return [*live, *(one for one in found if one.is_lost(now))]

    async def described(self, org_id: UUID, deliveries: Sequence[Delivery]) -> list[Described]:
        """Each delivery with its endpoint and, if it is held, the reason. All endpoints are read together."""
        endpoints = await self._endpoints(org_id, (one.endpoint_id for one in deliveries))
        waiting = {one.endpoint_id for one in deliveries if one.state is DeliveryState.PENDING}
        circuits = await circuits_of(self._store, org_id, waiting) if waiting else {}
        return [
            Described(one, endpoints[one.endpoint_id], _held(one, endpoints[one.endpoint_id], circuits))
            for one in deliveries
        ]

    async def endpoint_names(self, org_id: UUID, endpoint_ids: Iterable[UUID]) -> dict[UUID, str]:
        """The names of these endpoints, including deleted ones. Unknown ids are left out."""
        return {key: one.name for key, one in (await self._endpoints(org_id, endpoint_ids)).items()}

    async def _endpoints(self, org_id: UUID, endpoint_ids: Iterable[UUID]) -> dict[UUID, Endpoint]:
        """Find endpoints by id in the directory. Those that it does not contain, such as deleted endpoints, are read
        from the store in one query. Endpoints of other organizations are not found."""
        await self._directory.refresh()
        known = {key: self._directory.endpoint(key) for key in endpoint_ids}
        own = {key: one for key, one in known.items() if one is not None and one.org_id == org_id}
        missing = [key for key in known if key not in own]
        others = await self._store.get_many(Endpoint, org_id, missing) if missing else []
        return own | {one.endpoint_id: one for one in others}

    async def key_names(self, org_id: UUID, actors: Iterable[str | None]) -> dict[str, str]:
        """The names of the API keys among these actors, by key prefix. This takes one query."""
        prefixes = {actor for actor in actors if actor}
        query = KeyNames(prefixes=tuple(sorted(prefixes)))
        return dict(await self._store.find(org_id, query)) if prefixes else {}

    async def keys_called(self, org_id: UUID, name: str, limit: int) -> list[str]:
        """The prefixes of the keys with this name, newest first, including revoked and expired ones."""
        return await self._store.find(org_id, KeyPrefixes(name=name, limit=limit))

    async def audit(
        self,
        org_id: UUID,
        actor: str | None,
        action: str | None,
        cursor: str | None,
        limit: int,
        about: Sequence[UUID] = (),
        *,
        since: Instant | None = None,
        before: Instant | None = None,
    ) -> Page[AuditEntry]:
        """The audit entries, newest first. `actor` is a name, also of a key, or the visible prefix of a key. If many
        keys have this name, those created last are found. With `about`, only the entries about one of these ids."""
        actors = () if actor is None else (actor, *await self.keys_called(org_id, actor, _NAMESAKES_MAX))
        query = AuditFilter(actors=actors, action=action, about=tuple(about), since=since, before=before)
        return await self._page(org_id, query, cursor, limit)

    async def pipeline_names(self, org_id: UUID) -> list[str]:
        """The pipelines that any program of the organization has declared in this store."""
        declared = await self._store.find(None, PipelineDeclarations())
        return sorted(one.pipeline for one in declared if one.org_id == org_id)


def _check_owner(owner: str | None, user_id: str | None, event_id: UUID) -> None:
    if user_id not in (None, owner):
        raise NotFound(f"no event {event_id}")


class Stats(NamedTuple):
    """The counts that operators watch, each counted up to a limit."""

    retrying: Count
    """Deliveries that failed and will be retried."""
    dead: Count
    archived: Count
    inbox: Count
    """Events that wait to be acknowledged."""
    failed: Count
    """Failed events."""
    circuits_open: int
    oldest_due_at: Instant | None


class Backlog(NamedTuple):
    endpoints: int
    """Active endpoints with waiting deliveries."""
    oldest_due_at: Instant | None
    """When the oldest due delivery became due."""


class Waiting(NamedTuple):
    """The waiting deliveries of an endpoint."""

    held: bool
    """Whether the endpoint's circuit or state holds the deliveries."""
    due_at: Instant
    """When the first of the waiting deliveries is due."""
    endpoint: Endpoint

    @property
    def place(self) -> tuple[int, int, int]:
        """The sort key of the endpoint in the list."""
        return int(self.held), self.due_at, self.endpoint.endpoint_id.int


class Described(NamedTuple):
    """A delivery with the details that lists show."""

    delivery: Delivery
    endpoint: Endpoint
    held: Hold | None

    @property
    def endpoint_name(self) -> str:
        return self.endpoint.name

    @property
    def next_retry_at(self) -> Instant | None:
        """When it will really be retried; None before the first failure, and while it is held without an end."""
        due_at = self.delivery.next_retry_at
        return due_at if self.held is None else self.held.delays(due_at)


def hold_of_event(described: Iterable[Described]) -> Hold | None:
    """What holds an event: the hold that ends first, if all of its waiting deliveries are held."""
    holds = [one.held for one in described if one.delivery.state is DeliveryState.PENDING]
    held = [one for one in holds if one is not None]
    return min(held, key=lambda one: (one.until is None, one.until or 0)) if held and len(held) == len(holds) else None


class DescribedCause(NamedTuple):
    """A cause of dead letters with the details that screens show."""

    group: CauseGroup
    endpoint_name: str
    by_hour: tuple[int, ...]
    """Dead letters by hour over the last CAUSE_HOURS; in a busy hour the store stops counting at its limit."""
    example: Delivery | None
    """The newest dead letter; None if it no longer exists."""

    @property
    def key(self) -> str:
        """The id of the cause, as filters use it."""
        return f"{self.group.cause:016x}"


async def circuits_of(store: Store, org_id: UUID | None, endpoint_ids: Collection[UUID]) -> dict[UUID, Circuit]:
    """The circuits of these endpoints. An endpoint that never failed has no stored circuit and gets a closed one."""
    stored = await store.get_many(Circuit, org_id, list(endpoint_ids))
    return {one: Circuit(endpoint_id=one) for one in endpoint_ids} | {one.endpoint_id: one for one in stored}


def _or_level(count: Count, level: int) -> Count:
    return count if count.exact else Count(level, exact=True)


def _held(delivery: Delivery, endpoint: Endpoint, circuits: Mapping[UUID, Circuit]) -> Hold | None:
    circuit = circuits.get(endpoint.endpoint_id)
    return None if circuit is None else hold_of(delivery, endpoint, circuit)


LIMIT_MAX = 200


def checked_limit(limit: int) -> int:
    """Return the limit. Raises InvalidInput if it is not valid."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput("limit", f"must be a whole number from 1 to {LIMIT_MAX}, got {limit!r}")
    return limit


def page_of_sorted(placed: Sequence[tuple[Place, T]], keys: int, cursor: str | None, limit: int) -> Page[T]:
    """A page of an in-memory list that is sorted by place. The place of an item consists of its sort keys and its
    id; `keys` is the number of sort keys."""
    after = read_cursor(cursor, *[KEY_MAX] * keys, ID_MAX)
    ahead = [one for one in placed if after is None or one[0] > after]
    more = write_cursor(*ahead[limit - 1][0]) if len(ahead) > limit else None
    return Page(tuple(item for _, item in ahead[:limit]), more)
