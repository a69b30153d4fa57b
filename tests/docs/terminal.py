"""Runs a command in its own terminal, as a reader of the pages would."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import clean_environment

_COLUMNS = 120
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal that collects its output while the command runs; stdout and stderr share the screen, as in a real
    terminal."""

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._screen, end = pty.openpty()
        self._bytes = b""
        surroundings = {"COLUMNS": str(_COLUMNS), "TERM": "xterm"}
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env=clean_environment() | surroundings | dict(environment),
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        os.close(end)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def shown(self) -> str:
        """The text on the screen, without colours."""
        return _STYLES.sub("", self._bytes.decode("utf-8", "replace")).replace("\r\n", "\n")

    def wait(self) -> str:
        """Wait until the command ends by itself; returns all its output."""
        self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return self.shown

    def end(self) -> None:
        """Press Ctrl-C and wait until the command ends."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """End the command and every process that it started, as closing the window would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()
            self._reader.join(PATIENCE_SECONDS)
            os.close(self._screen)

    def _read(self) -> None:
        while True:
            try:
                got = os.read(self._screen, 65_536)
            except OSError:  # the other end is closed
                return
            if not got:
                return
            self._bytes += got


@contextmanager
def terminal(command: str, folder: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """A terminal that is always closed at the end."""
    it = Terminal(command, folder, environment)
    try:
        yield it
    finally:
        it.close()
