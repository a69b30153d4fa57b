"""Lockstep: runs the same method calls on the reference model and another store; compares all answers and stored data.

Hypothesis chooses the calls and their arguments. Claims are named by delivery and token. Each side has its own claim
values, because a claim carries its store's handles.

There is only one rule, which draws the method to call (steps.py). With one rule per method, Hypothesis switched most of
them off in each example and spent its time on the rest, and only one example in three ever reached a claim. For a
similar reason, claims and deliveries are chosen by age and not from bundles: an empty bundle discards the example.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Literal, TypeVar
from uuid import UUID

from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from doorstep.clock import DAY, SECOND, Instant
from doorstep.errors import DoorstepError
from doorstep.model.action import Action, ActionKind, AuditEntry
from doorstep.model.batch import BatchFilter
from doorstep.model.claim import Claim, Lease, Quota, Settlement
from doorstep.model.delivery import NewDelivery
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint, EndpointState
from doorstep.model.event import EventStatus, Submission
from doorstep.model.inbox import InboxAnswer
from doorstep.model.listing import (
    AttemptFilter,
    AuditFilter,
    CauseGroups,
    DeadLetterFilter,
    DeliveryFilter,
    EndpointFilter,
    EventBodies,
    EventFilter,
    InboxFilter,
    PagedQuery,
    RetryQueueFilter,
    ShortIds,
    UnhealthyEndpoints,
)
from doorstep.model.record import earliest_id, short_id_ranges
from doorstep.model.rollup import HOUR, Span
from doorstep.stores.store import Retention, Store
from tests.contract.comparing import differences, dump, rows_by_state, shown
from tests.contract.counted import Counted
from tests.contract.lockstep_outbox import OutboxSteps, outbox_of
from tests.contract.places import Place
from tests.contract.steps import STEPS
from tests.contract.wanted import pages_of
from tests.reference import ReferenceStore
from tests.support.builders import NOW, an_endpoint, an_event, an_org, failure, id_maker, refusal, success
from tests.support.recounting import LEVELS, differing, recount
from tests.support.shortcuts import put, routing_versions, totals

T = TypeVar("T")
Handle = tuple[UUID, int]
Opening = Callable[[], AbstractContextManager[Place]]


class Side:
    """One of the two stores, with its own values for the claims that both sides know by name."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.claims: dict[Handle, Claim] = {}

    def remember(self, claims: Sequence[Claim]) -> list[Claim]:
        self.claims |= {(claim.delivery_id, claim.token): claim for claim in claims}
        return list(claims)


class Lockstep(OutboxSteps, RuleBasedStateMachine):
    """The state machine that calls one store method per step. Only `wait` advances the time."""

    def __init__(self, opening: Opening) -> None:
        super().__init__()
        self._exits = ExitStack()
        self._loop = asyncio.new_event_loop()
        self._place = self._exits.enter_context(opening())
        self._sides = (Side(ReferenceStore()), Side(self._await(self._place.open())))
        self._new_id = id_maker()
        self._events: list[tuple[UUID, UUID]] = []
        self._deliveries: list[UUID] = []
        self._handles: list[Handle] = []
        """The names of all claims, in the order in which they were first seen, including those settled long ago."""
        self.now: Instant = NOW
        self._counted = Counted()

    def teardown(self) -> None:
        try:
            self.compare_everything()
        finally:
            self._await(self._sides[1].store.close())
            self._exits.close()
            self._loop.close()

    @initialize()
    def prepare(self) -> None:
        """Create two organizations; the first has two endpoints, the second has one."""
        self.orgs = [an_org(org_id=self._new_id()) for _ in range(2)]
        owners = (0, 0, 1)
        self.endpoints = [an_endpoint(self.orgs[n].org_id, endpoint_id=self._new_id()) for n in owners]
        for side in self._sides:
            for org in self.orgs:
                self._await(put(side.store, org))
            for endpoint in self.endpoints:
                self._await(put(side.store, endpoint, 0))

    @rule(step=STEPS)
    def step(self, step: tuple[str, dict[str, Any]]) -> None:
        verb, arguments = step
        getattr(self, verb)(**arguments)

    # -- the path ------------------------------------------------------------------------------------------

    def wait(self, span: Instant) -> None:
        self.now += span

    def accept(self, events: list[Any], org: int, lease: Instant | None) -> None:
        submissions = [self._submission(self.orgs[org].org_id, *event) for event in events]
        self.take_in(submissions, None if lease is None else Lease(self.now + lease, "acceptor"))

    def take_in(self, submissions: list[Submission], lease: Lease | None = None) -> None:
        receipts = self.both(lambda side: self._accept(side, submissions, lease=lease))
        if not isinstance(receipts, Exception):
            self._know(claim for receipt in receipts for claim in receipt.claims)
        named = ((one.event.org_id, one.event.event_id) for one in submissions)
        self._events += [event for event in named if event not in self._events]
        self._deliveries += [owed.delivery_id for one in submissions for owed in one.deliveries]

    def accept_from_old_endpoints(self, events: list[Any]) -> None:
        submissions = [self._submission(self.orgs[0].org_id, *event) for event in events]
        self.both(lambda side: self._accept(side, submissions, behind=1))

    def claim(self, quotas: list[Any], lease: Instant, worker: str, forced_max: int, unserved: list[int]) -> None:
        wanted = [self._quota(*quota) for quota in quotas]
        left, until = [self.endpoints[n].endpoint_id for n in unserved], self.now + lease
        self._claim(lambda store: store.claim(wanted, self.now, until, worker, forced_max, left))

    def _quota(
        self, n: int, count: int, concurrency: int | None, rate: float | None, which: str | None, ago: Instant
    ) -> Quota:
        chosen = {} if which is None else {which.replace(" ", "_"): self.now - ago}
        limits = {"concurrency_max": concurrency, "rate_per_second": rate}
        return Quota(self.endpoints[n].endpoint_id, count, **limits, **chosen)  # type: ignore[arg-type]

    def claim_all(self) -> None:
        wanted = [Quota(endpoint.endpoint_id, 100) for endpoint in self.endpoints]
        self._claim(lambda store: store.claim(wanted, self.now, self.now + SECOND, "w3"))

    def expired(self, limit: int) -> None:
        self._claim(lambda store: store.expired(self.now, limit))

    def settle(self, picks: list[int], ends: list[str], span: Instant, retries_max: int) -> None:
        """Settle claims of any age, perhaps the same one twice in one call."""
        results = list(zip(_picked(self._handles, picks), ends, strict=False))

        def settlements(side: Side) -> list[Settlement]:
            return [self._settlement(side.claims[handle], end, span, retries_max) for handle, end in results]

        self.both(lambda side: side.store.settle(settlements(side), self.now))
        self._counted.tried += len(results)

    def release(self, picks: list[int]) -> None:
        handles = _picked(self._handles, picks)
        self.both(lambda side: side.store.release([side.claims[handle] for handle in handles], self.now))

    def renew_leases(self, worker: str) -> None:
        self.both(lambda side: side.store.renew_leases(worker, self.now))

    def shift_waits(self, back: Instant) -> None:
        self.both(lambda side: side.store.shift_waits(self.now - back, 1_000))

    def routing(self, behind: int) -> None:
        async def routing(side: Side) -> Any:
            known = {org_id: version - behind for org_id, version in (await routing_versions(side.store)).items()}
            return sorted(await side.store.routing(known), key=lambda one: one.org.org_id)

        self.both(routing)

    def due_lanes(self, later_max: int | None) -> None:
        self.both(lambda side: side.store.due_lanes(self.now, later_max))

    # -- endpoints, circuits, operators --------------------------------------------------------------------

    def change_endpoint(self, n: int, state: EndpointState, behind: int, audited: bool) -> None:
        changed = replace(self.endpoints[n], state=state, updated_at=self.now)
        version = self.endpoints[n].version - behind
        line = self._audit_line(changed) if audited else None
        if self.both(lambda side: put(side.store, changed, version, entry=line)):
            self.endpoints[n] = replace(changed, version=version + 1)

    def change_circuit(self, n: int, state: CircuitState, failures: int, behind: int) -> None:
        endpoint_id = self.endpoints[n].endpoint_id
        changed = Circuit(endpoint_id=endpoint_id, state=state, failures=failures, changed_at=self.now)
        version = self._await(self._sides[0].store.get(Circuit, None, endpoint_id)).version
        self.both(lambda side: side.store.put_circuit(changed, version - behind, "because"))

    def dead_letter_waiting(self, n: int, limit: int, created_before: Instant | None) -> None:
        endpoint_id = self.endpoints[n].endpoint_id
        self.both(
            lambda side: side.store.dead_letter_waiting(endpoint_id, "GONE", "buried", self.now, limit, created_before)
        )

    def act(self, kind: ActionKind, picks: list[int], org: int, span: Instant, reason: str) -> None:
        act = Action(
            kind=kind,
            org_id=self.orgs[org].org_id,
            delivery_ids=(*_picked(self._deliveries, picks), self._new_id()),
            actor="ops",
            at=self.now,
            reason=reason,
            revive_at=self.now + span,
        )
        self.both(lambda side: side.store.act(act))

    def edit_and_retry(self, pick: int, org: int, payload: bytes) -> None:
        act = Action(
            kind=ActionKind.RETRY,
            org_id=self.orgs[org].org_id,
            delivery_ids=tuple(_picked(self._deliveries, [pick])),
            actor="ops",
            at=self.now,
            revive_at=self.now,
            payload=payload,
        )
        self.both(lambda side: side.store.act(act))

    def delete_event(self, pick: int, org: int) -> None:
        event_id = next((event_id for _, event_id in _picked([*self.posted, *self._events], [pick])), self._new_id())
        self.both(lambda side: side.store.delete_event(self.orgs[org].org_id, event_id, "ops", self.now))

    def lease_inbox(self, types: list[str], org: int, limit: int, lease: Instant, user: str | None) -> None:
        org_id, until = self.orgs[org].org_id, self.now + lease
        self.both(lambda side: side.store.lease_inbox(org_id, types, limit, "consumer", self.now, until, user))

    def answer_inbox(
        self, picks: list[int], org: int, token: int | None, delay: Instant | None, user: str | None
    ) -> None:
        """Acknowledge or give back any events. Many have deliveries or belong to the other organization, so the store
        refuses."""
        events = [event_id for _, event_id in _picked([*self.posted, *self._events], picks)]
        visible_at = None if delay is None else self.now + delay
        answers = [InboxAnswer(one, token, visible_at, user) for one in dict.fromkeys([*events, self._new_id()])]
        self.both(lambda side: side.store.answer_inbox(self.orgs[org].org_id, answers, "consumer", self.now))

    # -- retention -----------------------------------------------------------------------------------------

    def archive(self, age: Instant, limit: int) -> None:
        self.both(lambda side: side.store.archive(self.now - age, self.now, limit))

    def expire(self, since: Instant, limit: int) -> None:
        since = self.now - since if since else 0
        self.both(lambda side: side.store.expire("EXPIRED", "too late", since, self.now, limit))

    def clean(self, age: Instant, limit: int, inbox_age: Instant, audit_age: Instant) -> None:
        retention = Retention(
            settled_before=self.now - age,
            dead_before=self.now - DAY - age,
            inbox_before=self.now - inbox_age,
            audit_before=self.now - audit_age,
        )
        self.both(lambda side: side.store.clean(retention, self.now, limit))

    # -- figures -------------------------------------------------------------------------------------------

    def aggregate(self, minutes: Instant, hours: Instant) -> None:
        """Aggregate all counters. Their number is not compared: each PostgreSQL connection has its own counters."""
        before = {"minutes_before": self.now - DAY - minutes, "hours_before": self.now - 2 * DAY - hours}
        for side in self._sides:
            self._await(side.store.aggregate(self.now, 10_000, **before))

    def figures(self, org: int, since: Instant, until: Instant) -> None:
        org_id, endpoint_ids = self.orgs[org].org_id, [one.endpoint_id for one in self.endpoints]
        self.both(lambda side: side.store.figures(org_id, endpoint_ids, self.now - since, self.now + until))
        self.both(lambda side: side.store.circuit_counts(org_id))
        self.both(
            lambda side: side.store.find(
                org_id, UnhealthyEndpoints(since=Span.HOUR.start(self.now - since), hours=2 + since // HOUR, limit=3)
            )
        )

    def _check_figures(self) -> None:
        """Check the figures against the answers so far, and the current levels against the rows."""
        store = self._sides[1].store
        self._counted.check(self._await(totals(store)))
        for org in self.orgs:
            of_org = [event_id for org_id, event_id in self._events if org_id == org.org_id]
            counted = self._await(recount(store, org.org_id, of_org))[None]
            differences = differing(self._await(totals(store, org.org_id)), counted)
            assert not [one for one in differences if one[0] in LEVELS], differences

    # -- lists ---------------------------------------------------------------------------------------------

    def list_events(self, wanted: EventFilter, endpoint: int | None, org: int, limit: int) -> None:
        wanted = replace(wanted, endpoint_id=self._endpoint_id(endpoint))
        self._list(org, wanted, limit)
        self._list(org, EventBodies(filter=wanted), limit)

    def short_ids(self, kind: Literal["event", "delivery"], pick: int, org: int, limit: int) -> None:
        ids = [event_id for _, event_id in self._events] if kind == "event" else self._deliveries
        tail = next((found.int & 0xFFFF_FFFF for found in _picked(ids, [pick])), 0)
        query = ShortIds(kind=kind, tail=tail, ranges=short_id_ranges(tail, self.now, 3), limit=limit)
        self.both(lambda side: side.store.find(self.orgs[org].org_id, query))

    def list_deliveries(self, wanted: DeliveryFilter, endpoint: int | None, org: int, limit: int) -> None:
        self._list(org, replace(wanted, endpoint_id=self._endpoint_id(endpoint)), limit)

    def list_attempts(self, wanted: AttemptFilter, endpoint: int | None, org: int, limit: int) -> None:
        self._list(org, replace(wanted, endpoint_id=self._endpoint_id(endpoint)), limit)

    def inbox(self, status: EventStatus, user: str | None, org: int, limit: int) -> None:
        self._list(org, InboxFilter(status=status, user_id=user), limit)

    def retry_queue(self, wanted: RetryQueueFilter, endpoint: int | None, org: int, limit: int) -> None:
        wanted = replace(wanted, endpoint_id=self._endpoint_id(endpoint))
        self._list(org, wanted, limit)

    def dead_letters(self, wanted: DeadLetterFilter, endpoint: int | None, cause: int, org: int, limit: int) -> None:
        wanted = replace(wanted, endpoint_id=self._endpoint_id(endpoint))
        causes = [group.cause for page in self._list(org, CauseGroups(filter=wanted), limit) for group in page]
        self.both(lambda side: side.store.dead_letters_by_hour(self.orgs[org].org_id, causes, NOW, 3))
        wanted = replace(wanted, cause=causes[cause] if cause < len(causes) else None)
        self._list(org, CauseGroups(filter=wanted), limit)
        self._list(org, wanted, limit)

    def list_batches(self, wanted: BatchFilter, org: int, limit: int) -> None:
        self._list(org, wanted, limit)

    def list_endpoints(self, state: EndpointState | None, org: int, limit: int) -> None:
        self._list(org, EndpointFilter(state=state), limit)

    def list_audit(self, actor: str | None, action: str | None, picks: list[int], org: int, limit: int) -> None:
        """List all audit entries, or those about some deliveries and an endpoint."""
        about = [*_picked(self._deliveries, picks), *(one.endpoint_id for one in self.endpoints[: len(picks)][-1:])]
        actors = () if actor is None else (actor,)
        self._list(org, AuditFilter(actors=actors, action=action, about=tuple(about)), limit)

    def _list(self, org: int, query: PagedQuery[Any], limit: int) -> list[tuple[Any, ...]]:
        """Read every page of a list, each side with its own cursors, and compare its length too."""
        org_id = self.orgs[org].org_id
        if isinstance(query, EventFilter | InboxFilter | RetryQueueFilter | DeadLetterFilter):
            self.both(lambda side: side.store.count(org_id, query))
        pages: list[tuple[Any, ...]] = self.both(lambda side: pages_of(side.store.page, org_id, query, limit=limit))
        return pages

    def _endpoint_id(self, n: int | None) -> UUID | None:
        return None if n is None else self.endpoints[n].endpoint_id

    # -- comparison ----------------------------------------------------------------------------------------

    @invariant()
    def states(self) -> None:
        """Compare the number of deliveries per state, counted from the rows."""
        self.both(lambda side: rows_by_state(side.store, self._place))

    def compare_everything(self) -> None:
        kept = [self._await(dump(side.store, [*self._events, *self.posted])) for side in self._sides]
        _agree(*kept)
        _agree(*[self._await(outbox_of(side.store)) for side in self._sides])
        self._check_figures()

    def both(self, call: Callable[[Side], Awaitable[Any]]) -> Any:
        """Call both sides and compare: the same value or the same kind of error. Returns the model's answer."""
        answers = [self._await(_answer(call(side))) for side in self._sides]
        _agree(*map(shown, answers))
        self._counted.add(answers[0])
        return answers[0]

    # -- arguments -----------------------------------------------------------------------------------------

    def _accept(
        self, side: Side, submissions: list[Submission], behind: int = 0, lease: Lease | None = None
    ) -> Awaitable[Any]:
        async def accept() -> Any:
            versions = {org_id: version - behind for org_id, version in (await routing_versions(side.store)).items()}
            receipts = await side.store.accept(submissions, versions, self.now, lease)
            side.remember([claim for receipt in receipts for claim in receipt.claims])
            return receipts

        return accept()

    def _audit_line(self, endpoint: Endpoint) -> AuditEntry:
        subjects = (str(endpoint.endpoint_id),)
        return AuditEntry(
            at=self.now, org_id=endpoint.org_id, actor="ops", action="change", subjects=subjects, result=endpoint.state
        )

    def _submission(
        self,
        org_id: UUID,
        owed: list[Any],
        key: str | None,
        other_body: bool,
        expires: Instant | None,
        ordering_key: str | None,
        delay: Instant | None,
        batch: bool,
        claimable: bool,
        user_id: str | None,
    ) -> Submission:
        event = an_event(
            org_id,
            event_id=self.new_event_id(),
            event_type="order.paid" if other_body else "user.created",
            payload=b"%d" % other_body,
            correlation_id=f"request-{1 + other_body}",
            created_at=self.now,
            expires_at=None if expires is None else self.now + expires,
            ordering_key=ordering_key,
            deliver_at=None if delay is None else self.now + delay,
            user_id=user_id,
        )
        own = [endpoint.endpoint_id for endpoint in self.endpoints if endpoint.org_id == org_id]
        due = [(own[n], self.now + span, retries) for n, span, retries in owed if n < len(own)]
        deliveries = (NewDelivery(self._new_id(), *one, batch and one is due[0], claimable) for one in due)
        search_keys = (1, -2) if batch else (1,) if other_body else ()
        return Submission(event, tuple(deliveries), key, event.payload, search_keys)

    def new_event_id(self) -> UUID:
        return UUID(int=earliest_id(self.now).int | self._new_id().int & 2**64 - 1)

    def new_delivery_id(self) -> UUID:
        return self._new_id()

    def _claim(self, take: Callable[[Store], Awaitable[list[Claim]]]) -> None:
        async def claim(side: Side) -> list[Claim]:
            return side.remember(await take(side.store))

        self._know(self.both(claim))

    def _know(self, claims: Iterable[Claim]) -> None:
        handles = ((claim.delivery_id, claim.token) for claim in claims)
        self._handles += [handle for handle in handles if handle not in self._handles]

    def _settlement(self, claim: Claim, end: str, span: Instant, retries_max: int) -> Settlement:
        if end == "delivered":
            return Settlement.delivered(claim, success(self.now))
        if end == "dead":
            return Settlement.dead(claim, refusal(self.now))
        if end == "held":
            return Settlement.held(claim, failure(self.now), retries_max)
        if end == "restored" and claim.was_due_at is not None:
            return Settlement.restored(claim, failure(self.now), max(self.now, claim.was_due_at))
        return Settlement.retry(claim, failure(self.now), self.now + span, retries_max, end == "on recovery")

    def _await(self, work: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(work)


async def _answer(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except DoorstepError as error:
        return type(error)


def _agree(model: Any, other: Any) -> None:
    found = differences(model, other)
    assert not found, "\n".join(["what the model says is not what the store says:", *found])


def _picked(things: list[T], picks: list[int]) -> list[T]:
    return [things[-1 - pick % len(things)] for pick in picks] if things else []
