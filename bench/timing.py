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
    """CPU (all threads of this process) and wall time since it was made."""

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
    """The result of `work`, done in a fresh process, so that nothing else is in its CPU and memory figures."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


def cpu_seconds_of(process: psutil.Process) -> float:
    """CPU used so far by a process and its living children."""
    family = [process, *process.children(recursive=True)]
    return float(sum(sum(member.cpu_times()[:2]) for member in family))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed; NaN if there are none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """How much y grows per x, by least squares."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
