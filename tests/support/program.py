"""Runs the real program and talks to it over real sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.http_calls import Answer, call
from tests.support.patience import PATIENCE_SECONDS
from tests.support.warm_start import start_python

ADMIN_KEY = "an-admin-key-for-tests"
T = TypeVar("T")


class Program:
    """One `doorstep` process. Its standard output and standard error are collected line by line."""

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        output: int = subprocess.PIPE,
    ) -> None:
        self.folder = folder
        self.process = start_python(
            ["-m", "doorstep", *arguments],
            cwd=folder,
            env=clean_environment() | dict(environment or {}),
            stdout=output,
            stderr=subprocess.PIPE,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=_collect, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
            if stream is not None
        ]
        for reader in self._readers:
            reader.start()

    @property
    def url(self) -> str:
        """The address at which the program listens; waits until the program prints it."""
        return wait_for(lambda: self._printed(r"listens at (http://\S+)"), lambda: f"no address; {self.err}")

    @property
    def printed_key(self) -> str | None:
        return self._printed(r"shown only once: (\S+)")

    def facts(self, event: str) -> list[dict[str, Any]]:
        """The log lines with this event name."""
        return [line for line in map(json.loads, list(self.out)) if line["event"] == event]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait until the program exits, and return its exit code. Its output is then complete."""
        code = self.process.wait(PATIENCE_SECONDS)
        for reader in self._readers:
            reader.join(PATIENCE_SECONDS)
        return code

    def stop(self) -> int:
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            return self.wait()
        finally:
            self.process.kill()

    def request(
        self, method: str, path: str, body: Any = None, *, key: str | None = ADMIN_KEY, headers: Mapping[str, str] = {}
    ) -> Answer:
        """Send one request. A body that is not bytes is sent as JSON."""
        given = {"Content-Type": "application/json"} | ({"X-API-Key": key} if key else {}) | dict(headers)
        return call(self.url, method, path, body, given)

    def get(self, path: str, **options: Any) -> Answer:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.request("POST", path, body, **options)

    def _printed(self, pattern: str) -> str | None:
        ended = self.process.poll() is not None and not any(reader.is_alive() for reader in self._readers)
        found = re.search(pattern, "\n".join(list(self.err)))
        assert found or not ended, f"it ended and said: {self.err}"
        return found[1] if found else None


@contextmanager
def running(*arguments: str, folder: Path, **options: Any) -> Iterator[Program]:
    program = Program(*arguments, folder=folder, **options)
    try:
        yield program
    finally:
        program.stop()


@contextmanager
def serving(
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    admin_key: str | None = ADMIN_KEY,
    output: int = subprocess.PIPE,
) -> Iterator[Program]:
    """Run `doorstep serve` on a free port, with deliveries to this machine allowed."""
    given = {"DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8"} | ({"DOORSTEP_ADMIN_KEY": admin_key} if admin_key else {})
    given |= dict(environment or {})
    with running("serve", "--port", "0", *arguments, folder=folder, environment=given, output=output) as program:
        assert program.url
        yield program


def wait_for(
    probe: Callable[[], T | None],
    complaint: Callable[[], str] = lambda: "it did not come",
    patience_seconds: float = PATIENCE_SECONDS,
) -> T:
    """Call the probe until it returns a true value, and return that. These tests wait in no other way."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(0.02)
    raise AssertionError(complaint())


def clean_environment() -> dict[str, str]:
    """The environment without variables that would configure Doorstep, a telemetry collector, pytest or a proxy."""
    return {name: value for name, value in os.environ.items() if not _sets_up(name.upper())}


def _sets_up(name: str) -> bool:
    return name.startswith(("DOORSTEP_", "OTEL_", "PYTEST_")) or name.endswith("_PROXY")


def _collect(stream: Any, lines: list[str]) -> None:
    for line in stream:
        lines.append(line.decode().rstrip("\n"))
