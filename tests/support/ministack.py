"""MiniStack, an emulator of AWS, in its own virtual environment under build/. Where it cannot be had, the tests that
need it are skipped, and say so."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port

_BUILD = Path(__file__).parents[2] / "build"
_HOME = _BUILD / "ministack"
_PROGRAM = _HOME / "bin" / "ministack"
_NOT_TESTED = "DYNAMODB NOT TESTED:"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


def serving(folder: Path) -> Iterator[str]:
    """Run the emulator. Yields its address."""
    pytest.importorskip("botocore", reason=f"{_NOT_TESTED} the extra 'aws' is not installed")
    program, port = _installed(), free_port()
    environment = os.environ | {"GATEWAY_PORT": str(port), "LAMBDA_EXECUTOR": "local", "LOG_LEVEL": "ERROR"}
    with (folder / "ministack.log").open("wb") as log:
        process = subprocess.Popen([program], stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        address = f"http://127.0.0.1:{port}"
        _await_answer(f"{address}/_ministack/health", process, folder / "ministack.log")
        yield address
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


@cache
def _installed() -> Path:
    """The program; the first call installs it, while other test processes wait."""
    _BUILD.mkdir(exist_ok=True)
    with (_BUILD / "ministack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _PROGRAM.exists():
            commands = [
                [sys.executable, "-m", "venv", str(_HOME)],
                [str(_HOME / "bin" / "python"), "-m", "pip", "install", "--quiet", "ministack"],
            ]
            if any(subprocess.run(command, capture_output=True, check=False).returncode for command in commands):
                pytest.skip(f"{_NOT_TESTED} the emulator cannot be installed (pip install ministack)")
    return _PROGRAM


def _await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with suppress(OSError), urllib.request.urlopen(url, timeout=1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"MiniStack did not start:\n{log.read_text()}")
        time.sleep(0.05)
