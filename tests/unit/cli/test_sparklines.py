"""Sparklines: charts that fit on one line of text."""

from __future__ import annotations

from doorstep.cli.monitoring import sparkline


def test_each_value_is_as_high_as_its_share_of_the_highest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"


def test_what_is_unknown_is_blank_and_nothing_at_all_is_flat() -> None:
    assert sparkline([None, 1, None]) == " █ "
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""


def test_more_values_than_fit_are_put_together() -> None:
    assert len(sparkline([1] * 1_440)) <= 60
    assert sparkline([0, 9, 0, 0], width=2) == "█▁"
    assert sparkline([4, 4, 2, 0], width=2, combine=sum) == "█▃"
