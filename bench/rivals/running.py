"""Runs the programs of a queue: sends its jobs, starts its worker, and reads the marks that its jobs write."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import psutil

from bench.rivals.brokers import Broker
from bench.rivals.environment import install, own_binaries
from bench.rivals.programs.job import MARK
from bench.rivals.roster import Contender

_PROGRAMS = Path(__file__).parent / "programs"
_SEND_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 5


class Run:
    """One queue with its own broker and folder."""

    def __init__(self, contender: Contender, broker: Broker, folder: Path) -> None:
        self.contender = contender
        self.broker = broker
        self._folder = folder
        self._marks = folder / "marks"
        self._marks.touch()
        self._binaries = own_binaries() if contender.ours else install()

    def send(self, count: int, seconds: float = 0.0) -> None:
        """Send jobs of this duration. When this method returns, all jobs have been accepted."""
        program = str(_PROGRAMS / f"{self.contender.program}.py")
        command = [str(self._binaries / "python"), program, str(count), str(seconds)]
        with self._log() as log:
            subprocess.run(
                command, env=self._variables(), stdout=log, stderr=log, check=True, timeout=_SEND_SECONDS_MAX
            )

    @contextmanager
    def worker(self) -> Iterator[psutil.Popen]:
        """Run the queue's worker, with its default log in a file. Stops all processes of the worker afterwards."""
        program, *arguments = self.contender.worker
        command = [str(self._binaries / program), *arguments]
        with self._log() as log:
            process = psutil.Popen(
                command, env=self._variables(), cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            _end(process)

    def done(self) -> int:
        """The number of finished jobs, if no job sleeps. Each job then makes only one mark."""
        return self._marks.stat().st_size // MARK.size

    def numbers(self, kind: bytes) -> set[int]:
        """The jobs that have begun (`b`) or are done (`d`)."""
        return {number for mark, number in MARK.iter_unpack(self._marks.read_bytes()) if mark == kind}

    def left(self) -> int:
        """The number of jobs that the broker still holds."""
        return sum(self.broker.count(question) for question in self.contender.left)

    def await_until(self, true: Callable[[], bool], seconds_max: float, pause: float = 0.005) -> bool:
        """Wait for a condition; False if it was not met in time."""
        deadline = time.monotonic() + seconds_max
        while not true():
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
        return True

    def last_words(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2_000:]

    def _log(self) -> BinaryIO:
        return (self._folder / "log").open("ab")

    def _variables(self) -> dict[str, str]:
        own = {"BENCH_MARKS": str(self._marks), "PYTHONPATH": str(_PROGRAMS), "C_FORCE_ROOT": "1"}
        return os.environ | self.broker.variables | dict(self.contender.variables) | own


def _end(process: psutil.Popen) -> None:
    """Terminate the worker's whole session, then kill it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_STOP_SECONDS_MAX)
        except ProcessLookupError:
            return
        except psutil.TimeoutExpired:
            continue
