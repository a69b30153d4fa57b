"""Figures along a time axis, and the values derived from them."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doorstep.model.rollup import HOUR, MINUTE, TTD, Figures, Point, Span
from doorstep.policy.reports import (
    WINDOWS,
    Axis,
    Columns,
    added_up,
    columns,
    failed_rate,
    failed_rates,
    levels,
    on_axis,
    share,
    success_rate,
    success_rates,
    time_to_delivery,
    times_to_delivery,
)
from doorstep.schemas.stats import Range
from tests.support.builders import NOW
from tests.support.matrix import each_case


def test_every_range_has_a_window_and_the_client_knows_them_all() -> None:
    assert set(WINDOWS) == set(get_args(Range))


@each_case("name", WINDOWS)
def test_an_axis_covers_its_range_and_ends_with_the_step_that_is_going_on(name: Range) -> None:
    window = WINDOWS[name]
    axis = window.axis(NOW)
    assert axis.until - axis.step <= NOW < axis.until
    assert axis.since % axis.step == 0 and axis.until - axis.since == window.step * window.steps
    lengths = {"1h": HOUR, "6h": 6 * HOUR, "24h": 24 * HOUR, "7d": 7 * 24 * HOUR, "30d": 30 * 24 * HOUR}
    assert axis.until - axis.since == lengths[name]
    assert window.step == (MINUTE if window.span is Span.MINUTE else HOUR)


def test_a_step_in_which_nothing_happened_is_empty_and_the_others_are_in_their_places() -> None:
    axis = WINDOWS["1h"].axis(NOW)
    points = [Point.of(axis.since, Figures(created=1)), Point.of(axis.until - MINUTE, Figures(created=2))]
    assert on_axis(axis, points) == [Figures(created=1), *[Figures()] * 58, Figures(created=2)]
    found = columns(axis, points)
    assert found["created"] == [1, *[0] * 58, 2]
    assert found["delivered"] == [0] * 60
    assert added_up(found) == Figures(created=3)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=50), st.integers(0, 100))
def test_a_level_read_backwards_is_the_one_that_the_changes_led_to(changes: list[int], before: int) -> None:
    walked, level = [], before + 250
    for change in changes:
        level += change
        walked.append(level)
    assert levels(level, changes) == walked


def test_a_level_is_never_below_zero_even_if_something_happened_between_the_two_questions() -> None:
    assert levels(0, [0, 3]) == [0, 0]


def test_rates_are_of_what_came_to_its_end_and_there_is_none_of_nothing() -> None:
    assert share(1, 4) == 0.25 and share(0, 0) is None
    figures = Figures(succeeded=19, dead=1, retried=100, delivered=3, failed=1)
    assert success_rate(figures) == 0.95, "a retry is no end"
    assert failed_rate(figures) == 0.25
    assert success_rate(Figures(retried=5)) is None and failed_rate(Figures()) is None


@given(st.lists(st.lists(st.integers(0, 9), min_size=len(TTD), max_size=len(TTD)), min_size=1, max_size=5))
def test_the_times_of_many_steps_are_those_of_each(counts: list[list[int]]) -> None:
    steps, ranks = [Figures(**dict(zip(TTD, one, strict=True))) for one in counts], (0.0, 0.5, 0.99, 1.0)
    expected = [[time_to_delivery(step, rank) for step in steps] for rank in ranks]
    assert times_to_delivery(side_by_side(steps), ranks) == expected


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), min_size=1, max_size=9))
def test_the_rates_of_many_steps_are_those_of_each(counts: list[tuple[int, int, int, int]]) -> None:
    steps = [Figures(succeeded=a, dead=b, delivered=c, failed=d) for a, b, c, d in counts]
    assert success_rates(side_by_side(steps)) == list(map(success_rate, steps))
    assert failed_rates(side_by_side(steps)) == list(map(failed_rate, steps))


def side_by_side(steps: list[Figures]) -> Columns:
    points = [Point.of(place * MINUTE, figures) for place, figures in enumerate(steps)]
    return columns(Axis(0, MINUTE, len(steps)), points)


def test_times_come_from_their_buckets() -> None:
    assert time_to_delivery(Figures(), 0.5) is None
    assert time_to_delivery(Figures(ttd_0=100), 0.5) == pytest.approx(0.0025)
    assert time_to_delivery(Figures(ttd_20=1), 0.5) == 259_200
