"""Memory, file handles and threads of the processes under test, which must not grow over a long run."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

import psutil

from tests.faults.harness.installation import Installation

_EVERY_SECONDS = 1.0
_WARM_UP_SECONDS = 15.0
_LIFE_SECONDS_MIN = 45.0
_MEMORY_GROWTH_MAX = 1.3
_HANDLES_GROWTH_MAX = 64
_THREADS_GROWTH_MAX = 8


class Sign(NamedTuple):
    at: float
    memory_mebibytes: float
    handles: int
    threads: int


class Vitals:
    """Samples every Doorstep process while it is open."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._signs: dict[tuple[str, int], list[Sign]] = defaultdict(list)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing.set()
        self._thread.join()

    def growths(self) -> Iterator[str]:
        """Processes that lived long and ended with more of a resource than they had after warming up."""
        for (name, _), signs in self._signs.items():
            if signs[-1].at - signs[0].at < _LIFE_SECONDS_MIN:
                continue
            warm = max(sign for sign in signs if sign.at - signs[0].at <= _WARM_UP_SECONDS)
            end = signs[-1]
            if end.memory_mebibytes > warm.memory_mebibytes * _MEMORY_GROWTH_MAX:
                yield f"{name} grew from {warm.memory_mebibytes:.0f} to {end.memory_mebibytes:.0f} MiB"
            if end.handles > warm.handles + _HANDLES_GROWTH_MAX or end.threads > warm.threads + _THREADS_GROWTH_MAX:
                yield f"{name} went from {warm} to {end}"

    def __str__(self) -> str:
        signs = [sign for life in self._signs.values() for sign in life]
        memory = max((sign.memory_mebibytes for sign in signs), default=0)
        handles = max((sign.handles for sign in signs), default=0)
        threads = max((sign.threads for sign in signs), default=0)
        return f"{len(self._signs)} lives; at most {memory:.0f} MiB, {handles} file handles, {threads} threads"

    def _watch(self) -> None:
        while not self._closing.wait(_EVERY_SECONDS):
            for process in self._installation.engines:
                try:
                    self._signs[process.name, process.pid].append(_sign(process.pid))
                except psutil.Error:
                    continue


def _sign(pid: int) -> Sign:
    process = psutil.Process(pid)
    with process.oneshot():
        memory = process.memory_info().rss / 2**20
        return Sign(time.monotonic(), memory, process.num_fds(), process.num_threads())
