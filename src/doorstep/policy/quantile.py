"""Quantiles of a histogram, estimated as Prometheus does it (`histogram_quantile`), so that both say the same."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise

from doorstep.model.rollup import TTD_SECONDS

Edges = tuple[float, float]
"""Between which the values of a bucket lie."""


def quantile(q: float, counts: Sequence[int], bounds: tuple[float, ...] = TTD_SECONDS) -> float | None:
    """The value below which a share `q` of what was counted lies; None where nothing was.

    `counts` has one more bucket than there are upper bounds, each counted for itself. Values are taken to lie evenly
    within their bucket, the first of which begins at 0. Of what lies in the last bucket only the bound below is known.
    """
    return _value(q, list(accumulate(counts)), _edges(bounds))


def quantiles(
    ranks: Sequence[float], buckets: Sequence[Sequence[int]], bounds: tuple[float, ...] = TTD_SECONDS
) -> list[list[float | None]]:
    """For each rank those of many histograms, whose counts are given bucket by bucket.

    What is empty in all of them is left out. That changes nothing, and most are: a day seldom has use for all of them.
    """
    edges = _edges(bounds)
    used = [place for place, counts in enumerate(buckets) if any(counts)] or [0]
    within = [edges[place] for place in used]
    added = [list(accumulate(counts)) for counts in zip(*(buckets[place] for place in used), strict=True)]
    return [[_value(q, upto, within) for upto in added] for q in ranks]


@cache
def _edges(bounds: tuple[float, ...]) -> list[Edges]:
    return list(pairwise((0.0, *bounds, bounds[-1])))


def _value(q: float, upto: Sequence[int], edges: Sequence[Edges]) -> float | None:
    """The lowest of all begins the first bucket that is not empty."""
    if not upto[-1]:
        return None
    rank = q * upto[-1]
    bucket = bisect_left(upto, rank or 1)
    lower, upper = edges[bucket]
    below = upto[bucket - 1] if bucket else 0
    return lower + (upper - lower) * (rank - below) / (upto[bucket] - below)
