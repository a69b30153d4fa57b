"""Beside the path: what alerts are about is measured: failure rates, dead letters, and what is late."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from operator import add
from uuid import UUID

from doorstep.clock import SECOND, Clock, Instant, seconds
from doorstep.model.alert import Rule
from doorstep.model.circuit import CircuitState
from doorstep.model.claim import Lane
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.rollup import Figures, Span
from doorstep.path.alert_book import Book
from doorstep.path.directory import Directory
from doorstep.policy.alerting import failing, is_above
from doorstep.stores.store import Store

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

    async def rates(self, book: Book, endpoint_ids: Collection[UUID]) -> set[UUID]:
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

    def _apart(self, book: Book, dying: set[UUID], since: Instant) -> set[UUID]:
        """Whom the rate of the whole leaves out: endpoints that have a rule of their own, and those that were deleted,
        because what became of their deliveries is nobody's trouble any more. And those that had an alert of their own
        when it began, so that one trouble is told once; who gets one later stays, or it would be told to be over though
        nothing works again."""
        told = book.endpoints_with(Rule.FAILURE_RATE, book.on_since(Rule.FAILURE_RATE, None))
        deleted = {one for one in dying if book.is_deleted(one)} | book.departed_with(Rule.FAILURE_RATE, since)
        return book.rules.own_of(Rule.FAILURE_RATE) | told | deleted

    def _see_rate(self, book: Book, endpoint_id: UUID | None, lately: Figures) -> None:
        rule = book.rules.of(Rule.FAILURE_RATE, endpoint_id)
        on, percent = failing(lately.succeeded, lately.died, rule, book.is_on(Rule.FAILURE_RATE, endpoint_id))
        book.measure(Rule.FAILURE_RATE, endpoint_id, on, percent)

    async def _own_figures(self, book: Book, endpoint_ids: Collection[UUID]) -> dict[UUID, Figures]:
        """Those of endpoints that have a rule, and so a window, of their own."""
        found: dict[UUID, Figures] = {}
        for window, alike in _by_window(book, endpoint_ids).items():
            found |= await self._store.figures(book.org_id, alike, book.now - seconds(window), book.now + 1)
        return found

    # -- conditions ----------------------------------------------------------------------------------------

    async def conditions(self, book: Book, endpoints: Iterable[Endpoint]) -> None:
        """Which of these endpoints, all of the organization, are disabled, and whose circuits are not closed."""
        kept = {one.endpoint_id: one for one in endpoints if one.org_id == book.org_id}
        for endpoint in kept.values():
            if endpoint.state is EndpointState.DISABLED:
                book.see_condition(Rule.ENDPOINT_DISABLED, endpoint.endpoint_id, endpoint.state_reason)
        for endpoint_id, circuit in (await self._store.circuits(book.org_id, list(kept))).items():
            if circuit.state is not CircuitState.CLOSED:
                book.see_condition(Rule.CIRCUIT_OPENED, endpoint_id, f"{circuit.failures} failures in a row")

    # -- levels --------------------------------------------------------------------------------------------

    async def letters(self, book: Book) -> None:
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


def see_late(book: Book, late: Late) -> None:
    """The oldest of the organization, but for endpoints that have a rule of their own for it."""
    own = book.rules.own_of(Rule.OLDEST_DUE)
    others = (age for endpoint_id, age in late.items() if endpoint_id not in own)
    _see_level(book, Rule.OLDEST_DUE, None, max(others, default=0.0))
    for endpoint_id in own:
        _see_level(book, Rule.OLDEST_DUE, endpoint_id, late.get(endpoint_id, 0.0))


def _see_level(book: Book, rule: Rule, endpoint_id: UUID | None, value: float) -> None:
    on = is_above(value, book.rules.of(rule, endpoint_id).threshold, book.is_on(rule, endpoint_id))
    book.measure(rule, endpoint_id, on, value)


def _by_window(book: Book, endpoint_ids: Iterable[UUID]) -> dict[float, list[UUID]]:
    """Endpoints whose windows are as long are asked for together."""
    found: dict[float, list[UUID]] = {}
    for endpoint_id in sorted(endpoint_ids):
        found.setdefault(book.rules.of(Rule.FAILURE_RATE, endpoint_id).window_seconds, []).append(endpoint_id)
    return found


def _free_since(endpoint: Endpoint, lane: Lane) -> Instant:
    """What was held until a moment ago has only been late since then: it takes a while to drain."""
    return max(endpoint.state_since, lane.circuit.changed_at if lane.circuit else 0)
