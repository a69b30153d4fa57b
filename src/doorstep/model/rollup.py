"""Roll-ups: what happened, counted by minute, hour and since ever, for an endpoint, an organization and the whole store.

The figures are written in the very transaction that makes the change they count, so they are exact whoever is killed
when. Those that begin with `now_` are levels, kept as signed changes: added up since ever they say how many there are,
and over a minute by how many there were more at its end than at its beginning.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from operator import add, attrgetter, sub

from msgspec.structs import astuple

from doorstep.clock import DAY, SECOND, Instant
from doorstep.model.record import Record

MINUTE: Instant = 60 * SECOND
HOUR: Instant = 60 * MINUTE

RETRIES_TOLD_APART = 7
"""`retries_7` counts seven and more."""
TTD_SECONDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 10800, 43200, 86400, 259200,
)  # fmt: skip
"""Upper bounds, included, of the buckets of the time to delivery; the last bucket has none."""
_TTD_BOUNDS: tuple[Instant, ...] = tuple(round(bound * SECOND) for bound in TTD_SECONDS)
FINE_RANGE: Instant = DAY
"""Sums over a longer range than this begin and end with whole hours, because minutes are not kept for ever."""


class Span(StrEnum):
    """What one roll-up covers."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    """In UTC; so that sums over a month need not add up 720 hours."""
    EVER = "ever"

    @property
    def length(self) -> Instant:
        """Whatever there is lies in the first of that which is since ever, which begins at 0."""
        return _LENGTHS[self]

    def start(self, at: Instant) -> Instant:
        """The beginning of the span that an instant lies in."""
        return at - at % self.length


_LENGTHS: dict[str, Instant] = {Span.MINUTE: MINUTE, Span.HOUR: HOUR, Span.DAY: DAY, Span.EVER: 2**62}


class Figures(Record, frozen=True):
    """What is counted. An endpoint's own have nothing of events: those belong to the organization."""

    created: int = 0
    """Events that were accepted."""
    delivered: int = 0
    """How often an event became delivered: its last delivery arrived or was resolved, or it was acknowledged."""
    failed: int = 0
    """How often an event came to its end with a dead letter; what an operator cancelled or deleted did not fail."""
    now_received: int = 0
    """Events that exist, by their status; what was deleted or cleaned away has left."""
    now_queued: int = 0
    now_delivered: int = 0
    now_failed: int = 0

    deliveries: int = 0
    """Deliveries that were made."""
    succeeded: int = 0
    """Attempts by what they came to: delivered, due again, failed for good."""
    retried: int = 0
    died: int = 0
    blocked: int = 0
    """Attempts among those that the address guard refused."""
    late: int = 0
    """Results that came after their lease, and changed nothing."""
    dead: int = 0
    """Deliveries that became dead letters, in any way."""
    now_open: int = 0
    """Deliveries that are pending or in progress."""
    now_dead: int = 0
    """Dead letters that are neither archived nor deleted."""
    now_archived: int = 0

    retries_0: int = 0
    """Deliveries by the retries they had used in their round, when a try delivered them or failed for good."""
    retries_1: int = 0
    retries_2: int = 0
    retries_3: int = 0
    retries_4: int = 0
    retries_5: int = 0
    retries_6: int = 0
    retries_7: int = 0

    ttd_0: int = 0
    """Deliveries that were delivered, by the time since they were owed (model/event.py): see TTD_SECONDS."""
    ttd_1: int = 0
    ttd_2: int = 0
    ttd_3: int = 0
    ttd_4: int = 0
    ttd_5: int = 0
    ttd_6: int = 0
    ttd_7: int = 0
    ttd_8: int = 0
    ttd_9: int = 0
    ttd_10: int = 0
    ttd_11: int = 0
    ttd_12: int = 0
    ttd_13: int = 0
    ttd_14: int = 0
    ttd_15: int = 0
    ttd_16: int = 0
    ttd_17: int = 0
    ttd_18: int = 0
    ttd_19: int = 0
    ttd_20: int = 0
    ttd_ms: int = 0
    """The sum of those times. Not in microseconds: a million deliveries a day that each waited for a week would have
    filled 64 bits with those in a fortnight."""

    @property
    def attempts(self) -> int:
        """Attempts that counted."""
        return self.succeeded + self.retried + self.died

    @property
    def retries(self) -> tuple[int, ...]:
        """How many deliveries used 0, 1, 2, … retries; the last is that many and more."""
        found: tuple[int, ...] = _retries(self)
        return found

    @property
    def ttd(self) -> tuple[int, ...]:
        """The buckets of the time to delivery, each for itself."""
        found: tuple[int, ...] = _ttd(self)
        return found

    def __add__(self, other: Figures) -> Figures:
        return Figures(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Figures) -> Figures:
        """What is left without a part; both must be of one picture."""
        return Figures(*map(sub, astuple(self), astuple(other)))


FIGURES: tuple[str, ...] = Figures.__struct_fields__
"""The names of all figures, in order: the columns of the stores."""
RETRIES = tuple(f"retries_{number}" for number in range(RETRIES_TOLD_APART + 1))
TTD = tuple(f"ttd_{number}" for number in range(len(TTD_SECONDS) + 1))
_retries, _ttd = attrgetter(*RETRIES), attrgetter(*TTD)

TREND = ("deliveries", "succeeded", "retried", "died", "dead")
"""The figures of a trend: what became of deliveries and attempts. With all figures, the day of 50 endpoints took 58 ms on
SQLite, against 5."""


class Point(Record, frozen=True):
    """One of a series: the figures of the span that begins at `at`."""

    at: Instant
    values: tuple[int, ...]
    """In the order of FIGURES. A day has 1,440 of them, which are read figure by figure and need no names."""

    @classmethod
    def of(cls, at: Instant, figures: Figures) -> Point:
        return cls(at, astuple(figures))

    @property
    def figures(self) -> Figures:
        return Figures(*self.values)


def only(names: Sequence[str], figures: Figures) -> Figures:
    """Those with these names; the others are 0."""
    return Figures(**{name: getattr(figures, name) for name in names})


def retries_figure(retry_attempts: int) -> str:
    """The figure that counts a delivery which has used so many retries."""
    return RETRIES[min(retry_attempts, RETRIES_TOLD_APART)]


def ttd_figure(span: Instant) -> str:
    """The figure that counts a delivery which took so long."""
    return TTD[bisect_left(_TTD_BOUNDS, span)]
