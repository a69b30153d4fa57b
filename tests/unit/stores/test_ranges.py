"""A time range is split into roll-ups that cover each of its minutes exactly once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from doorstep.clock import DAY
from doorstep.model.rollup import FINE_RANGE, HOUR, MINUTE, Span
from doorstep.stores.tally import rollup_parts

_INSTANTS = st.integers(0, 10 * DAY)


@given(_INSTANTS, st.integers(1, 3 * DAY))
def test_the_parts_follow_each_other_without_gap_or_overlap(since: int, length: int) -> None:
    parts = rollup_parts(since, since + length)
    assert all(one[2] == other[1] for one, other in pairwise(parts))
    unit = HOUR if length > FINE_RANGE else MINUTE
    assert 0 <= since - parts[0][1] < unit and 0 <= parts[-1][2] - (since + length) < unit


@given(_INSTANTS, st.integers(1, 3 * DAY))
def test_a_part_holds_whole_spans_and_minutes_are_few(since: int, length: int) -> None:
    for span, start, end in rollup_parts(since, since + length):
        assert span.start(start) == start and span.start(end) == end and start < end
        assert span is not Span.MINUTE or end - start < 2 * HOUR
        assert span is not Span.HOUR or end - start < 2 * DAY


def test_a_long_range_is_whole_hours_and_whole_days() -> None:
    assert rollup_parts(MINUTE, DAY + 2 * MINUTE) == [(Span.DAY, 0, DAY), (Span.HOUR, DAY, DAY + HOUR)]
