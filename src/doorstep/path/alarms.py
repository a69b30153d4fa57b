"""Beside the path: incidents become alerts, messages and operational events, and measures are taken.

What is told is written together with the removal of what it was made of, so a process may be killed anywhere: the next
one finds either all of it done or nothing. Two that do the same at once are kept apart by versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from uuid import UUID

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.model.alert import Rule, Telling
from doorstep.model.channel import OPERATIONS_ORG
from doorstep.model.claim import Lane
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.ids import uuid7
from doorstep.model.incident import Incident, IncidentKind
from doorstep.path.alert_book import Book
from doorstep.path.directory import Directory
from doorstep.policy.alerting import Sight, failing, is_above
from doorstep.policy.routing import subscribes
from doorstep.stores.store import Store

BATCH_MAX = 500
COOLDOWN_SECONDS_MAX = 30 * 86_400.0
"""The longest cooldown that a rule may have: so far back ended alerts are read."""
OLDEST_DUE_SECONDS_MIN = 10.0
"""The smallest threshold that it may have: whose deliveries are younger need not be looked at."""
WINDOW_SECONDS_MAX = 86_400.0


Overdue = dict[UUID, dict[UUID, float]]
"""By organization: for how many seconds the first delivery of each of its endpoints has been due."""


class Alarms:
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
        self._suspects: dict[tuple[UUID, UUID], Instant] = {}
        """Endpoints that deliveries died of, until when that may still raise their failure rate above its threshold:
        whether it does is also decided by what is delivered afterwards."""

    async def tell(self) -> int:
        """What the first incidents mean; returns how many there were. Trouble with those of one organization holds up no
        other."""
        incidents = await self._store.incidents(BATCH_MAX)
        if incidents:
            await self._directory.refresh()
        by_org = sorted(incidents, key=lambda one: (one.org_id, one.key))
        troubles: list[Exception] = []
        for org_id, of_org in groupby(by_org, key=lambda one: one.org_id):
            try:
                await self._tell_org(org_id, list(of_org))
            except Exception as error:  # noqa: BLE001  raised below, when the others have had their turn
                troubles.append(error)
        if troubles:
            raise troubles[0]
        return len(incidents)

    async def suspect_all(self) -> None:
        """Whoever watched before may have been killed with what he had in mind."""
        await self._directory.refresh()
        until = self._clock.now() + 1
        for endpoint in self._directory.endpoints:
            self._suspects.setdefault((endpoint.org_id, endpoint.endpoint_id), until)

    def suspect_nobody(self) -> None:
        """Another process watches."""
        self._suspects.clear()

    async def look(self) -> Overdue:
        """What there is to review, without changing anything: organizations with something open, suspected or overdue,
        and their endpoints that are late."""
        await self._directory.refresh()
        now = self._clock.now()
        overdue = self._overdue(await self._store.lanes(now), now)
        for one in await self._store.live_alerts(None, now):
            overdue.setdefault(one.org_id, {})
        return self._with_suspects(overdue)

    async def review(self, overdue: Overdue) -> None:
        """Measure again, and tell what time has made of open alerts."""
        began_at = self._clock.now()
        for org_id, late in sorted(self._with_suspects(overdue).items()):
            await self._review_org(org_id, late)
        self._suspects = {one: until for one, until in self._suspects.items() if until > began_at}

    def _with_suspects(self, overdue: Overdue) -> Overdue:
        wanted = {org_id: overdue.get(org_id, {}) for org_id, _ in self._suspects} | overdue
        wanted.pop(OPERATIONS_ORG, None)
        return wanted

    # -- one organization ----------------------------------------------------------------------------------

    async def _tell_org(self, org_id: UUID, incidents: Sequence[Incident]) -> None:
        if org_id == OPERATIONS_ORG:  # of messages that fail no message is made; the channel shows it
            await self._store.tell(Telling(org_id=org_id, incident_keys=tuple(one.key for one in incidents)))
            return
        book = await self._book(org_id, await self._names(incidents))
        for incident in incidents:
            book.take(incident)
        died = {one.endpoint_id for one in incidents if one.kind is IncidentKind.DELIVERY_DEAD}
        if died:
            self._suspect(book, died)
            await self._see_rates(book, died)
            await self._see_letters(book)
        await self._write(book)

    async def _review_org(self, org_id: UUID, overdue: dict[UUID, float]) -> None:
        book = await self._book(org_id)
        suspects = {endpoint_id for owner, endpoint_id in self._suspects if owner == org_id}
        await self._see_rates(book, suspects | {one for one in book.open_of(Rule.FAILURE_RATE) if one is not None})
        if book.open_of(Rule.DEAD_LETTERS):
            await self._see_letters(book)
        self._see_overdue(book, overdue)
        book.review()
        await self._write(book)

    async def _book(self, org_id: UUID, departed: dict[UUID, str] | None = None) -> Book:
        now = self._clock.now()
        names = departed or {}
        return Book(
            org_id,
            await self._store.arrangements(org_id),
            await self._store.live_alerts(org_id, now - seconds(COOLDOWN_SECONDS_MAX)),
            now,
            subscribers=lambda event_type, about: self._subscribers(org_id, event_type, about),
            names=lambda endpoint_id: self._name(endpoint_id) or names.get(endpoint_id, ""),
            new_id=lambda: uuid7(now),
            console=self._console,
        )

    async def _write(self, book: Book) -> None:
        """Somebody else may have been faster: then the next round sees what is left to do."""
        telling = book.telling()
        if (telling.incident_keys or telling.changes) and await self._store.tell(telling) and telling.postings:
            self._told()

    # -- measures ------------------------------------------------------------------------------------------

    def _suspect(self, book: Book, endpoint_ids: Iterable[UUID]) -> None:
        now = self._clock.now()
        for endpoint_id in endpoint_ids:
            window = book.rules.of(Rule.FAILURE_RATE, endpoint_id).window_seconds
            self._suspects[book.org_id, endpoint_id] = now + seconds(window + 60)

    async def _see_rates(self, book: Book, endpoint_ids: set[UUID]) -> None:
        """By the window of each: endpoints with windows of the same length are asked for together."""
        by_window: dict[float, list[UUID]] = {}
        for endpoint_id in endpoint_ids:
            window = book.rules.of(Rule.FAILURE_RATE, endpoint_id).window_seconds
            by_window.setdefault(window, []).append(endpoint_id)
        now = self._clock.now()
        for window, alike in by_window.items():
            found = await self._store.figures(book.org_id, alike, now - seconds(window), now + 1)
            for endpoint_id, figures in found.items():
                self._see_rate(book, endpoint_id, figures.succeeded, figures.died)

    def _see_rate(self, book: Book, endpoint_id: UUID, succeeded: int, failed: int) -> None:
        rule = book.rules.of(Rule.FAILURE_RATE, endpoint_id)
        on, percent = failing(succeeded, failed, rule, book.is_on(Rule.FAILURE_RATE, endpoint_id))
        book.see(self._measured(Rule.FAILURE_RATE, on, percent, endpoint_id))

    async def _see_letters(self, book: Book) -> None:
        """Those of the organization, and of each endpoint that has a rule of its own for it."""
        own = sorted(book.rules.own_of(Rule.DEAD_LETTERS))
        totals = await self._store.totals(book.org_id)
        self._see_level(book, Rule.DEAD_LETTERS, totals.now_dead, None)
        for endpoint_id, figures in (await self._store.levels(book.org_id, own)).items() if own else ():
            self._see_level(book, Rule.DEAD_LETTERS, figures.now_dead, endpoint_id)

    def _see_overdue(self, book: Book, overdue: dict[UUID, float]) -> None:
        """The oldest of the organization, but for endpoints that have a rule of their own for it."""
        own = book.rules.own_of(Rule.OLDEST_DUE)
        others = {endpoint_id: age for endpoint_id, age in overdue.items() if endpoint_id not in own}
        self._see_level(book, Rule.OLDEST_DUE, max(others.values(), default=0.0), None)
        for endpoint_id in own:
            self._see_level(book, Rule.OLDEST_DUE, overdue.get(endpoint_id, 0.0), endpoint_id)

    def _see_level(self, book: Book, rule: Rule, value: float, endpoint_id: UUID | None) -> None:
        on = is_above(value, book.rules.of(rule, endpoint_id).threshold, book.is_on(rule, endpoint_id))
        book.see(self._measured(rule, on, value, endpoint_id))

    def _measured(self, rule: Rule, on: bool, value: float, endpoint_id: UUID | None) -> Sight:
        name = "" if endpoint_id is None else self._name(endpoint_id)
        return Sight(rule=rule, on=on, value=value, endpoint_id=endpoint_id, endpoint_name=name)

    def _overdue(self, lanes: Iterable[Lane], now: Instant) -> Overdue:
        """For how long the first delivery of each endpoint that nothing holds has been due, by organization."""
        found: Overdue = {}
        for lane in lanes:
            endpoint = self._directory.endpoint(lane.endpoint_id)
            if endpoint is None or endpoint.state is not EndpointState.ACTIVE:
                continue
            age = (now - max(lane.due_at, _free_since(endpoint, lane))) / SECOND
            if not lane.is_barred and age > OLDEST_DUE_SECONDS_MIN:
                found.setdefault(endpoint.org_id, {})[lane.endpoint_id] = age
        return found

    # -- endpoints -----------------------------------------------------------------------------------------

    def _subscribers(self, org_id: UUID, event_type: str, about: UUID | None) -> tuple[UUID, ...]:
        """An endpoint is not told of its own troubles: that would only be one more that cannot be delivered."""
        routed = self._directory.routes.route(org_id, event_type)
        return tuple(one.endpoint_id for one in routed if one.endpoint_id != about and subscribes(one, event_type))

    def _name(self, endpoint_id: UUID) -> str:
        endpoint = self._directory.endpoint(endpoint_id)
        return endpoint.name if endpoint else ""

    async def _names(self, incidents: Iterable[Incident]) -> dict[UUID, str]:
        """Of endpoints that have been deleted meanwhile."""
        gone = {(one.org_id, one.endpoint_id) for one in incidents if not self._directory.endpoint(one.endpoint_id)}
        return {endpoint_id: (await self._store.endpoint(org_id, endpoint_id)).name for org_id, endpoint_id in gone}


def _free_since(endpoint: Endpoint, lane: Lane) -> Instant:
    """What was held until a moment ago has only been late since then: it takes a while to drain."""
    return max(endpoint.updated_at, lane.circuit.changed_at if lane.circuit else 0)
