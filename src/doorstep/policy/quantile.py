"""Quantiles of a histogram, estimated as Prometheus does it (`histogram_quantile`), so that both say the same."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from doorstep.model.rollup import TTD_SECONDS


def quantile(q: float, counts: Sequence[int], bounds: Sequence[float] = TTD_SECONDS) -> float | None:
    """The value below which a share `q` of what was counted lies; None where nothing was.

    `counts` has one more bucket than there are upper bounds, each counted for itself. Values are taken to lie evenly
    within their bucket, the first of which begins at 0. Of what lies in the last bucket only the bound below is known.
    """
    return quantiles((q,), counts, bounds)[0]


def quantiles(
    ranks: Sequence[float], counts: Sequence[int], bounds: Sequence[float] = TTD_SECONDS
) -> tuple[float | None, ...]:
    """Several at once, which costs hardly more than one."""
    upto = list(accumulate(counts))
    if not upto[-1]:
        return (None,) * len(ranks)
    return tuple([_value(q * upto[-1], upto, bounds) for q in ranks])


def _value(rank: float, upto: Sequence[int], bounds: Sequence[float]) -> float:
    """What has this rank; the lowest of all begins the first bucket that is not empty."""
    bucket = bisect_left(upto, rank or 1)
    if bucket == len(bounds):
        return float(bounds[-1])
    lower, below = (bounds[bucket - 1], upto[bucket - 1]) if bucket else (0.0, 0)
    return lower + (bounds[bucket] - lower) * (rank - below) / (upto[bucket] - below)
