"""Installs a lock file into the environment of the Python that runs it, and shows how far it is.

    python requirements/install.py requirements/run.lock

pip is silent for most of the time or prints hundreds of lines; neither tells how long it will take. Bytecode is not
compiled in advance: that takes a third of the time, and most modules of the packages are never imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

_PIP = ("-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-compile", "--progress-bar", "off")
"""Without dependencies, because a lock file lists all of them."""
_COLUMNS = 24
_INTERVAL_SECONDS = 0.2


class Progress:
    """One line that is rewritten on a terminal; elsewhere, one line for each phase."""

    def __init__(self, out: TextIO, title: str, total: int) -> None:
        self._out = out
        self._title = title
        self._total = total
        self._phase = ""
        self._started = time.monotonic()

    def show(self, phase: str, done: int) -> None:
        if self._out.isatty():
            full = min(_COLUMNS, _COLUMNS * done // max(1, self._total))
            bar = "█" * full + "░" * (_COLUMNS - full)
            self._write(f"\r\x1b[K{self._title} {bar} {phase} {self._seconds()} s")
        elif phase != self._phase:
            self._write(f"{self._title}: {phase}\n")
        self._phase = phase

    def end(self, result: str) -> None:
        self._write(("\r\x1b[K" if self._out.isatty() else "") + f"{self._title}: {result} in {self._seconds()} s\n")

    def _seconds(self) -> int:
        return round(time.monotonic() - self._started)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def main(lock: Path) -> int:
    """Returns pip's exit code. If it is not 0, everything that pip printed is on standard error."""
    wanted = sum("==" in line for line in lock.read_text().splitlines())
    progress = Progress(sys.stdout, f"installing {lock.name}", 2 * wanted)
    before = len(installed())
    pip = subprocess.Popen(
        [sys.executable, *_PIP, "--requirement", str(lock)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(pip.stdout or ()), daemon=True)
    reader.start()
    while pip.poll() is None:
        # A package counts when it is found and again when it is installed; both take about the same time.
        collected = sum(line.startswith(("Collecting ", "Requirement already")) for line in list(lines))
        progress.show(*phase(collected, len(installed()) - before, wanted))
        time.sleep(_INTERVAL_SECONDS)
    reader.join()
    progress.end("done" if pip.returncode == 0 else "failed")
    if pip.returncode != 0:
        sys.stderr.writelines(lines)
    return pip.returncode


def phase(collected: int, added: int, wanted: int) -> tuple[str, int]:
    """The phase that pip is in, and how many of its steps are done."""
    return ("installing" if added else "downloading"), min(collected, wanted) + added


def installed() -> list[Path]:
    return list(_distributions(Path(sysconfig.get_paths()["purelib"])))


def _distributions(folder: Path) -> Iterator[Path]:
    return folder.glob("*.dist-info")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
