"""Building blocks of the tables: numbered documents and counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.rollup import Figures, Span
from doorstep.stores.tally import EVERY, OF_EVENTS, Tally

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Documents(Generic[K, T]):
    """Documents by key, in order of creation. Each has a number that is never reused: its position in lists."""

    def __init__(self) -> None:
        self._rows: dict[K, tuple[int, T]] = {}
        self._last = 0

    def __iter__(self) -> Iterator[T]:
        return (document for _, document in self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __getitem__(self, key: K) -> T:
        return self._rows[key][1]

    def __setitem__(self, key: K, document: T) -> None:
        self._rows[key] = (self._rows[key][0] if key in self._rows else self.next_number(), document)

    def __delitem__(self, key: K) -> None:
        del self._rows[key]

    def get(self, key: K) -> T | None:
        return self._rows[key][1] if key in self._rows else None

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def items(self) -> list[tuple[K, T]]:
        return [(key, document) for key, (_, document) in self._rows.items()]

    def numbered(self) -> list[tuple[int, T]]:
        return list(self._rows.values())


Owner = UUID | int
"""An organization, an endpoint, or EVERY."""


class Counters:
    """A counter belongs to a minute, an organization and an endpoint; a roll-up to an owner, a span and a start."""

    def __init__(self) -> None:
        self._counters: defaultdict[tuple[Instant, Owner, Owner], Counter[str]] = defaultdict(Counter)
        self._rollups: defaultdict[tuple[Owner, Owner, Span, Instant], Counter[str]] = defaultdict(Counter)

    def add(self, tally: Tally, at: Instant) -> None:
        for (org, endpoint), figures in tally.rows.items():
            self._counters[Span.MINUTE.start(at), org, endpoint].update(figures)

    def aggregate(self, before: Instant, limit: int) -> int:
        """Move up to `limit` counters into roll-ups: those of minutes that began before this instant."""
        ended = sorted(
            (key for key in self._counters if key[0] < before), key=lambda key: (int(key[1]), int(key[2]), key[0])
        )
        for minute, org, endpoint in ended[:limit]:
            figures = self._counters.pop((minute, org, endpoint))
            for owner in {(org, endpoint), (org, OF_EVENTS), (EVERY, EVERY)}:
                for span in Span:
                    self._rollups[*owner, span, span.start(minute)].update(figures)
        return len(ended[:limit])

    def drop(self, span: Span, before: Instant, limit: int) -> int:
        old = [key for key in self._rollups if key[2] is span and key[3] < before]
        old.sort(key=lambda key: (key[3], int(key[0]), int(key[1])))
        for key in old[:limit]:
            del self._rollups[key]
        return len(old[:limit])

    def of(self, org: Owner, endpoint: Owner, span: Span) -> dict[Instant, Figures]:
        """The figures of an owner by the start of their span, oldest first."""
        found: defaultdict[Instant, Counter[str]] = defaultdict(Counter)
        for at, figures in (*self._aggregated(org, endpoint, span), *self._recent(org, endpoint, span)):
            found[at].update(figures)
        return {at: Figures(**found[at]) for at in sorted(found)}

    def _aggregated(self, org: Owner, endpoint: Owner, span: Span) -> Iterator[tuple[Instant, Counter[str]]]:
        return ((key[3], one) for key, one in self._rollups.items() if key[:3] == (org, endpoint, span))

    def _recent(self, org: Owner, endpoint: Owner, span: Span) -> Iterable[tuple[Instant, Counter[str]]]:
        for (minute, of_org, of_endpoint), figures in self._counters.items():
            if org in (EVERY, of_org) and endpoint in (EVERY, of_endpoint):
                yield span.start(minute), figures
