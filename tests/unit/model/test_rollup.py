"""Roll-up figures: their names, their sums, and the bucket in which a duration or retry count is counted."""

from __future__ import annotations

from doorstep.clock import DAY, SECOND
from doorstep.model.rollup import (
    FIGURES,
    HOUR,
    MINUTE,
    RETRIES,
    TTD,
    TTD_SECONDS,
    Figures,
    Span,
    only,
    retries_figure,
    ttd_figure,
)
from tests.support.matrix import each_case


def test_there_is_a_figure_for_every_bucket() -> None:
    assert {*TTD, *RETRIES} < set(FIGURES)
    assert len(TTD) == len(TTD_SECONDS) + 1
    assert len(Figures().ttd) == len(TTD) and len(Figures().retries) == len(RETRIES)


def test_figures_are_added_one_by_one() -> None:
    one = Figures(*range(len(FIGURES)))
    assert one + one == Figures(*range(0, 2 * len(FIGURES), 2))
    assert one + Figures() == one


def test_of_figures_that_were_chosen_the_others_are_zero() -> None:
    assert only(("dead", "ttd_3"), Figures(dead=1, died=2, ttd_3=3, ttd_4=4)) == Figures(dead=1, ttd_3=3)


@each_case(
    ("seconds", "figure"),
    [(0, "ttd_0"), (0.005, "ttd_0"), (0.005001, "ttd_1"), (259_200, "ttd_19"), (300_000, "ttd_20")],
)
def test_a_time_is_counted_in_the_first_bucket_whose_bound_it_does_not_exceed(seconds: float, figure: str) -> None:
    assert ttd_figure(round(seconds * SECOND)) == figure


@each_case(("retries", "figure"), [(0, "retries_0"), (7, "retries_7"), (20, "retries_7")])
def test_seven_retries_and_more_are_one_figure(retries: int, figure: str) -> None:
    assert retries_figure(retries) == figure


def test_a_span_begins_on_the_minute_on_the_hour_at_midnight_or_never() -> None:
    hour = 3 * DAY + 5 * HOUR
    assert [span.start(hour + 7 * MINUTE + 3) for span in Span] == [hour + 7 * MINUTE, hour, 3 * DAY, 0]
