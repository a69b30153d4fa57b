"""A command in a terminal of its own, as a reader of the pages would run it."""

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
    """What it shows is collected while it runs; both of its outputs are on the screen, as they would be."""

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
        """What stands on the screen, without colours."""
        return _STYLES.sub("", self._bytes.decode("utf-8", "replace")).replace("\r\n", "\n")

    def wait(self) -> str:
        """All that it has shown, once it has ended by itself."""
        self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return self.shown

    def end(self) -> None:
        """Ctrl-C, and wait for it."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """End it, with whatever it has started, as closing the window would."""
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
            except OSError:  # nobody is at the other end any more
                return
            if not got:
                return
            self._bytes += got


@contextmanager
def terminal(command: str, folder: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Closed in any case."""
    it = Terminal(command, folder, environment)
    try:
        yield it
    finally:
        it.close()
