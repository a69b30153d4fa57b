"""Ticks and roll-ups: what was counted lately, and what is kept of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.rollup import Figures, Span
from doorstep.stores.tally import EVERY, OF_EVENTS, Tally

Named = UUID | int
"""An organization or an endpoint, or EVERY."""


class Ticks:
    """A tick is kept under its minute, organization and endpoint; a roll-up under its owner, span and beginning."""

    def __init__(self) -> None:
        self._ticks: defaultdict[tuple[Instant, Named, Named], Counter[str]] = defaultdict(Counter)
        self._rollups: defaultdict[tuple[Named, Named, Span, Instant], Counter[str]] = defaultdict(Counter)

    def add(self, tally: Tally, at: Instant) -> None:
        for (org, endpoint), figures in tally.rows.items():
            self._ticks[Span.MINUTE.start(at), org, endpoint].update(figures)

    def fold(self, before: Instant, limit: int) -> int:
        """Move up to `limit` ticks of minutes that began before this."""
        ended = sorted(
            (key for key in self._ticks if key[0] < before), key=lambda key: (int(key[1]), int(key[2]), key[0])
        )
        for minute, org, endpoint in ended[:limit]:
            figures = self._ticks.pop((minute, org, endpoint))
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

    def of(self, org: Named, endpoint: Named, span: Span) -> dict[Instant, Figures]:
        """Everything that is kept of an owner, by the beginnings of the spans, oldest first."""
        found: defaultdict[Instant, Counter[str]] = defaultdict(Counter)
        for at, figures in (*self._kept(org, endpoint, span), *self._lately(org, endpoint, span)):
            found[at].update(figures)
        return {at: Figures(**found[at]) for at in sorted(found)}

    def _kept(self, org: Named, endpoint: Named, span: Span) -> Iterator[tuple[Instant, Counter[str]]]:
        return ((key[3], one) for key, one in self._rollups.items() if key[:3] == (org, endpoint, span))

    def _lately(self, org: Named, endpoint: Named, span: Span) -> Iterable[tuple[Instant, Counter[str]]]:
        for (minute, of_org, of_endpoint), figures in self._ticks.items():
            if org in (EVERY, of_org) and endpoint in (EVERY, of_endpoint):
                yield span.start(minute), figures
