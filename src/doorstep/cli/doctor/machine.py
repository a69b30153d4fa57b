"""What the machine must offer: a disk with room that keeps its word quickly, and a free port."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from doorstep.cli.doctor.finding import Finding, ok, problem
from doorstep.cli.web_server import listener
from doorstep.errors import DoorstepError

GIB = 1024**3
_FREE_BYTES_MIN = GIB // 2
_FSYNC_SECONDS_MAX = 0.05
"""A commit waits for one fsync; at 50 ms no sender sees an answer sooner than that."""
_FSYNCS = 7
_ELSEWHERE = "the data is not on this machine"


def disk_space(folder: Path | None, free_bytes_min: int = _FREE_BYTES_MIN) -> Finding:
    """Whether there is room for the data. A full disk refuses new events."""
    if folder is None:
        return ok("disk space", _ELSEWHERE)
    free = shutil.disk_usage(_existing(folder)).free
    found = f"{free / GIB:.1f} GiB free in {folder}"
    if free < free_bytes_min:
        return problem("disk space", found, "make room, or move the data with DOORSTEP_DATABASE_URL")
    return ok("disk space", found)


def disk_speed(folder: Path | None, fsync_seconds_max: float = _FSYNC_SECONDS_MAX) -> Finding:
    """How long the disk takes to promise that something is kept (fsync)."""
    if folder is None:
        return ok("disk speed", _ELSEWHERE)
    try:
        median = statistics.median(_fsync_seconds(_existing(folder)))
    except OSError as error:
        return problem("disk speed", f"{folder} cannot be written: {error.strerror}", "let this user write there")
    found = f"an fsync takes {median * 1_000:.1f} ms"
    if median > fsync_seconds_max:
        return problem("disk speed", found, "use a local SSD: every answer to a sender waits for one fsync")
    return ok("disk speed", found)


def port(host: str, number: int, is_doorstep: Callable[[], bool]) -> Finding:
    """Whether `doorstep serve` could listen there, or does so already."""
    try:
        listener(host, number).close()
    except DoorstepError as error:
        if is_doorstep():
            return ok("port", f"a Doorstep listens at {host} port {number}")
        sentence, _, remedy = str(error).partition("; ")
        return problem("port", sentence, remedy)
    return ok("port", f"{host} port {number} is free")


def _fsync_seconds(folder: Path) -> list[float]:
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_FSYNCS):
            started = time.perf_counter()
            file.write(bytes(4_096))
            file.flush()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - started)
    return taken


def _existing(folder: Path) -> Path:
    """The folder, or the one in which the first start will make it."""
    return next(one for one in (folder, *folder.parents) if one.exists())
