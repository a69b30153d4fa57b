"""Beside the path: incidents become alerts, messages and operational events, and measures are taken.

What is told is written together with the removal of what it was made of, so a process may be killed anywhere: the next
one finds either all of it done or nothing. Two that do the same at once are kept apart by versions.

Each organization is seen to by itself, and with a bounded number of its incidents at a time: neither the flood nor the
trouble of one delays what the others are told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import reduce
from hashlib import blake2b
from operator import add
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.engine.directory import Directory
from doorstep.model.alert import (
    ALERT_FIRED,
    ALERT_RECOVERED,
    OCCURRENCES,
    OPERATIONAL_KINDS,
    OPERATIONS_ORG,
    Alert,
    AlertChange,
    AlertRule,
    AlertWrite,
    Channel,
    ChannelKind,
    Ending,
    Incident,
    IncidentKind,
    Rule,
    Silence,
    subject_of,
)
from doorstep.model.attempt import Code
from doorstep.model.circuit import CircuitState
from doorstep.model.claim import Lane
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.outbox import OutboxMessage, OutboxOptions
from doorstep.model.record import uuid7
from doorstep.model.rollup import Figures, Span
from doorstep.operations.endpoints import EndpointNames
from doorstep.policy.alert_messages import operational_payload, payload_for, words_of
from doorstep.policy.alerts import News, Observation, Rules, Step, after, ended, failing, is_above, reviewed
from doorstep.stores.store import Store

BATCH_MAX = 500
"""Incidents of one organization that are told together."""


class Outlook(NamedTuple):
    """What there is to review."""

    late: dict[UUID, Late]
    """Organizations with something to look at again, suspected or late, and their endpoints that are late."""
    died: int
    """How many tries in all organizations were the last of their deliveries, since ever."""


class AlertEvaluator:
    """Asks the store what happened, and tells it what is to be told."""

    def __init__(
        self, store: Store, directory: Directory, clock: Clock, console: str, told: Callable[[], None]
    ) -> None:
        """`told` is called when something was put into the outbox."""
        self._store = store
        self._directory = directory
        self._clock = clock
        self._console = console
        self._told = told
        self._measures = Measures(store, clock)
        self._suspects: defaultdict[UUID, set[UUID]] = defaultdict(set)
        """Endpoints of each organization whose deliveries died lately, deleted ones too: whether failure rates rise above
        the threshold is also decided by what becomes of others afterwards."""
        self._died = 0
        """How many of those deaths this process has seen to, or those who watched before it. Where there are
        more, somebody watches, or was killed while he did."""

    async def tell(self) -> None:
        """What the first incidents of each organization mean."""
        await _each(await self._store.incident_orgs(), self._tell_org)

    async def look(self) -> Outlook | None:
        """What there is to review, without changing anything; None where that is nothing."""
        await self._directory.refresh()
        late = await self._measures.late(self._directory)
        for org_id in (*await self._store.orgs_to_review(self._clock.now()), *self._suspects):
            late.setdefault(org_id, {})
        late.pop(OPERATIONS_ORG, None)
        died = (await self._store.totals()).died
        return Outlook(late, died) if late or died != self._died else None

    async def review(self, outlook: Outlook) -> None:
        """Measure again, and tell what time has made of alerts."""
        self._died = outlook.died
        late = outlook.late
        await _each(sorted({*late, *self._suspects}), lambda org_id: self._review_org(org_id, late.get(org_id, {})))

    async def suspect_all(self) -> None:
        """Whoever watched before may have been killed with what he had in mind: some endpoint that deliveries died of
        within the longest window that a rule can have. Also of one that was deleted since: only who is suspected is left
        out of the organization's rate then."""
        dying = await self._measures.dying_endpoints()
        await self._directory.refresh()  # after they were read: so each of them is known, or was deleted
        for org_id, endpoint_id in dying:
            if org_id != OPERATIONS_ORG:
                self._suspects[org_id].add(endpoint_id)

    def suspect_nobody(self) -> None:
        """Another process watches."""
        self._suspects.clear()

    # -- one organization ----------------------------------------------------------------------------------

    async def _tell_org(self, org_id: UUID) -> None:
        incidents = await self._store.incidents(org_id, BATCH_MAX)
        if org_id == OPERATIONS_ORG:  # of messages that fail no message is made; the channel shows it
            await self._store.tell(AlertWrite(org_id=org_id, incident_keys=tuple(one.key for one in incidents)))
            return
        await self._directory.refresh()  # after they were read: so whom they are about is known, or was deleted
        roster = EndpointNames(org_id, self._directory)
        await roster.look_up(self._store, (one.endpoint_id for one in incidents))
        book = await self._book(org_id, roster)
        for incident in incidents:
            book.take(incident)
        self._suspect(org_id, incidents)
        late = None
        if any(one.kind is IncidentKind.RULES_CHANGED for one in incidents):
            await self._measures.conditions(book, self._directory.endpoints)
            late = (await self._measures.late(self._directory)).get(org_id, {})
        await self._conclude(book, late)

    async def _review_org(self, org_id: UUID, late: Late) -> None:
        await self._conclude(await self._book(org_id, EndpointNames(org_id, self._directory)), late)

    async def _conclude(self, book: AlertBatch, late: Late | None) -> None:
        """Measure what may have changed, and write what comes of it all. Somebody else may have been faster: then the
        next round sees what is left to do."""
        suspects = self._suspects.get(book.org_id, set())
        dying = await self._measures.rates(book, suspects | book.endpoints_with(Rule.FAILURE_RATE))
        await self._measures.letters(book)
        if late is not None:
            see_late(book, late)
        book.review()
        telling = book.telling()
        if (telling.incident_keys or telling.changes) and await self._store.tell(telling) and telling.postings:
            self._told()
        self._keep_suspecting(book.org_id, dying)

    async def _book(self, org_id: UUID, roster: EndpointNames) -> AlertBatch:
        arranged = await self._store.arrangements(org_id)
        rules = Rules(
            org_id,
            (one for one in arranged if isinstance(one, AlertRule)),
            (one for one in arranged if isinstance(one, Silence)),
        )
        now = self._clock.now()
        alerts = await self._store.live_alerts(org_id, now - seconds(rules.memory_seconds))
        channels = [one for one in arranged if isinstance(one, Channel)]
        return AlertBatch(org_id, rules, channels, alerts, now, roster, self._console)

    # -- suspicion -----------------------------------------------------------------------------------------

    def _suspect(self, org_id: UUID, incidents: Iterable[Incident]) -> None:
        """Whose deliveries died; and everybody, where other rules hold from now on."""
        for incident in incidents:
            if incident.kind is IncidentKind.DELIVERY_DEAD and incident.endpoint_id is not None:
                self._suspects[org_id].add(incident.endpoint_id)
            elif incident.kind is IncidentKind.RULES_CHANGED:
                own = (one.endpoint_id for one in self._directory.endpoints if one.org_id == org_id)
                self._suspects[org_id].update(own)

    def _keep_suspecting(self, org_id: UUID, dying: set[UUID]) -> None:
        """As long as a death is in the window that is measured; the next process that watches finds that out itself."""
        if dying:
            self._suspects[org_id] = dying
        else:
            self._suspects.pop(org_id, None)


async def _each(org_ids: Iterable[UUID], see_to: Callable[[UUID], Awaitable[None]]) -> None:
    """One after the other. The first trouble is raised when all have had their turn."""
    troubles: list[Exception] = []
    for org_id in org_ids:
        try:
            await see_to(org_id)
        except Exception as error:  # noqa: BLE001  raised below
            troubles.append(error)
    if troubles:
        raise troubles[0]


CAUSES_MAX = 10
"""So many causes of an endpoint's dead letters are told apart; what dies of others is counted together."""
MESSAGE = "doorstep.message"
"""The event type of what goes to channels."""
OPERATIONAL = frozenset({*OPERATIONAL_KINDS, ALERT_FIRED, ALERT_RECOVERED})
"""The types of operational events. What becomes of such an event causes none itself, or they would never end."""

_CONDITIONS = {
    IncidentKind.CIRCUIT_OPENED: (Rule.CIRCUIT_OPENED, None),
    IncidentKind.CIRCUIT_CLOSED: (Rule.CIRCUIT_OPENED, Ending.RECOVERED),
    IncidentKind.ENDPOINT_DISABLED: (Rule.ENDPOINT_DISABLED, None),
    IncidentKind.ENDPOINT_ENABLED: (Rule.ENDPOINT_DISABLED, Ending.RECOVERED),
    IncidentKind.ENDPOINT_PAUSED: (Rule.ENDPOINT_DISABLED, Ending.ENDPOINT_PAUSED),
}
"""What begins with an incident, or ends with it."""


class AlertBatch:
    """Alerts as they were read, and what becomes of them; nothing is written here."""

    def __init__(
        self,
        org_id: UUID,
        rules: Rules,
        channels: Sequence[Channel],
        alerts: Iterable[Alert],
        now: Instant,
        roster: EndpointNames,
        console: str,
    ) -> None:
        self.org_id = org_id
        self.rules = rules
        self.now = now
        self._channels = channels
        self._roster = roster
        self._console = console
        self._newest: dict[str, Alert] = {}
        for alert in sorted(alerts, key=lambda one: (one.is_open, one.opened_at)):
            self._newest[alert.subject] = alert
        self._versions = {alert.alert_id: alert.version for alert in self._newest.values()}
        self._causes = Counter(one.endpoint_id for one in self._newest.values() if _is_open_letter(one))
        self._changed: dict[UUID, Alert] = {}
        self._postings: list[OutboxMessage] = []
        self._taken: list[int] = []

    # -- what was seen -------------------------------------------------------------------------------------

    def take(self, incident: Incident) -> None:
        """An incident becomes an operational event, and makes or ends alerts."""
        self._taken.append(incident.key)
        if incident.kind in OPERATIONAL_KINDS and incident.event_type not in OPERATIONAL:
            self._post_operational(incident)
        if incident.kind is IncidentKind.DELIVERY_DEAD:
            if incident.code != Code.SKIPPED:  # whoever skipped it knows
                self._see(self._death(incident))
        elif incident.kind is IncidentKind.ENDPOINT_DELETED:
            self._end_of_deleted()
        elif incident.kind in _CONDITIONS:
            self._turn(incident, *_CONDITIONS[incident.kind])

    def see_condition(self, rule: Rule, endpoint_id: UUID, reason: str) -> None:
        """What is the case with an endpoint now, whenever that began: to somebody who wants to know only now it is new."""
        name = self._roster.name(endpoint_id)
        self._see(Observation(rule=rule, on=True, endpoint_id=endpoint_id, endpoint_name=name, reason=reason))

    def measure(self, rule: Rule, endpoint_id: UUID | None, on: bool, value: float) -> None:
        """What a measure is now, and whether that is too much."""
        name = self._roster.name(endpoint_id)
        self._see(Observation(rule=rule, on=on, value=value, endpoint_id=endpoint_id, endpoint_name=name))

    def review(self) -> None:
        """What time alone, or another rule, does to alerts."""
        self._end_of_deleted()
        for alert in list(self._newest.values()):
            self._keep(reviewed(alert, self.rules, self.now))

    def is_on(self, rule: Rule, endpoint_id: UUID | None) -> bool:
        return self.on_since(rule, endpoint_id) is not None

    def on_since(self, rule: Rule, endpoint_id: UUID | None) -> Instant | None:
        """When the alert began that is open; None if there is none."""
        known = self._newest.get(subject_of(rule, endpoint_id))
        return known.opened_at if known is not None and known.is_open else None

    def endpoints_with(self, rule: Rule, at: Instant | None = None) -> set[UUID]:
        """Those that have an open alert of a rule that measures; only if they had it at an instant, where one is given."""
        found = (one for one in self._newest.values() if one.is_open and one.rule is rule)
        begun = (one.endpoint_id for one in found if at is None or one.opened_at <= at)
        return {endpoint_id for endpoint_id in begun if endpoint_id is not None}

    def departed_with(self, rule: Rule, since: Instant) -> set[UUID]:
        """Those whose alert of a rule ended because they were deleted, later than an instant."""
        ended = (one for one in self._newest.values() if one.rule is rule and (one.ended_at or 0) > since)
        found = (one.endpoint_id for one in ended if one.ended_because is Ending.ENDPOINT_DELETED)
        return {endpoint_id for endpoint_id in found if endpoint_id is not None}

    def is_deleted(self, endpoint_id: UUID | None) -> bool:
        return endpoint_id is not None and not self._roster.is_living(endpoint_id)

    def telling(self) -> AlertWrite:
        ended_first = sorted(self._changed.values(), key=lambda one: one.is_open)
        changes = (AlertChange(one, self._versions.get(one.alert_id, 0)) for one in ended_first)
        return AlertWrite(
            org_id=self.org_id,
            incident_keys=tuple(self._taken),
            changes=tuple(changes),
            postings=tuple(self._postings),
        )

    # -- what becomes of it --------------------------------------------------------------------------------

    def _see(self, sight: Observation) -> None:
        """Of an endpoint that was deleted nothing begins any more but its last deaths: what ends it has been seen."""
        if sight.on and sight.rule not in OCCURRENCES and self.is_deleted(sight.endpoint_id):
            return
        known = self._newest.get(sight.subject)
        if known is not None and known.is_open and known.rule in OCCURRENCES:
            self._keep(reviewed(known, self.rules, self.now))  # its time may be over: then this is another
        self._keep(after(self._newest.get(sight.subject), sight, self.rules, self.now, uuid7(self.now)))

    def _turn(self, incident: Incident, rule: Rule, ending: Ending | None) -> None:
        if ending is None:
            self._see(self._sight(incident, rule))
            return
        known = self._newest.get(subject_of(rule, incident.endpoint_id))
        if known is not None and known.is_open:
            self._keep(ended(known, ending, self.rules, self.now))

    def _keep(self, step: Step | None) -> None:
        if step is None:
            return
        alert, before = step.alert, self._newest.get(step.alert.subject)
        self._causes[alert.endpoint_id] += _is_open_letter(alert) - (before is not None and _is_open_letter(before))
        self._newest[alert.subject] = self._changed[alert.alert_id] = alert
        if step.news is not None:
            self._post_news(alert, step.news)

    def _end_of_deleted(self) -> None:
        """With an endpoint that was deleted nothing can be the matter any more."""
        for alert in list(self._newest.values()):
            if alert.is_open and alert.rule not in OCCURRENCES and self.is_deleted(alert.endpoint_id):
                self._keep(ended(alert, Ending.ENDPOINT_DELETED, self.rules, self.now))

    def _death(self, incident: Incident) -> Observation:
        sight = self._sight(incident, Rule.DEAD_LETTER, incident.cause)
        known = self._newest.get(sight.subject)
        is_known = known is not None and known.is_open
        told_apart = is_known or self._causes[incident.endpoint_id] < CAUSES_MAX
        return sight if told_apart else replace(sight, cause=None)

    def _sight(self, incident: Incident, rule: Rule, cause: int | None = None) -> Observation:
        return Observation(
            rule=rule,
            on=True,
            endpoint_id=incident.endpoint_id,
            endpoint_name=self._roster.name(incident.endpoint_id),
            cause=cause,
            code=incident.code,
            reason=incident.reason,
            delivery_id=incident.delivery_id,
            event_id=incident.event_id,
            event_type=incident.event_type,
        )

    # -- messages and operational events -------------------------------------------------------------------

    def _post_news(self, alert: Alert, news: News) -> None:
        """One message for each channel that wants it, in the order in which its news came."""
        words = words_of(alert, news, self._console)
        recovery = news is News.RECOVERED
        for channel in self._channels:
            if channel.wants(alert.rule, alert.endpoint_id, recovery=recovery):
                payload = payload_for(channel.means, words)
                key = _message_id(channel.channel_id, alert, news)
                self._post(key, OPERATIONS_ORG, MESSAGE, payload, (channel.channel_id,), str(alert.alert_id))
        if alert.event_type not in OPERATIONAL:
            payload = payload_for(ChannelKind.WEBHOOK, words)
            event_type = ALERT_RECOVERED if recovery else ALERT_FIRED
            key, order = _message_id(self.org_id, alert, news), str(alert.alert_id)
            self._post_to_subscribers(key, event_type, payload, alert.endpoint_id, order)

    def _post_operational(self, incident: Incident) -> None:
        """What is so with an endpoint comes in its order. Deaths do not: each is of another delivery, and one that cannot
        be delivered for now must not hold up thousands."""
        key = _event_id(incident.at, self.org_id, f"incident/{incident.key}")
        order = None if incident.kind is IncidentKind.DELIVERY_DEAD else str(incident.endpoint_id)
        self._post_to_subscribers(key, incident.kind, operational_payload(incident), incident.endpoint_id, order)

    def _post_to_subscribers(
        self, event_id: UUID, event_type: str, payload: bytes, about: UUID | None, order: str | None
    ) -> None:
        """If nobody asked for it nothing is made: no inbox is littered."""
        if wanted := self._roster.subscribers(event_type, about):
            self._post(event_id, self.org_id, event_type, payload, wanted, order)

    def _post(
        self,
        event_id: UUID,
        org_id: UUID,
        event_type: str,
        payload: bytes,
        endpoint_ids: tuple[UUID, ...],
        ordering_key: str | None = None,
    ) -> None:
        options = OutboxOptions(correlation_id=event_id.hex, endpoint_ids=endpoint_ids, ordering_key=ordering_key)
        self._postings.append(
            OutboxMessage(
                event_id=event_id,
                org_id=org_id,
                event_type=str(event_type),
                payload=payload,
                created_at=self.now,
                options=options,
            )
        )


def _is_open_letter(alert: Alert) -> bool:
    return alert.is_open and alert.rule is Rule.DEAD_LETTER


def _message_id(where: UUID, alert: Alert, news: News) -> UUID:
    """The same for the same news, whoever words it."""
    at = alert.ended_at if news is News.RECOVERED else alert.told_at
    return _event_id(at or alert.seen_at, where, f"{alert.alert_id}/{news}")


def _event_id(at: Instant, where: UUID, what: str) -> UUID:
    """That of something that happened at `at`, in the order of all events; the same for the same thing."""
    return uuid7(at, lambda size: blake2b(where.bytes + what.encode(), digest_size=size).digest())


OLDEST_DUE_SECONDS_MIN = 10.0
"""The smallest threshold that it may have: whose deliveries are younger need not be looked at."""
WINDOW_SECONDS_MAX = 86_400.0
"""Of the failure rate."""

Late = dict[UUID, float]
"""For how many seconds the first delivery of each endpoint has been due."""


class Measures:
    """Shows a book what the store's figures are."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    # -- failure rates -------------------------------------------------------------------------------------

    async def rates(self, book: AlertBatch, endpoint_ids: Collection[UUID]) -> set[UUID]:
        """Those of these endpoints, and of the organization as a whole. Returns the endpoints of which a delivery died
        within their window: their rates may yet rise, also without another death.

        The whole and its parts are of one picture: what died between two would be nobody's, and so the whole's.
        """
        own = book.rules.own_of(Rule.FAILURE_RATE)
        since = book.now - seconds(book.rules.of(Rule.FAILURE_RATE).window_seconds)
        named = sorted({*endpoint_ids} | own | book.departed_with(Rule.FAILURE_RATE, since))
        whole, parts = await self._store.shares(book.org_id, named, since, book.now + 1)
        figures = {one: parts[one] for one in endpoint_ids if one not in own}
        figures |= await self._own_figures(book, own.intersection(endpoint_ids))
        for endpoint_id in sorted(figures):
            self._see_rate(book, endpoint_id, figures[endpoint_id])
        dying = {one for one, lately in figures.items() if lately.died}
        apart = self._apart(book, dying, since)
        self._see_rate(book, None, whole - reduce(add, (parts[one] for one in apart), Figures()))
        return dying

    async def dying_endpoints(self) -> list[tuple[UUID, UUID]]:
        """Where a delivery died within the longest window, to the hour, each behind its organization; deleted ones too."""
        return await self._store.dying_endpoints(Span.HOUR.start(self._clock.now() - seconds(WINDOW_SECONDS_MAX)))

    def _apart(self, book: AlertBatch, dying: set[UUID], since: Instant) -> set[UUID]:
        """Whom the rate of the whole leaves out: endpoints that have a rule of their own, and those that were deleted,
        because what became of their deliveries is nobody's trouble any more. And those that had an alert of their own
        when it began, so that one trouble is told once; who gets one later stays, or it would be told to be over though
        nothing works again."""
        told = book.endpoints_with(Rule.FAILURE_RATE, book.on_since(Rule.FAILURE_RATE, None))
        deleted = {one for one in dying if book.is_deleted(one)} | book.departed_with(Rule.FAILURE_RATE, since)
        return book.rules.own_of(Rule.FAILURE_RATE) | told | deleted

    def _see_rate(self, book: AlertBatch, endpoint_id: UUID | None, lately: Figures) -> None:
        rule = book.rules.of(Rule.FAILURE_RATE, endpoint_id)
        on, percent = failing(lately.succeeded, lately.died, rule, book.is_on(Rule.FAILURE_RATE, endpoint_id))
        book.measure(Rule.FAILURE_RATE, endpoint_id, on, percent)

    async def _own_figures(self, book: AlertBatch, endpoint_ids: Collection[UUID]) -> dict[UUID, Figures]:
        """Those of endpoints that have a rule, and so a window, of their own."""
        found: dict[UUID, Figures] = {}
        for window, alike in _by_window(book, endpoint_ids).items():
            found |= await self._store.figures(book.org_id, alike, book.now - seconds(window), book.now + 1)
        return found

    # -- conditions ----------------------------------------------------------------------------------------

    async def conditions(self, book: AlertBatch, endpoints: Iterable[Endpoint]) -> None:
        """Which of these endpoints, all of the organization, are disabled, and whose circuits are not closed."""
        kept = {one.endpoint_id: one for one in endpoints if one.org_id == book.org_id}
        for endpoint in kept.values():
            if endpoint.state is EndpointState.DISABLED:
                book.see_condition(Rule.ENDPOINT_DISABLED, endpoint.endpoint_id, endpoint.state_reason)
        for endpoint_id, circuit in (await self._store.circuits(book.org_id, list(kept))).items():
            if circuit.state is not CircuitState.CLOSED:
                book.see_condition(Rule.CIRCUIT_OPENED, endpoint_id, f"{circuit.failures} failures in a row")

    # -- levels --------------------------------------------------------------------------------------------

    async def letters(self, book: AlertBatch) -> None:
        """Those of the organization, and of each endpoint that has a rule of its own for it."""
        own = sorted(book.rules.own_of(Rule.DEAD_LETTERS))
        totals = await self._store.totals(book.org_id)
        _see_level(book, Rule.DEAD_LETTERS, None, totals.now_dead)
        for endpoint_id, figures in (await self._store.levels(book.org_id, own)).items() if own else ():
            _see_level(book, Rule.DEAD_LETTERS, endpoint_id, figures.now_dead)

    async def late(self, directory: Directory) -> dict[UUID, Late]:
        """Whose deliveries that nothing holds have been due for a while, by organization."""
        now = self._clock.now()
        found: dict[UUID, Late] = {}
        for lane in await self._store.lanes(now):
            endpoint = directory.endpoint(lane.endpoint_id)
            if endpoint is None or endpoint.state is not EndpointState.ACTIVE:
                continue
            age = (now - max(lane.due_at, _free_since(endpoint, lane))) / SECOND
            if not lane.is_barred and age > OLDEST_DUE_SECONDS_MIN:
                found.setdefault(endpoint.org_id, {})[lane.endpoint_id] = age
        return found


def see_late(book: AlertBatch, late: Late) -> None:
    """The oldest of the organization, but for endpoints that have a rule of their own for it."""
    own = book.rules.own_of(Rule.OLDEST_DUE)
    others = (age for endpoint_id, age in late.items() if endpoint_id not in own)
    _see_level(book, Rule.OLDEST_DUE, None, max(others, default=0.0))
    for endpoint_id in own:
        _see_level(book, Rule.OLDEST_DUE, endpoint_id, late.get(endpoint_id, 0.0))


def _see_level(book: AlertBatch, rule: Rule, endpoint_id: UUID | None, value: float) -> None:
    on = is_above(value, book.rules.of(rule, endpoint_id).threshold, book.is_on(rule, endpoint_id))
    book.measure(rule, endpoint_id, on, value)


def _by_window(book: AlertBatch, endpoint_ids: Iterable[UUID]) -> dict[float, list[UUID]]:
    """Endpoints whose windows are as long are asked for together."""
    found: dict[float, list[UUID]] = {}
    for endpoint_id in sorted(endpoint_ids):
        found.setdefault(book.rules.of(Rule.FAILURE_RATE, endpoint_id).window_seconds, []).append(endpoint_id)
    return found


def _free_since(endpoint: Endpoint, lane: Lane) -> Instant:
    """What was held until a moment ago has only been late since then: it takes a while to drain."""
    return max(endpoint.state_since, lane.circuit.changed_at if lane.circuit else 0)
