"""Beside the path: incidents become alerts, messages and operational events, and measures are taken.

What is told is written together with the removal of what it was made of, so a process may be killed anywhere: the next
one finds either all of it done or nothing. Two that do the same at once are kept apart by versions.

Each organization is seen to by itself, and with a bounded number of its incidents at a time: neither the flood nor the
trouble of one delays what the others are told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from doorstep.clock import Clock, seconds
from doorstep.model.alert import AlertRule, Rule, Silence, Telling
from doorstep.model.channel import OPERATIONS_ORG, Channel
from doorstep.model.incident import Incident, IncidentKind
from doorstep.path.alert_book import Book
from doorstep.path.alert_measures import Late, Measures, see_late
from doorstep.path.directory import Directory
from doorstep.path.roster import Roster
from doorstep.policy.alerting import Rules
from doorstep.stores.store import Store

BATCH_MAX = 500
"""Incidents of one organization that are told together."""


class Outlook(NamedTuple):
    """What there is to review."""

    late: dict[UUID, Late]
    """Organizations with something to look at again, suspected or late, and their endpoints that are late."""
    died: int
    """How many tries in all organizations were the last of their deliveries, since ever."""


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
            await self._store.tell(Telling(org_id=org_id, incident_keys=tuple(one.key for one in incidents)))
            return
        await self._directory.refresh()  # after they were read: so whom they are about is known, or was deleted
        roster = Roster(org_id, self._directory)
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
        await self._conclude(await self._book(org_id, Roster(org_id, self._directory)), late)

    async def _conclude(self, book: Book, late: Late | None) -> None:
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

    async def _book(self, org_id: UUID, roster: Roster) -> Book:
        arranged = await self._store.arrangements(org_id)
        rules = Rules(
            org_id,
            (one for one in arranged if isinstance(one, AlertRule)),
            (one for one in arranged if isinstance(one, Silence)),
        )
        now = self._clock.now()
        alerts = await self._store.live_alerts(org_id, now - seconds(rules.memory_seconds))
        channels = [one for one in arranged if isinstance(one, Channel)]
        return Book(org_id, rules, channels, alerts, now, roster, self._console)

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
