"""The README, followed to the letter: its commands are run in their order, and what they show is compared."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import ROOT, fences, section
from tests.docs.sample import Samples
from tests.docs.terminal import Terminal, terminal
from tests.integration.program import PATIENCE_SECONDS, clean_environment, free_port, wait_for

README = ROOT / "README.md"
_LOOKS = re.compile(r"doorstep (status|deliveries|[\w-]+ list)\b|curl (?!.* (-d|-X) )", re.DOTALL)
"""Commands that change nothing: they can be repeated until there is something to see."""
_LOOK_AGAIN_SECONDS = 0.2


class Step(NamedTuple):
    """A block of commands, and what the page shows after it."""

    commands: str
    shown: tuple[str, ...]
    """On its own screen, then on that of the receiver."""


class Reader:
    """Someone with three terminals: of the service, of the receiver, and one to type in."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        port, receiver_port = free_port(), free_port()
        self._folder = folder
        self._stack = stack
        self._environment = {"DOORSTEP_PORT": str(port), "DOORSTEP_URL": f"http://127.0.0.1:{port}"}
        self._samples = Samples(
            {
                "127.0.0.1:8080": f"127.0.0.1:{port}",
                "127.0.0.1:9000": f"127.0.0.1:{receiver_port}",
                "doorstep listen": f"doorstep listen --port {receiver_port}",
                "make run": "make --old-file=.venv/.installed-run run",  # what is being tested is installed already
            }
        )
        self._exports = ""
        self._receiver: Terminal | None = None

    def follow(self, step: Step) -> None:
        commands = self._samples.typed(step.commands)
        if "make " in commands:
            self._wait_for(step.shown[0], self._open(commands))
        elif "doorstep listen" in commands:
            self._receive(commands)
        elif step.shown:
            self._look(commands, step.shown[0])
        for sample in step.shown[1:]:
            self._compare(sample, self._received())
        self._exports += "".join(re.findall(r"^export .*\n", commands, re.MULTILINE))

    def _open(self, commands: str) -> Terminal:
        return self._stack.enter_context(terminal(self._exports + commands, self._folder, self._environment))

    def _wait_for(self, sample: str, service: Terminal) -> None:
        wait_for(lambda: self._samples.matches(sample, service.shown, whole=False), lambda: service.shown)

    def _receive(self, commands: str) -> None:
        if self._receiver is not None:
            self._received()
        receiver = self._receiver = self._open(commands)
        wait_for(lambda: "Listening at" in receiver.shown, lambda: receiver.shown)

    def _received(self) -> str:
        """All that the receiver has shown; it has been told after how many requests to end."""
        assert self._receiver is not None
        shown = self._receiver.wait()
        assert self._receiver.process.returncode == 0, shown
        return shown

    def _look(self, commands: str, sample: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        shown = self._open(commands).wait()
        while not self._samples.matches(sample, shown) and _LOOKS.search(commands) and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_SECONDS)
            shown = self._open(commands).wait()
        self._compare(sample, shown)

    def _compare(self, sample: str, shown: str) -> None:
        assert self._samples.matches(sample, shown), f"the README shows\n\n{sample}\nbut this was shown\n\n{shown}"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """In a folder that has what `make run` needs, and nothing else."""
    for name in ("Makefile", "pyproject.toml", "requirements"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    with ExitStack() as stack:
        yield Reader(tmp_path, stack)


def test_the_quickstart_and_the_same_with_curl_work_and_show_what_the_readme_shows(reader: Reader) -> None:
    quickstart, curl = steps("Quickstart"), steps("The same with curl")
    assert len(quickstart) > 10 and len(curl) > 10
    for step in (*quickstart, *curl):
        reader.follow(step)


def test_the_example_of_the_library_works_as_written(tmp_path: Path) -> None:
    (example,) = fences(README, "python")
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == """hello b'{"name":"Ada"}'\n""", done.stderr


def test_every_make_target_that_is_promised_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"`make (\w+)`", README.read_text() + (ROOT / "CONTRIBUTING.md").read_text())
    for target in ("install", "run", "test", "check", "bench", "torture", "examples", "demo", *named):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize(
    ("sample", "shown"),
    [
        ("it is delivered", "it is dead"),
        ("at 2026-11-15T13:03:55Z", "at –"),
        ("it is done", "it is done, or not"),
        ("event 01a1df4d-b959-7364-a254-4a51f1a1bd0f", "event 01a1df4e-67ef-7b3c-a280-f74840dbed52"),
    ],
)
def test_the_control_what_differs_from_the_readme_is_noticed(sample: str, shown: str) -> None:
    samples = Samples({})
    seen = "01a1df4d-b959-7364-a254-4a51f1a1bd0f"
    assert samples.matches(seen, seen)
    assert not samples.matches(sample, shown)


def steps(heading: str) -> list[Step]:
    """The blocks of a section; what is shown belongs to the commands before it."""
    found: list[Step] = []
    for language, code in re.findall(r"^```(sh|text)\n(.*?)^```$", section(README, heading), re.DOTALL | re.MULTILINE):
        if language == "sh":
            found.append(Step(code, ()))
        else:
            found[-1] = found[-1]._replace(shown=(*found[-1].shown, code))
    return found
