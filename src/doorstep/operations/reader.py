"""Beside the path: lists of events, deliveries, endpoints and what was done to them, as people see them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from doorstep.clock import DAY, Clock, Instant
from doorstep.engine.coalesce import Coalescer, Shared, Weight
from doorstep.engine.directory import Directory, Tuning
from doorstep.errors import InvalidInput, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.attempt import Attempt
from doorstep.model.circuit import Circuit, CircuitChange
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine, as_seen
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.listing import CauseGroup, Count, DeadLetterFilter, EventFilter, Page, RetryQueueFilter
from doorstep.model.worker import KEPT, WorkerEntry
from doorstep.policy.circuit import why_held
from doorstep.stores.store import Store

_EventOf = tuple[UUID, UUID]
"""An organization, and an event of it."""
_WORKERS_MAX = 1_000


class Reader:
    """Every list is bounded in time: pages by cursor, counts up to a limit."""

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

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        """An event in full, with its status; also one that is still in the outbox."""
        return await self._store.event(org_id, event_id)

    async def summary(self, org_id: UUID, event_id: UUID) -> EventSummary:
        """Where an event stands. Of all who ask at the same time, one asks the store."""
        return await self._summaries.submit((org_id, event_id))

    async def _find_summaries(self, asked: list[_EventOf]) -> list[EventSummary | Exception]:
        found: dict[_EventOf, EventSummary] = {}
        for org_id in {org_id for org_id, _ in asked}:
            summaries = await self._store.summaries(org_id, [event_id for org, event_id in asked if org == org_id])
            found |= {(org_id, summary.event_id): summary for summary in summaries}
        return [found.get(one) or NotFound(f"no event {one[1]}") for one in asked]

    async def events(self, org_id: UUID, wanted: EventFilter, cursor: str | None, limit: int) -> Page[EventSummary]:
        """The newest first."""
        return await self._store.list_events(org_id, wanted, cursor, limit)

    async def inbox(
        self, org_id: UUID, status: EventStatus, cursor: str | None, limit: int
    ) -> tuple[Page[EventView], Count]:
        """Events that no push endpoint takes (or failed ones), oldest first; and how many there are."""
        return await asyncio.gather(
            self._store.inbox(org_id, status, cursor, limit),
            self._counts.ask(("inbox", org_id, status), lambda: self._store.count_inbox(org_id, status)),
        )

    # -- deliveries ----------------------------------------------------------------------------------------

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        """The deliveries of an event, one for each endpoint that takes it."""
        return [self.seen(delivery) for delivery in await self._store.deliveries(org_id, event_id)]

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery:
        """One delivery in its present state."""
        return self.seen(await self._store.delivery(org_id, delivery_id))

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        """The attempts of a delivery, oldest first."""
        return await self._store.attempts(org_id, delivery_id)

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        """Every change of a delivery's state, oldest first."""
        return await self._store.history(org_id, delivery_id)

    async def why_held(self, delivery: Delivery) -> str | None:
        """Why a waiting delivery is held: its endpoint is paused or disabled, or its circuit is not closed."""
        return (await self.described(delivery.org_id, [delivery]))[0].held

    async def retry_queue(
        self, org_id: UUID, wanted: RetryQueueFilter, cursor: str | None, limit: int
    ) -> tuple[Page[Delivery], Count]:
        """What failed and will be tried again, the next retry first; and how many there are."""
        return await asyncio.gather(
            self._store.retry_queue(org_id, wanted, cursor, limit),
            self._counts.ask(("queue", org_id, wanted), lambda: self._store.count_retry_queue(org_id, wanted)),
        )

    async def dead_letters(
        self, org_id: UUID, wanted: DeadLetterFilter, cursor: str | None, limit: int
    ) -> tuple[Page[Delivery], Count]:
        """The newest death first; and how many there are."""
        page, count = await asyncio.gather(
            self._store.dead_letters(org_id, self.dated(wanted), cursor, limit),
            self._counts.ask(("letters", org_id, wanted), lambda: self._count_letters(org_id, wanted)),
        )
        return Page(tuple(self.seen(delivery) for delivery in page.items), page.next), count

    async def _count_letters(self, org_id: UUID, wanted: DeadLetterFilter) -> Count:
        """Dated only when it is asked: with its instant, no question would be the same as another."""
        return await self._store.count_dead_letters(org_id, self.dated(wanted))

    async def cause_groups(
        self, org_id: UUID, wanted: DeadLetterFilter, cursor: str | None, limit: int
    ) -> Page[CauseGroup]:
        return await self._store.cause_groups(org_id, self.dated(wanted), cursor, limit)

    def dated(self, wanted: DeadLetterFilter) -> DeadLetterFilter:
        """With the instant before which an untouched dead letter counts as archived."""
        return msgspec.structs.replace(wanted, archived_before=self._clock.now() - self._archive_after)

    def seen(self, delivery: Delivery) -> Delivery:
        return as_seen(delivery, self._clock.now(), self._archive_after)

    # -- how much there is ---------------------------------------------------------------------------------

    async def stats(self, org_id: UUID) -> Stats:
        """Figures that cost the same however much is stored. Where counting stops, the levels go on: they are exact, but
        for what the cleaner has not archived yet."""
        letters, levels = self.dated(DeadLetterFilter()), await self._store.totals(org_id)
        archived = msgspec.structs.replace(letters, archived=True)
        return Stats(
            retrying=await self._store.count_retry_queue(org_id, RetryQueueFilter()),
            dead=_or_level(await self._store.count_dead_letters(org_id, letters), levels.now_dead),
            archived=_or_level(await self._store.count_dead_letters(org_id, archived), levels.now_archived),
            inbox=await self._store.count_inbox(org_id, EventStatus.RECEIVED),
            failed=Count(levels.now_failed, exact=True),
            oldest_due_at=(await self.backlog(org_id)).oldest_due_at,
        )

    async def backlog(self, org_id: UUID | None = None) -> Backlog:
        """What waits, seen from its endpoints; of one organization, or of all but the reserved one."""
        await self._directory.refresh()
        now = self._clock.now()
        lanes = await self._counts.ask("lanes", lambda: self._store.lanes(now))
        active = [lane for lane in lanes if self._active(lane.endpoint_id, org_id)]
        due = [lane.due_at for lane in active if lane.due_at <= now and not lane.is_barred]
        return Backlog(len(active), min(due, default=None))

    async def waiting(self, org_id: UUID) -> list[Waiting]:
        """Endpoint by endpoint: first what nothing holds, the oldest due first, then the rest in the same order."""
        await self._directory.refresh()
        now = self._clock.now()
        lanes = await self._counts.ask("lanes", lambda: self._store.lanes(now))
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
        return await self._store.list_endpoints(org_id, state, cursor, limit)

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        """One endpoint in its present state."""
        return await self._store.endpoint(org_id, endpoint_id)

    async def circuit(self, org_id: UUID, endpoint_id: UUID) -> Circuit:
        """Whether an endpoint is being tried, and since when."""
        await self._store.endpoint(org_id, endpoint_id)
        return await self._store.circuit(endpoint_id)

    async def circuit_history(self, org_id: UUID, endpoint_id: UUID, limit: int | None = None) -> list[CircuitChange]:
        """When and why the circuit opened and closed, oldest first; all that is kept, or the newest `limit` of it."""
        await self._store.endpoint(org_id, endpoint_id)
        return await self._store.circuit_history(endpoint_id, limit)

    async def workers(self) -> list[WorkerEntry]:
        """The processes that deliver: the live ones by name, then the lost ones, the latest first."""
        now = self._clock.now()
        found = await self._store.workers(now - KEPT, _WORKERS_MAX)
        live = sorted((one for one in found if not one.is_lost(now)), key=lambda one: one.name)
        return [*live, *(one for one in found if one.is_lost(now))]

    async def described(self, org_id: UUID, deliveries: Sequence[Delivery]) -> list[Described]:
        """Each with its endpoint's name and, where it is held, why; one look at all endpoints together."""
        endpoints = await self._endpoints(org_id, (one.endpoint_id for one in deliveries))
        waiting = {one.endpoint_id for one in deliveries if one.state is DeliveryState.PENDING}
        known = await self._store.circuits(org_id, list(waiting)) if waiting else {}
        circuits = {one: known.get(one) or Circuit(endpoint_id=one) for one in waiting}
        return [
            Described(one, endpoints[one.endpoint_id].name, _held(one, endpoints[one.endpoint_id], circuits))
            for one in deliveries
        ]

    async def endpoint_names(self, org_id: UUID, endpoint_ids: Iterable[UUID]) -> dict[UUID, str]:
        """Those of these that there are, deleted ones too."""
        return {key: one.name for key, one in (await self._endpoints(org_id, endpoint_ids)).items()}

    async def _endpoints(self, org_id: UUID, endpoint_ids: Iterable[UUID]) -> dict[UUID, Endpoint]:
        """From the picture at hand, which has those of every organization; deleted ones are not in it, and are asked for
        together, as are those of others: of them the store knows nothing here."""
        await self._directory.refresh()
        asked = {key: self._directory.endpoint(key) for key in endpoint_ids}
        own = {key: one for key, one in asked.items() if one is not None and one.org_id == org_id}
        missing = [key for key in asked if key not in own]
        others = await self._store.these_endpoints(org_id, missing) if missing else []
        return own | {one.endpoint_id: one for one in others}

    async def key_names(self, org_id: UUID, actors: Iterable[str | None]) -> dict[str, str]:
        """What the keys among those who did something are called, by their visible beginnings. One question."""
        asked = {actor for actor in actors if actor}
        return await self._store.key_names(org_id, sorted(asked)) if asked else {}

    async def keys_called(self, org_id: UUID, name: str, limit: int) -> list[str]:
        """The visible beginnings of the keys of this name, the newest first, revoked and expired ones too."""
        return await self._store.keys_called(org_id, name, limit)

    async def audit(
        self,
        org_id: UUID,
        actor: str | None,
        action: str | None,
        cursor: str | None,
        limit: int,
        about: Sequence[UUID] = (),
    ) -> Page[AuditEntry]:
        """The newest first; all of them, or those that are about one of these."""
        return await self._store.list_audit(org_id, actor, action, cursor, limit, about)


class Stats(NamedTuple):
    """How much there is of what people look after; each counted up to a limit."""

    retrying: Count
    """Deliveries that failed and will be tried again."""
    dead: Count
    archived: Count
    inbox: Count
    """Events that wait to be acknowledged."""
    failed: Count
    """Failed events."""
    oldest_due_at: Instant | None


class Backlog(NamedTuple):
    endpoints: int
    """Active endpoints that have deliveries waiting."""
    oldest_due_at: Instant | None
    """Since when the first of those that are due has been due."""


class Waiting(NamedTuple):
    """What waits for an endpoint."""

    held: bool
    """By its circuit or its state."""
    due_at: Instant
    """The first of it."""
    endpoint: Endpoint

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands in the list of them."""
        return int(self.held), self.due_at, self.endpoint.endpoint_id.int


class Described(NamedTuple):
    """A delivery with what a list says about it besides."""

    delivery: Delivery
    endpoint_name: str
    held: str | None


def _or_level(count: Count, level: int) -> Count:
    return count if count.exact else Count(level, exact=True)


def _held(delivery: Delivery, endpoint: Endpoint, circuits: Mapping[UUID, Circuit]) -> str | None:
    circuit = circuits.get(endpoint.endpoint_id)
    return None if circuit is None else why_held(delivery, endpoint, circuit)


LIMIT_MAX = 200


def checked_limit(limit: int) -> int:
    """The limit, if it is one."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput("limit", f"must be a whole number from 1 to {LIMIT_MAX}, got {limit!r}")
    return limit
