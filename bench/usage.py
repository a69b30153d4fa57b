"""What a system has used: CPU, context switches and bytes written, from the kernel's counters, and its transactions."""

from __future__ import annotations

import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.against.server import process_cpu
from bench.databases import Database

_SWITCHES = re.compile(r"^(voluntary|nonvoluntary)_ctxt_switches:\s*(\d+)", re.MULTILINE)
_PERF_LINE = re.compile(r"^(\d+),.*sys_enter_futex", re.MULTILINE)
_STRACE_LINE = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s.*\bfutex$", re.MULTILINE)
_COMMITS_OFFSET = 8
"""The position of `iChange` in the WAL index of SQLite (the `-shm` file): "counter incremented each transaction"."""


class Usage(NamedTuple):
    """The totals of all processes of a system: Doorstep and, with PostgreSQL, the database server."""

    cpu_seconds: float
    sleeps: float
    """How often a thread slept. Each is a wake-up later."""
    background_sleeps: float
    """The part of `sleeps` that is due to the database server's own processes, such as its background writer."""
    switches: float
    """The number of context switches: sleeps, and interruptions by the scheduler."""
    written_bytes: float
    """Bytes sent to the block device, in pages."""

    def since(self, before: Usage) -> Usage:
        return Usage(*(now - then for now, then in zip(self, before, strict=True)))


def usage_of(pid: int, database: Database) -> Usage:
    """The usage so far of a process, its children, and the server of its database."""
    roots = [pid] if database.server is None or database.server.pid is None else [pid, database.server.pid]
    members = [member for root in roots for member in _family(root)]
    sleeps, interruptions = _switches(members)
    background, _ = _switches(member for root in roots[1:] for member in _background(root))
    return Usage(
        sum(map(process_cpu, roots)),
        sleeps,
        background,
        sleeps + interruptions,
        sum(map(_written_bytes, members)),
    )


def transactions_of(database: Database) -> int:
    """A counter that every transaction that writes increments."""
    if database.server is not None:
        return database.ask("SELECT pg_snapshot_xmax(pg_current_snapshot())")[0][0]
    index = database.path.with_name(database.path.name + "-shm").read_bytes()
    return int(struct.unpack_from("=I", index, _COMMITS_OFFSET)[0])


def memory_bytes(pid: int) -> int:
    """The memory of a process, with its share of what it shares with others."""
    return int(psutil.Process(pid).memory_full_info().pss)


def count_futex_calls(pid: int, work: Callable[[], object]) -> int | None:
    """How many futex calls a process makes during `work`; None without perf or strace, or without the right to use
    them. perf is preferred: strace slows the process down so much that its threads wait for each other more often."""
    for command, calls in (
        (["perf", "stat", "-x,", "-e", "syscalls:sys_enter_futex"], _PERF_LINE),
        (["strace", "-f", "-c", "-e", "trace=futex"], _STRACE_LINE),
    ):
        if shutil.which(command[0]) and (found := _traced([*command, "-p", str(pid)], calls, work)) is not None:
            return found
    return None


def _traced(command: list[str], calls: re.Pattern[str], work: Callable[[], object]) -> int | None:
    with tempfile.NamedTemporaryFile(mode="r") as table:
        tracer = subprocess.Popen([*command, "-o", table.name], stderr=subprocess.DEVNULL)
        time.sleep(1.0)  # it attaches to one thread after the other, and has no way to tell when it is done
        if tracer.poll() is not None:
            return None
        work()
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        found = calls.search(table.read())
    return int(found[1]) if found else None


def _family(pid: int) -> list[int]:
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def _background(server_pid: int) -> list[int]:
    """The processes of a PostgreSQL server that serve no connection. The title of the others names their client."""
    members = [psutil.Process(pid) for pid in _family(server_pid)]
    return [one.pid for one in members if "127.0.0.1" not in " ".join(one.cmdline())]


def _switches(pids: Iterable[int]) -> tuple[int, int]:
    """The voluntary and the involuntary context switches of all threads that are still alive."""
    totals = {"voluntary": 0, "nonvoluntary": 0}
    for pid in pids:
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            with suppress(OSError):  # the thread has ended
                for kind, number in _SWITCHES.findall(status.read_text()):
                    totals[kind] += int(number)
    return totals["voluntary"], totals["nonvoluntary"]


def _written_bytes(pid: int) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(psutil.Process(pid).io_counters().write_bytes)
    return 0
