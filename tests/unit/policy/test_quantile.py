"""Quantiles of a histogram, as Prometheus would compute them from the same buckets."""

from __future__ import annotations

import pytest

from doorstep.model.rollup import TTD_SECONDS
from doorstep.policy.reports import quantile
from tests.support.matrix import each_case

BOUNDS = (1.0, 2.0, 4.0)


def test_nothing_has_no_quantile() -> None:
    assert quantile(0.5, (0, 0, 0, 0), BOUNDS) is None


@each_case(
    ("q", "counts", "expected"),
    [
        (0.5, (10, 0, 0, 0), 0.5),
        (1.0, (10, 0, 0, 0), 1.0),
        (0.0, (0, 10, 0, 0), 1.0),
        (0.5, (0, 10, 0, 0), 1.5),
        (0.5, (5, 5, 0, 0), 1.0),
        (0.75, (5, 5, 0, 0), 1.5),
        (0.9, (0, 0, 10, 0), 3.8),
        (0.5, (1, 0, 1, 0), 1.0),
        (0.51, (1, 0, 1, 0), 2.04),
    ],
)
def test_values_lie_evenly_within_their_bucket(q: float, counts: tuple[int, ...], expected: float) -> None:
    assert quantile(q, counts, BOUNDS) == pytest.approx(expected)


def test_of_what_lies_beyond_the_last_bound_only_that_is_known() -> None:
    assert quantile(0.99, (1, 0, 0, 99), BOUNDS) == 4.0


def test_the_usual_bounds_are_those_of_the_time_to_delivery() -> None:
    assert quantile(1.0, (0,) * (len(TTD_SECONDS) - 1) + (1, 0)) == TTD_SECONDS[-1]
