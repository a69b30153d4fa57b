"""Charts show the same figures as the report, with no more points than can be distinguished."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from doorstep.clock import SECOND
from doorstep.console.charts import POINTS_MAX, Charts
from doorstep.model.rollup import MINUTE, Figures, Point
from doorstep.operations.stats import Report
from doorstep.policy.reports import Axis, added_up, coarser, columns


def report(steps: list[Figures], now: Figures | None = None) -> Report:
    axis = Axis(0, MINUTE, len(steps))
    found = columns(axis, [Point.of(place * MINUTE, figures) for place, figures in enumerate(steps)])
    return Report(axis, found, added_up(found), now or Figures())


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=1_500))
def test_nothing_is_lost_when_steps_are_put_together(counts: list[int]) -> None:
    steps = [Figures(created=count) for count in counts]
    chart = Charts(report(steps)).events()
    (created, *_) = chart["series"]
    together = -(-len(counts) // POINTS_MAX)
    assert len(created["values"]) == len(chart["at"]) <= POINTS_MAX
    assert abs(sum(value or 0 for value in created["values"]) * together - sum(counts)) < 1 + len(counts) * 0.01


def test_a_level_is_that_at_the_end_of_each_point() -> None:
    steps = [Figures(now_open=1)] * 360
    (depth, _) = Charts(report(steps, Figures(now_open=360))).queue()["series"]
    assert list(depth["values"])[-3:] == [356, 358, 360]


def test_points_stand_at_the_beginning_of_their_time() -> None:
    chart = Charts(report([Figures()] * 60)).events()
    assert list(chart["at"])[:3] == [0, 60, 120]
    assert MINUTE == 60 * SECOND


def test_where_nothing_ended_there_is_no_rate() -> None:
    (line,) = Charts(report([Figures(), Figures(succeeded=1, dead=1)])).success()["series"]
    assert list(line["values"]) == [None, 50.0]


def test_steps_that_need_no_putting_together_stay_as_they_are() -> None:
    steps = {"created": [1, 2, 4]}
    assert coarser(steps, 1) is steps
    assert coarser(steps, 2) == {"created": [3, 4]}
