"""The command line in a real terminal: prompts, progress, Ctrl-C, closed pipes."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.commands import Remote
from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import Program, clean_environment
from tests.support.receiver import Receiver


class Terminal:
    """Runs a command in its own pseudo-terminal, reads its screen, and types into it."""

    def __init__(self, remote: Remote, *arguments: str) -> None:
        self.screen, terminal = pty.openpty()
        environment = clean_environment() | remote.environment | {"COLUMNS": "100", "TERM": "xterm"}
        command = [sys.executable, "-m", "doorstep", *arguments]
        self.process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, start_new_session=True
        )
        os.close(terminal)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self.screen, keys.encode())

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in self.shown:
            assert time.monotonic() < deadline and self._read(), f"{words!r} is not in {self.shown!r}"

    def wait(self) -> int:
        while self._read():
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.screen], [], [], PATIENCE_SECONDS)
        try:
            got = os.read(self.screen, 65_536) if ready else b""
        except OSError:  # the other end is closed
            got = b""
        self.shown += got.decode()
        return bool(got)


@contextmanager
def terminal(remote: Remote, *arguments: str) -> Iterator[Terminal]:
    it = Terminal(remote, *arguments)
    try:
        yield it
    finally:
        it.process.kill()
        it.process.wait()
        os.close(it.screen)


@pytest.fixture
def remote(served: Program) -> Remote:
    return Remote(served)


@pytest.mark.parametrize(("answer", "code", "revoked"), [("y\n", 0, True), ("n\n", 1, False), ("\x04", 1, False)])
def test_what_cannot_be_undone_is_asked_first(remote: Remote, answer: str, code: int, revoked: bool) -> None:
    key_id = remote.json("keys", "create", "terminal", "--role", "viewer")["key_id"]
    with terminal(remote, "keys", "revoke", key_id) as it:
        it.wait_for("[y/N]")
        it.type(answer)
        assert it.wait() == code
    (key,) = [one for one in remote.json("keys", "list")["keys"] if one["key_id"] == key_id]
    assert (key["revoked_at"] is not None) == revoked


def test_a_bulk_operation_shows_what_it_is_about_and_how_far_it_is(remote: Remote, receiver: Receiver) -> None:
    receiver.status = 404
    remote.json("endpoints", "create", "bars", receiver.url, "--type", "bars.*")
    for _ in range(3):
        remote("send", "bars.shown", "{}", "--wait")
    receiver.status = 200
    with terminal(remote, "dead-letters", "retry", "--endpoint", "bars") as it:
        it.wait_for("3 selected: bars 3")
        it.wait_for("[y/N]")
        it.type("y\n")
        assert it.wait() == 0
    assert "3/3" in it.shown
    assert "finished: 3/3 succeeded, 0 failed" in it.shown


def test_ctrl_c_ends_the_watching_and_not_what_is_watched(remote: Remote, receiver: Receiver) -> None:
    receiver.status = 404
    remote.json("endpoints", "create", "watched", receiver.url, "--type", "watched.*")
    for _ in range(4):  # at the rate below, the third waits for minutes; the second may follow the first
        remote("send", "watched.thing", "{}", "--wait")
    arguments = ("--endpoint", "watched", "--rate", "0.01", "--yes", "--no-wait")
    bulk_id = remote.json("dead-letters", "retry", *arguments)["bulk_id"]
    remote.json("bulk", "pause", bulk_id)
    with terminal(remote, "bulk", "watch", bulk_id) as it:
        it.wait_for("retry paused")
        it.process.send_signal(signal.SIGINT)
        assert it.wait() == 130
    assert f"doorstep bulk cancel {bulk_id}" in it.shown
    assert "Traceback" not in it.shown
    assert remote.json("bulk", "cancel", bulk_id)["state"] == "cancelled"


@pytest.mark.parametrize("arguments", [(), ("--json",)], ids=["table", "json"])
def test_a_reader_that_has_left_is_no_failure(remote: Remote, arguments: tuple[str, ...]) -> None:
    remote("send", "pipes.close", "{}")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "doorstep", "events", "list", *arguments],
        env=clean_environment() | remote.environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
