"""Processes that are kept alive as by an init system: one that dies is restarted after a short pause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

from tests.support.patience import PATIENCE_SECONDS
from tests.support.warm_start import Process, start_python

_RESTART_PAUSE_SECONDS = 0.2
_LOOK_SECONDS = 0.02


class KeptProcess:
    """One process that is kept alive. `kill` and `pause` come without warning; only `stop` lets it end gracefully."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path, *, revived: bool = True
    ) -> None:
        self.name = name
        self.exits: list[int] = []
        """Exit codes of all ends without an order from `stop`: −9 for a kill, anything else for an exit of its own."""
        self._command = list(command)
        self._environment = dict(environment)
        self._folder = folder
        self._revived = revived
        self._wanted = False
        self._died_at = 0.0
        self._process: Process | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def children(self) -> list[psutil.Process]:
        """The child processes of this one."""
        try:
            return list(psutil.Process(self.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    @property
    def output(self) -> Path:
        return self._folder / f"{self.name}.log"

    @property
    def said(self) -> str:
        """All output so far, across restarts."""
        return self.output.read_text(errors="replace")

    def start(self) -> None:
        with self._lock:
            self._wanted = True
            self._launch()

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def pause(self) -> None:
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def stop(self, seconds_max: float = PATIENCE_SECONDS) -> int:
        """Send SIGTERM and return the exit code. A process that does not end in time is killed, with the code −9."""
        with self._lock:
            self._wanted = False
        if self._process is None:
            return 0
        self._send(signal.SIGTERM)
        try:
            return self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.end()
            return -signal.SIGKILL

    def end(self) -> None:
        """Kill the process and its children."""
        self._wanted = False
        for process in [*self.children, self._process]:
            if process is not None:
                process.kill()
        if self._process is not None:
            self._process.wait()

    def revive(self) -> None:
        """Restart the process if it died without an order to stop. The keeper calls this repeatedly."""
        with self._lock:
            if not (self._wanted and self._revived) or self.running or self._process is None:
                return
            if not self._died_at:
                self._died_at = time.monotonic()
                self.exits.append(self._process.returncode)
            elif time.monotonic() - self._died_at > _RESTART_PAUSE_SECONDS:
                self._launch()

    def _launch(self) -> None:
        self._died_at = 0.0
        with self.output.open("ab") as output:
            self._process = self._started(output)

    def _started(self, output: IO[bytes]) -> Process:
        given: dict[str, Any] = {"env": self._environment, "cwd": self._folder, "stdout": output, "stderr": output}
        if self._command[0] == sys.executable:
            return start_python(self._command[1:], **given)
        return subprocess.Popen(self._command, stdin=subprocess.DEVNULL, **given)

    def _send(self, number: signal.Signals) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass  # it has just died by itself


class Keeper:
    """Watches over kept processes until it is closed, then ends all of them."""

    def __init__(self) -> None:
        self.processes: list[KeptProcess] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def keep(self, process: KeptProcess) -> KeptProcess:
        process.start()
        self.processes.append(process)
        return process

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        for process in self.processes:
            process.end()

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            for process in list(self.processes):
                process.revive()
