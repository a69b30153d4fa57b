"""A simulated reader who follows a page exactly: writes its files, types its commands, and compares the output."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.docs.pages import ROOT
from tests.docs.sample import Samples
from tests.docs.terminal import Terminal, terminal
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port
from tests.support.program import wait_for

_STAYS = re.compile(r"make .*run|doorstep (serve|worker)\b")
"""Commands that occupy the first terminal until they are stopped."""
_LOOKS = re.compile(r"doorstep (status|deliveries|[\w-]+ list)\b|(ls|cat)\b|curl (?!.* (-d|-X) )", re.DOTALL)
"""Commands that change nothing, so they can be repeated until the expected output appears."""
_KEPT = re.compile(r"^(?:export |\. ).*\n", re.MULTILINE)
"""Lines that set state for the rest of a terminal session."""
_BLOCK = re.compile(
    r"(?:`(?P<file>[\w.]+)`:\n\n)?^```(?P<language>sh|text|python|toml)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
_LOOK_AGAIN_SECONDS = 0.2


class Step(NamedTuple):
    """A file to write, or a block of commands, and the output that the page shows after it."""

    code: str
    file: str | None = None
    shown: tuple[str, ...] = ()
    """The output of the commands, then the output of the receiver."""


class Reader:
    """A reader with three terminals: one for the service, one for the receiver, and one to type in."""

    def __init__(self, folder: Path, stack: ExitStack, places: Mapping[str, str]) -> None:
        port, receiver_port = free_port(), free_port()
        self._folder = folder
        self._stack = stack
        self._environment = {"DOORSTEP_PORT": str(port), "DOORSTEP_URL": f"http://127.0.0.1:{port}"}
        here = {
            "127.0.0.1:8080": f"127.0.0.1:{port}",
            "127.0.0.1:9000": f"127.0.0.1:{receiver_port}",
            "doorstep listen": f"doorstep listen --port {receiver_port}",
        }
        self._samples = Samples(here | dict(places))
        self._kept = ""
        self._service: Terminal | None = None
        self._receiver: Terminal | None = None

    def follow(self, step: Step) -> None:
        if step.file is not None:
            (self._folder / step.file).write_text(step.code)
            return
        commands = self._samples.typed(step.code)
        if _STAYS.search(commands):
            self._serve(commands, step.shown[0])
        elif "doorstep listen" in commands:
            self._receive(commands)
        elif step.shown:
            self._look(commands, step.shown[0])
        elif _KEPT.sub("", commands):
            self._do(commands)
        for sample in step.shown[1:]:
            self._compare(sample, self._received())
        self._kept += "".join(_KEPT.findall(commands))

    def _open(self, commands: str) -> Terminal:
        return self._stack.enter_context(terminal(self._kept + commands, self._folder, self._environment))

    def _serve(self, commands: str, sample: str) -> None:
        if self._service is not None:
            self._service.end()
        service = self._service = self._open(commands)
        wait_for(lambda: self._samples.matches(sample, service.shown, whole=False), lambda: service.shown)

    def _receive(self, commands: str) -> None:
        if self._receiver is not None:
            self._received()
        receiver = self._receiver = self._open(commands)
        wait_for(lambda: "Listening at" in receiver.shown, lambda: receiver.shown)

    def _received(self) -> str:
        """All output of the receiver, which was started to exit after a fixed number of requests."""
        assert self._receiver is not None
        shown = self._receiver.wait()
        assert self._receiver.process.returncode == 0, shown
        return shown

    def _do(self, commands: str) -> None:
        quiet = self._open(f"set -e\n{commands}")
        shown = quiet.wait()
        assert quiet.process.returncode == 0, shown

    def _look(self, commands: str, sample: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        shown = self._open(commands).wait()
        while not self._samples.matches(sample, shown) and _LOOKS.match(commands) and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_SECONDS)
            shown = self._open(commands).wait()
        self._compare(sample, shown)

    def _compare(self, sample: str, shown: str) -> None:
        assert self._samples.matches(sample, shown), f"the page shows\n\n{sample}\nbut this was shown\n\n{shown}"


@contextmanager
def reading(folder: Path, *needs: str, places: Mapping[str, str]) -> Iterator[Reader]:
    """A reader in a folder that contains only the installed program and the parts of the repository that the page
    `needs`."""
    for name in needs:
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    with ExitStack() as stack:
        yield Reader(folder, stack, places)


def steps(text: str) -> list[Step]:
    """The steps of a page, or of a part of it; a block of output belongs to the commands before it."""
    found: list[Step] = []
    for block in _BLOCK.finditer(text):
        if block["language"] == "text":
            found[-1] = found[-1]._replace(shown=(*found[-1].shown, block["code"]))
        elif block["language"] == "sh" or block["file"]:
            found.append(Step(block["code"], block["file"]))
    return found
