"""The packages of the functions, built once for all tests of this process."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def build(out: Path, wheels: Path, *more: str) -> bool:
    """Build the packages for the Python of this machine; False if the wheels cannot be downloaded."""
    command = [
        sys.executable,
        "-m",
        "deploy.aws.package",
        "--python",
        PYTHON,
        "--out",
        str(out),
        "--wheels",
        str(wheels),
    ]
    done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
    unreachable = "Could not find a version" in done.stderr or "No matching distribution" in done.stderr
    assert done.returncode == 0 or unreachable, done.stderr
    return done.returncode == 0


@cache
def built() -> Path:
    """A folder with the packages, with the examples as a program."""
    out = Path(tempfile.mkdtemp(prefix="packages-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    if not build(out, ROOT / "build" / "aws" / "wheels", "--add", str(ROOT / "examples")):
        pytest.skip("THE FUNCTIONS ON AWS WERE NOT TESTED: THE WHEELS OF THEIR PACKAGES CANNOT BE DOWNLOADED HERE")
    return out
