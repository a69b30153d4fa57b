"""Evaluates the pairs of slices: the ratio of CPU, its spread, and whether it is a difference or noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import comb
from statistics import median, quantiles

TOLERANCE = 0.02
"""Smaller differences are ignored: two servers of the same revision can differ by as much, because of memory layout."""
_CHANCE_MAX = 0.05


class Verdict(StrEnum):
    SLOWER = "SLOWER"
    FASTER = "faster"
    SAME = "no difference"
    UNKNOWN = "too few pairs to tell"


@dataclass(frozen=True)
class Pair:
    """The CPU per unit of two slices, one of each revision, which ran one right after the other."""

    old: float
    new: float

    @property
    def ratio(self) -> float:
        return self.new / self.old


@dataclass(frozen=True)
class Comparison:
    name: str
    unit: str
    pairs: Sequence[Pair]

    @property
    def ratios(self) -> list[float]:
        return sorted(pair.ratio for pair in self.pairs)

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios, new ÷ old."""
        return median(self.ratios)

    @property
    def middle_half(self) -> tuple[float, float]:
        """The first and third quartile. A single pair has no spread."""
        if len(self.pairs) < 2:
            return self.ratio, self.ratio
        first, _, third = quantiles(self.ratios, n=4, method="inclusive")
        return first, third

    @property
    def verdict(self) -> Verdict:
        """The verdict of a sign test. Equal revisions would differ this often in the same direction in less than 5 % of
        all comparisons."""
        needed = pairs_needed(len(self.pairs))
        if needed is None:
            return Verdict.UNKNOWN
        if self.ratio > 1 + TOLERANCE and sum(ratio > 1 for ratio in self.ratios) >= needed:
            return Verdict.SLOWER
        if self.ratio < 1 - TOLERANCE and sum(ratio < 1 for ratio in self.ratios) >= needed:
            return Verdict.FASTER
        return Verdict.SAME

    def __str__(self) -> str:
        old, new = (median(getattr(pair, side) for pair in self.pairs) for side in ("old", "new"))
        low, high = self.middle_half
        spread = f"middle half {low:.3f}–{high:.3f}, all {self.ratios[0]:.3f}–{self.ratios[-1]:.3f}"
        return (
            f"{self.name:<26} {old:>9.2f} → {new:>9.2f} {self.unit:<14} ×{self.ratio:.3f}  ({spread})  {self.verdict}"
        )


def pairs_needed(pairs: int) -> int | None:
    """How many pairs must point the same way; None if so few pairs cannot show a difference at all."""
    for agreeing in range(pairs // 2 + 1, pairs + 1):
        if 2 * sum(comb(pairs, k) for k in range(agreeing, pairs + 1)) / 2**pairs <= _CHANCE_MAX:
            return agreeing
    return None
