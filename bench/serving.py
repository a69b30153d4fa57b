"""A real `doorstep serve` process under measurement."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psutil

from bench.databases import Database
from bench.setting import ADMIN_KEY, variables
from bench.timing import cpu_seconds_of

_START_SECONDS_MAX = 30
_LISTENS = re.compile(rb"listens at http://127\.0\.0\.1:(\d+)")


class Serving:
    """Starts the process, waits until it listens, and stops it."""

    def __init__(
        self,
        database: Database,
        *,
        workers: int = 0,
        program: str = "doorstep",
        app: str | None = None,
        more: Mapping[str, str] = {},
    ) -> None:
        """`program` may be a modified `doorstep` from this benchmark, `app` is a program that it serves, and `more`
        contains further environment variables."""
        self._command = [sys.executable, "-m", program, "serve", "--port", "0", "--workers", str(workers)]
        self._command += [] if app is None else ["--app", app]
        self._variables = variables(database) | dict(more)

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="doorstep-serving-")
        words, log = (Path(self._folder.name) / name for name in ("words", "log"))
        with words.open("wb") as stderr, log.open("wb") as stdout:
            environment = os.environ | self._variables | {"PYTHONPATH": os.getcwd()}
            self._process = subprocess.Popen(
                self._command, stdout=stdout, stderr=stderr, env=environment, cwd=self._folder.name
            )
        self.port = self._await_port(words)
        return self

    def __exit__(self, *exc: object) -> None:
        died = self._process.poll()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self._process.kill()
        words = (Path(self._folder.name) / "words").read_text()[-4_000:]
        self._folder.cleanup()
        if died is not None:
            raise RuntimeError(f"doorstep serve exited unexpectedly with exit code {died}:\n{words}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        """CPU used so far by the process and its workers."""
        return cpu_seconds_of(psutil.Process(self._process.pid))

    def _await_port(self, words: Path) -> int:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not (said := _LISTENS.search(words.read_bytes())):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"doorstep serve did not start:\n{words.read_text()[-4_000:]}")
            time.sleep(0.02)
        return int(said[1])


class Client:
    """A plain client that makes one call at a time over one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def send(self, body: bytes) -> str:
        """Send an event; returns its id."""
        return str(self.call("POST", "/v1/events", body)["event_id"])

    def call(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Make a call and return its response; raises if it failed."""
        self._connection.request(method, path, body, {"X-API-Key": ADMIN_KEY, "Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path} was answered {response.status}: {answer.decode()}")
        return json.loads(answer)

    def close(self) -> None:
        self._connection.close()
