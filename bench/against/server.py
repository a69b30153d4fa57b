"""Runs a `doorstep` command or server of one revision, and measures its CPU."""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import uuid4

import psutil

from bench.against.revisions import Revision
from tests.support.ports import free_port

ADMIN_KEY = "bench-admin-key"
_SECRET_KEY = "ZG9vcnN0ZXAtYmVuY2gtZG9vcnN0ZXAtYmVuY2gtMTI="
_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 30
_TAIL_SECONDS = 0.3
"""The last settlements are written after the last response. They still count as part of the slice."""


class Slice(NamedTuple):
    cpu_seconds: float
    units: float
    """The number of events, seconds or starts that this CPU was used for."""


@dataclass(frozen=True)
class Side:
    """One revision with its own folder and databases."""

    revision: Revision
    folder: Path
    new_database: Callable[[], str]
    """Creates an empty database and returns its URL."""

    def run(self, *arguments: str) -> Slice:
        """Run a command to its end."""
        before = _ended_children_cpu()
        command = [str(self.revision.program), *arguments]
        subprocess.run(command, cwd=self.folder, env=environment(), stdout=subprocess.DEVNULL, check=True)
        return Slice(_ended_children_cpu() - before, 1)


class Server:
    """`doorstep serve` on a free port, from its start to its stop."""

    def __init__(self, side: Side, database_url: str, *, app: str | None = None) -> None:
        self.port = free_port()
        command = [str(side.revision.program), "serve", "--port", str(self.port), "--database", database_url]
        self._command = command if app is None else [*command, "--app", app]
        self._folder = side.folder

    def __enter__(self) -> Self:
        self._log = self._folder / f"{self.port}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, cwd=self._folder, env=environment(), stdout=log, stderr=log)
        try:
            self._await_ready()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"doorstep serve exited unexpectedly with exit code {code}:\n{self._last_words()}")
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def cpu_seconds(self) -> float:
        """User and system time so far of the process and its children, including those that have ended."""
        return process_cpu(self._process.pid)

    def spend(self, work: Callable[[], object], units: float) -> Slice:
        """The CPU that the server uses during `work` and shortly after."""
        before = self.cpu_seconds()
        work()
        time.sleep(_TAIL_SECONDS)
        return Slice(self.cpu_seconds() - before, units)

    def create_endpoint(self, url: str, *, paused: bool = False) -> None:
        """Create an endpoint for the events of the benchmark."""
        endpoint = self.call(
            "POST", "/v1/endpoints", {"name": f"bench {uuid4()}", "url": url, "event_types": ["bench"]}
        )
        if paused:
            self.call("POST", f"/v1/endpoints/{endpoint['endpoint_id']}/pause", {})

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Make one request and return its response; raises if it failed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            headers = {"X-API-Key": ADMIN_KEY, "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path} returned {response.status}: {answer.decode()}")
        return json.loads(answer)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while True:
            with suppress(OSError):
                self.call("GET", "/readyz")
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"doorstep serve did not start:\n{self._last_words()}")
            time.sleep(0.01)

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-4_000:]


def environment() -> dict[str, str]:
    """The environment of a measured command: without the user's settings and this process's Python."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DOORSTEP_", "PYTHON", "OTEL_"))}
    return inherited | {
        "DOORSTEP_ADMIN_KEY": ADMIN_KEY,
        "DOORSTEP_SECRET_KEY": _SECRET_KEY,
        "DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8",
        "DOORSTEP_LOG_FORMAT": "json",
        "DOORSTEP_GRACE_SECONDS": "1",
    }


def process_cpu(pid: int) -> float:
    """CPU seconds of a process and its descendants, including those that have ended."""
    process = psutil.Process(pid)
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, OSError):  # it may have ended meanwhile
            times = member.cpu_times()
            total += times.children_user + times.children_system
            total += _own_cpu(member.pid) if sys.platform == "linux" else times.user + times.system
    return total


def _own_cpu(pid: int) -> float:
    """The CPU seconds of one process, from the kernel's CPU clock for that process, which is precise to nanoseconds.

    /proc counts in steps of 10 ms, which is as much CPU as an idle second costs. See clock_getcpuclockid(3) for how the
    clock's number is computed.
    """
    return time.clock_gettime((~pid << 3) | 2)


def _ended_children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
