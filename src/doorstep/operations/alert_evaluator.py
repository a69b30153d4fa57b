"""The AlertEvaluator: reads incidents and figures, and writes the resulting alerts and messages.

One transaction writes the results and removes their incidents. If a process is killed at any point, the next one finds
either everything done or nothing. If two processes evaluate at the same time, versions ensure that only one of them
writes.

Each organization is evaluated separately, with a bounded number of incidents at a time, so that a flood or an error in
one organization does not delay the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple
from uuid import UUID

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.engine.directory import Directory
from doorstep.errors import process_all
from doorstep.model.alert import (
    OPERATIONS_ORG,
    AlertConfigs,
    AlertRule,
    AlertWrite,
    Channel,
    Incident,
    IncidentKind,
    Incidents,
    LiveAlerts,
    OrgsToReview,
    OrgsWithIncidents,
    Rule,
    Silence,
)
from doorstep.model.claim import Lane
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint, EndpointState
from doorstep.model.listing import FailingEndpoints
from doorstep.model.rollup import Figures, Span
from doorstep.operations.alert_batch import AlertBatch
from doorstep.operations.endpoints import EndpointNames
from doorstep.policy.alerts import Rules, failing, is_above
from doorstep.policy.circuit import in_a_row
from doorstep.stores.store import Store

INCIDENTS_MAX = 500
"""How many incidents of one organization are processed together."""

Late = dict[UUID, float]
"""How many seconds the oldest due delivery of each endpoint has been due, by endpoint id."""


class Reviewable(NamedTuple):
    """The work for one review."""

    late: dict[UUID, Late]
    """The organizations to review, each with its late endpoints."""
    died: int
    """The number of attempts that have ever failed permanently, in all organizations."""


class AlertEvaluator:
    def __init__(
        self, store: Store, directory: Directory, clock: Clock, console: str, wake_forwarder: Callable[[], None]
    ) -> None:
        """`wake_forwarder` is called after messages were put into the outbox."""
        self._store = store
        self._directory = directory
        self._clock = clock
        self._console = console
        self._wake_forwarder = wake_forwarder
        self._measurements = Measurements(store, clock)
        self._failing: defaultdict[UUID, set[UUID]] = defaultdict(set)
        """By organization, the endpoints with recent dead letters, including deleted endpoints. Their failure rate may
        still rise above the threshold."""
        self.idle = False
        """Whether the last call of `find_reviewable` found nothing that may need a review soon."""
        self._died = 0
        """The value of `Reviewable.died` at the latest review. If it has changed since, there are failures that this
        process has not reviewed: another alerter is handling them, or was killed before it could handle them."""

    async def process_incidents(self) -> None:
        """Process up to INCIDENTS_MAX incidents of each organization."""
        await process_all(await self._store.find(None, OrgsWithIncidents()), self._process_org)

    async def find_reviewable(self, idle_until: Instant) -> Reviewable | None:
        """Find the work for the next review without changing anything; None if there is nothing to do. If no delivery
        is waiting and no alert must be reviewed until `idle_until`, only a write can lead to work before then, and
        `idle` is set."""
        await self._directory.refresh()
        lanes = await self._store.due_lanes(self._clock.now())
        late = await self._measurements.late(lanes, self._directory)
        soon = await self._store.find(None, OrgsToReview(now=idle_until))
        to_review = await self._store.find(None, OrgsToReview(now=self._clock.now())) if soon else []
        for org_id in (*to_review, *self._failing):
            late.setdefault(org_id, {})
        late.pop(OPERATIONS_ORG, None)
        died = (await self._store.figures(None, [None], names=("died",)))[None].died
        found = Reviewable(late, died) if late or died != self._died else None
        self.idle = not (lanes or soon or found)
        return found

    async def review(self, found: Reviewable) -> None:
        """Measure again, and apply the changes that result from the passage of time."""
        self._died = found.died
        late = found.late
        await process_all(
            sorted({*late, *self._failing}), lambda org_id: self._review_org(org_id, late.get(org_id, {}))
        )

    async def load_failing(self) -> None:
        """Load the endpoints with a recent dead letter, within the longest window that a rule can have.

        The previous alerter kept these endpoints only in memory, and it may have been killed. Deleted endpoints are
        included, because the organization's failure rate leaves out a deleted endpoint only if this process knows about
        the endpoint's failures.
        """
        since = Span.HOUR.start(self._clock.now() - seconds(WINDOW_SECONDS_MAX))
        failing_endpoints = await self._store.find(None, FailingEndpoints(since=since))
        for org_id, endpoint_id in failing_endpoints:
            if org_id != OPERATIONS_ORG:
                self._failing[org_id].add(endpoint_id)

    def forget_failing(self) -> None:
        """Forget the failing endpoints, because another process evaluates alerts now."""
        self._failing.clear()

    # -- one organization ----------------------------------------------------------------------------------

    async def _process_org(self, org_id: UUID) -> None:
        incidents = await self._store.find(org_id, Incidents(limit=INCIDENTS_MAX))
        if org_id == OPERATIONS_ORG:  # a failed message causes no other message; its channel shows the failure
            await self._store.write_alerts(AlertWrite(org_id=org_id, incident_keys=tuple(one.key for one in incidents)))
            return
        # Read after the incidents, so that an endpoint that is missing was deleted.
        endpoints = await self._directory.endpoints_of(org_id)
        names = EndpointNames(org_id, endpoints)
        await names.look_up(self._store, (one.endpoint_id for one in incidents))
        batch = await self._batch(org_id, names)
        for incident in incidents:
            batch.add_incident(incident)
        self._add_failing(org_id, incidents, endpoints)
        late = None
        if any(one.kind is IncidentKind.RULES_CHANGED for one in incidents):
            await self._measurements.add_conditions(batch, endpoints)
            lanes = await self._store.due_lanes(self._clock.now())
            late = (await self._measurements.late(lanes, self._directory)).get(org_id, {})
        await self._finish(batch, late)

    async def _review_org(self, org_id: UUID, late: Late) -> None:
        names = EndpointNames(org_id, await self._directory.endpoints_of(org_id))
        await self._finish(await self._batch(org_id, names), late)

    async def _finish(self, batch: AlertBatch, late: Late | None) -> None:
        """Measure the figures that may have changed, and write the batch. If another process wrote first, nothing is
        written, and the next round processes the remaining incidents."""
        known = self._failing.get(batch.org_id, set())
        still_failing = await self._measurements.add_rates(batch, known | batch.endpoints_with(Rule.FAILURE_RATE))
        await self._measurements.add_dead_letters(batch)
        if late is not None:
            add_late(batch, late)
        batch.review()
        write = batch.write()
        if (write.incident_keys or write.changes) and await self._store.write_alerts(write) and write.messages:
            self._wake_forwarder()
        self._keep_failing(batch.org_id, still_failing)

    async def _batch(self, org_id: UUID, names: EndpointNames) -> AlertBatch:
        config = await self._store.find(org_id, AlertConfigs())
        rules = Rules(
            org_id,
            (one for one in config if isinstance(one, AlertRule)),
            (one for one in config if isinstance(one, Silence)),
        )
        now = self._clock.now()
        alerts = await self._store.find(org_id, LiveAlerts(ended_after=now - seconds(rules.memory_seconds)))
        channels = [one for one in config if isinstance(one, Channel)]
        return AlertBatch(org_id, rules, channels, alerts, now, names, self._console)

    # -- endpoints with recent dead letters ----------------------------------------------------------------

    def _add_failing(self, org_id: UUID, incidents: Iterable[Incident], endpoints: Sequence[Endpoint]) -> None:
        """Add the endpoints of new dead letters. After a rule was changed, add all endpoints of the organization."""
        for incident in incidents:
            if incident.kind is IncidentKind.DELIVERY_DEAD and incident.endpoint_id is not None:
                self._failing[org_id].add(incident.endpoint_id)
            elif incident.kind is IncidentKind.RULES_CHANGED:
                self._failing[org_id].update(one.endpoint_id for one in endpoints)

    def _keep_failing(self, org_id: UUID, endpoint_ids: set[UUID]) -> None:
        """Keep only the endpoints with a dead letter within their window."""
        if endpoint_ids:
            self._failing[org_id] = endpoint_ids
        else:
            self._failing.pop(org_id, None)


# -- measurements ------------------------------------------------------------------------------------------

OLDEST_DUE_SECONDS_MIN = 10.0
"""The smallest threshold that the rule `oldest_due` may have. Deliveries that have been due for less time need not be
measured."""
WINDOW_SECONDS_MAX = 86_400.0
"""The longest window over which a failure rate may be measured."""


class Measurements:
    """Reads figures from the store and adds them to a batch."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    # -- failure rates -------------------------------------------------------------------------------------

    async def add_rates(self, batch: AlertBatch, endpoint_ids: Collection[UUID]) -> set[UUID]:
        """Add the failure rates of these endpoints and of the whole organization. Returns the endpoints with a dead
        letter within their window, because their rates may still rise without another dead letter.

        The figures of the organization and of its endpoints come from one read. With two reads, a dead letter that is
        added between them would count only for the organization.
        """
        own = batch.rules.own_of(Rule.FAILURE_RATE)
        since = batch.now - seconds(batch.rules.of(Rule.FAILURE_RATE).window_seconds)
        named = sorted({*endpoint_ids} | own | batch.departed_with(Rule.FAILURE_RATE, since))
        parts = await self._store.figures(batch.org_id, [None, *named], since, batch.now + 1)
        figures = {one: parts[one] for one in endpoint_ids if one not in own}
        figures |= await self._own_figures(batch, own.intersection(endpoint_ids))
        for endpoint_id in sorted(figures):
            self._add_rate(batch, endpoint_id, figures[endpoint_id])
        still_failing = {one for one, recent in figures.items() if recent.died}
        excluded = self._excluded(batch, still_failing, since)
        self._add_rate(batch, None, parts[None] - reduce(add, (parts[one] for one in excluded), Figures()))
        return still_failing

    def _excluded(self, batch: AlertBatch, still_failing: set[UUID], since: Instant) -> set[UUID]:
        """The endpoints that the organization's rate leaves out. Endpoints with their own rule are left out. So are
        deleted endpoints, because their failures no longer matter. Endpoints that already had an alert when the
        organization's alert began are left out too, so that one problem causes one alert. Endpoints whose alert began
        later are included; otherwise the organization's alert would end although nothing has recovered."""
        alerted = batch.endpoints_with(Rule.FAILURE_RATE, batch.on_since(Rule.FAILURE_RATE, None))
        deleted = {one for one in still_failing if batch.is_deleted(one)}
        departed = batch.departed_with(Rule.FAILURE_RATE, since)
        return batch.rules.own_of(Rule.FAILURE_RATE) | alerted | deleted | departed

    def _add_rate(self, batch: AlertBatch, endpoint_id: UUID | None, recent: Figures) -> None:
        rule = batch.rules.of(Rule.FAILURE_RATE, endpoint_id)
        on, percent = failing(recent.succeeded, recent.died, rule, batch.is_on(Rule.FAILURE_RATE, endpoint_id))
        batch.add_measurement(Rule.FAILURE_RATE, endpoint_id, on, percent)

    async def _own_figures(self, batch: AlertBatch, endpoint_ids: Collection[UUID]) -> dict[UUID, Figures]:
        """The figures of endpoints that have their own rule and therefore their own window. Endpoints with the same
        window are read together."""
        by_window: defaultdict[float, list[UUID]] = defaultdict(list)
        for endpoint_id in sorted(endpoint_ids):
            by_window[batch.rules.of(Rule.FAILURE_RATE, endpoint_id).window_seconds].append(endpoint_id)
        found: dict[UUID, Figures] = {}
        for window, same_window in by_window.items():
            found |= await self._store.figures(batch.org_id, same_window, batch.now - seconds(window), batch.now + 1)
        return found

    # -- conditions ----------------------------------------------------------------------------------------

    async def add_conditions(self, batch: AlertBatch, endpoints: Sequence[Endpoint]) -> None:
        """Add the organization's disabled endpoints, and its endpoints whose circuit is not closed."""
        for endpoint in endpoints:
            if endpoint.state is EndpointState.DISABLED:
                batch.add_condition(Rule.ENDPOINT_DISABLED, endpoint.endpoint_id, endpoint.state_reason)
        for circuit in await self._store.get_many(Circuit, batch.org_id, [one.endpoint_id for one in endpoints]):
            if circuit.state is not CircuitState.CLOSED:
                batch.add_condition(Rule.CIRCUIT_OPENED, circuit.endpoint_id, in_a_row(circuit.failures))

    # -- levels --------------------------------------------------------------------------------------------

    async def add_dead_letters(self, batch: AlertBatch) -> None:
        """Include the number of dead letters for the organization, and for each endpoint that has its own rule about
        dead letters."""
        own = sorted(batch.rules.own_of(Rule.DEAD_LETTERS))
        found = await self._store.figures(batch.org_id, [None, *own], names=("now_dead",))
        for endpoint_id, figures in found.items():
            _add_level(batch, Rule.DEAD_LETTERS, endpoint_id, figures.now_dead)

    async def late(self, lanes: Sequence[Lane], directory: Directory) -> dict[UUID, Late]:
        """By organization, the endpoints whose deliveries have been due for a while although nothing holds them."""
        now = self._clock.now()
        overdue = [one for one in lanes if not one.is_barred and _age(now, one.due_at) > OLDEST_DUE_SECONDS_MIN]
        await directory.load({lane.org_id for lane in overdue})
        found: dict[UUID, Late] = {}
        for lane in overdue:
            endpoint = directory.endpoint(lane.endpoint_id)
            if endpoint is None or endpoint.state is not EndpointState.ACTIVE:
                continue
            age = _age(now, max(lane.due_at, _free_since(endpoint, lane)))
            if age > OLDEST_DUE_SECONDS_MIN:
                found.setdefault(endpoint.org_id, {})[lane.endpoint_id] = age
        return found


def _age(now: Instant, since: Instant) -> float:
    return (now - since) / SECOND


def add_late(batch: AlertBatch, late: Late) -> None:
    """Add the age of the oldest due delivery, for the organization and for each endpoint that has its own rule."""
    own = batch.rules.own_of(Rule.OLDEST_DUE)
    others = (age for endpoint_id, age in late.items() if endpoint_id not in own)
    _add_level(batch, Rule.OLDEST_DUE, None, max(others, default=0.0))
    for endpoint_id in own:
        _add_level(batch, Rule.OLDEST_DUE, endpoint_id, late.get(endpoint_id, 0.0))


def _add_level(batch: AlertBatch, rule: Rule, endpoint_id: UUID | None, value: float) -> None:
    on = is_above(value, batch.rules.of(rule, endpoint_id).threshold, batch.is_on(rule, endpoint_id))
    batch.add_measurement(rule, endpoint_id, on, value)


def _free_since(endpoint: Endpoint, lane: Lane) -> Instant:
    """When the endpoint last stopped holding its deliveries. Time before that does not make a delivery late, because
    the backlog takes a while to drain."""
    return max(endpoint.state_since, lane.circuit.changed_at if lane.circuit else 0)
