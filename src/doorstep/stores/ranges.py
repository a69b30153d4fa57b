"""Which roll-ups a range of time is put together from; one rule for every store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doorstep.clock import DAY, Instant
from doorstep.model.rollup import FINE_RANGE, HOUR, MINUTE, Span

Part = tuple[Span, Instant, Instant]
"""Roll-ups of this span that begin at the first instant or later, and before the second."""


_UNITS = ((Span.DAY, DAY), (Span.HOUR, HOUR), (Span.MINUTE, MINUTE))


def widened(since: Instant, until: Instant) -> list[Part]:
    """Whole days, with hours before and after them, and minutes around those; a long range has no minutes."""
    unit = HOUR if until - since > FINE_RANGE else MINUTE
    return list(_parts(since - since % unit, until + -until % unit, _UNITS))


def _parts(start: Instant, end: Instant, units: Sequence[tuple[Span, Instant]]) -> Iterator[Part]:
    (span, length), *finer = units
    first, last = start + -start % length, end - end % length
    if first < last:
        yield from _parts(start, first, finer) if finer else ()
        yield span, first, last
        yield from _parts(last, end, finer) if finer else ()
    elif start < end:
        yield from _parts(start, end, finer)
