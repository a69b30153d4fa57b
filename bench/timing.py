"""Clocks and statistics: CPU of whole processes, percentiles, and work in a separate process."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

import psutil

P = ParamSpec("P")
R = TypeVar("R")


class Stopwatch:
    """The CPU (of all threads of this process) and the wall time since this object was created."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    @property
    def cpu_seconds(self) -> float:
        return time.process_time() - self._cpu

    @property
    def wall_seconds(self) -> float:
        return time.perf_counter() - self._wall


def in_own_process(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `work` in a new process, so that its CPU and memory figures include nothing else, and return its result."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


def cpu_seconds_of(process: psutil.Process) -> float:
    """CPU used so far by a process and its living children."""
    family = [process, *process.children(recursive=True)]
    return float(sum(sum(member.cpu_times()[:2]) for member in family))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all values does not exceed; NaN if there are no values."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line fitted by least squares: how much y grows per unit of x."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
