"""Figures and their targets, and how they are printed and stored."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Target:
    """The target of a figure: an upper or lower bound."""

    bound: float
    at_most: bool = True

    def met_by(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:,g}"


def at_most(bound: float) -> Target:
    return Target(bound)


def at_least(bound: float) -> Target:
    return Target(bound, at_most=False)


@dataclass(frozen=True)
class Figure:
    """One measured number. Figures without a target help to explain the other figures."""

    name: str
    value: float
    unit: str
    target: Target | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "met" if self.target.met_by(self.value) else "MISSED"


def print_figure(figure: Figure) -> None:
    value = f"{_plain(figure.value)} {figure.unit}".strip()
    target = "" if figure.target is None else f"target {figure.target}"
    note = f"  ({figure.note})" if figure.note else ""
    print(f"  {figure.name:<58} {value:>20}  {target:<14} {figure.verdict:<6}{note}".rstrip(), flush=True)


def print_summary(figures: Sequence[Figure]) -> None:
    judged = [figure for figure in figures if figure.target]
    missed = [figure for figure in judged if figure.verdict == "MISSED"]
    print(f"\n{len(judged) - len(missed)} of {len(judged)} targets met.")
    for figure in missed:
        print(f"  MISSED: {figure.name} is {_plain(figure.value)} {figure.unit}, target {figure.target}")


def keep(figures: Sequence[Figure], *, quick: bool, seconds: float) -> Path:
    """Write the run to a file, with enough details of the machine to compare it with others."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}{'-quick' if quick else ''}.json"
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
    rows = [asdict(figure) | {"verdict": figure.verdict} for figure in figures]
    path.write_text(json.dumps({"machine": machine, "seconds": round(seconds), "figures": rows}, indent=1) + "\n")
    return path


def _plain(value: float) -> str:
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
