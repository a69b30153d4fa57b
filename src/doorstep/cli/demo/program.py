"""The command itself: where the data goes, which settings, and what is said at the start."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from doorstep.app import Doorstep
from doorstep.cli.demo.people import work_steadily
from doorstep.cli.demo.shop import SAMPLES, Sample, behaviour_at, furnish
from doorstep.cli.demo.traffic import bills, declare_carrier, scan_steadily, send_steadily, submit_steadily
from doorstep.cli.listen import Receiver
from doorstep.cli.output import Output, say
from doorstep.cli.run import run_command
from doorstep.cli.serve import Ready, WebServer, address, console_line, listener, serve_until
from doorstep.config import Settings
from doorstep.errors import DoorstepError
from doorstep.operations import keys
from doorstep.pipelines.pipeline import Pipeline
from doorstep.telemetry.facts import Telemetry

KEPT_FOLDER = "doorstep-demo"
_LOG_FILE = "doorstep.log"
"""Failures are the demo's everyday business, and would fill the terminal."""
_GRACE_SECONDS = 2.0


class Demo(NamedTuple):
    """What the command was told."""

    port: int | None
    """None: the usual one, or a free one where that is taken."""
    per_second: float
    keep: bool


def demonstrate(told: Demo, output: Output) -> int:
    """Run until a signal comes."""
    key = keys.new_key()
    with _folder(told.keep) as folder, open(folder / _LOG_FILE, "ab", buffering=0) as log:
        settings = _settings(folder, key)

        async def command(telemetry: Telemetry, stop: asyncio.Event) -> None:
            with ExitStack() as sockets:
                stage = Stage(sockets, told.port)
                doorstep = Doorstep(settings.model_copy(update={"public_url": stage.url}), telemetry=telemetry)
                place = _Place(stage.url, key, folder, told.keep)
                await stage.play(doorstep, told.per_second, stop, lambda link: _announce(output, place, link or ""))

        return run_command(settings, command, log.fileno())


def _settings(folder: Path, key: str) -> Settings:
    """Said here, so that a demo does not take over the database and workers of the installation around it."""
    return Settings(
        database_url=f"sqlite:///{folder / 'doorstep.db'}",
        admin_key=key,
        allow_addresses="127.0.0.0/8",
        grace_seconds=_GRACE_SECONDS,
        workers=0,
        console=True,
    )


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    """A folder of this demo's own, gone when it ends; or one that stays."""
    if keep:
        folder = Path(KEPT_FOLDER).absolute()
        folder.mkdir(exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="doorstep-demo-") as folder_name:
        yield Path(folder_name)


class _Place(NamedTuple):
    """What this demo is known by."""

    url: str
    key: str
    folder: Path
    keep: bool


def _announce(output: Output, place: _Place, link: str) -> None:
    url, key, folder, keep = place
    if output.as_json:
        output.json({"url": url, "key": key, "console": url + link, "folder": str(folder), "kept": keep})
    program = _program()
    say(
        f"Doorstep's demo listens at {url} (its API is described at {url}/docs)",
        f"Its data and its log are in {folder}, {'and stay there' if keep else 'and go when this ends'}",
        f"It delivers to {', '.join(f'{sample.name} ({sample.about})' for sample in SAMPLES)}",
        console_line(url, link),
        "",
        "In another terminal:",
        "",
        f"  export DOORSTEP_URL={url} DOORSTEP_API_KEY={key}",
        f"  {program} tail",
        f"  {program} dead-letters groups",
        f"  {program} endpoints circuit erp",
        f"  {program} pipelines list bill",
        "",
        "Ctrl-C ends it.",
    )


def _program() -> str:
    """How this program is called from here."""
    if shutil.which("doorstep"):
        return "doorstep"
    called = Path(sys.argv[0]).absolute()
    return _from_here(called) if called.name == "doorstep" else f"{_from_here(Path(sys.executable))} -m doorstep"


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


_HERE = "127.0.0.1"
_USUAL_PORT = 8080


class Stage:
    """Holds the places; `play` fills them."""

    def __init__(self, sockets: ExitStack, port: int | None) -> None:
        self._service = sockets.enter_context(_usual_listener() if port is None else listener(_HERE, port))
        self._receivers = sockets.enter_context(listener(_HERE, 0))
        self._dead = sockets.enter_context(_taken_but_silent())

    @property
    def url(self) -> str:
        """Where the service is."""
        return address(self._service)

    async def play(self, doorstep: Doorstep, per_second: float, stop: asyncio.Event, announce: Ready) -> None:
        """Serve until `stop`. The receivers outlive the service, so that what is under way can end well."""
        pipeline = bills()
        doorstep.add(pipeline)
        declare_carrier(doorstep)
        curtain = asyncio.Event()
        clock = doorstep.clock
        receiver = Receiver(lambda path: behaviour_at(path, clock.now()), clock, random.random)
        server = WebServer(receiver, grace_seconds=1, ready=lambda: None)
        receiving = asyncio.create_task(server.serve_until(curtain, self._receivers))
        ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        acting = asyncio.create_task(self._act(doorstep, pipeline, per_second, ready, announce))
        acting.add_done_callback(lambda _: stop.set())
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: acting.cancel())
        try:
            await serve_until(doorstep, self._service, stop, ready.set_result)
        finally:
            stopping.cancel()
            curtain.set()
            await asyncio.gather(receiving, acting, return_exceptions=True)
        if not acting.cancelled():
            acting.result()  # it ends only by what should not have happened

    async def _act(
        self,
        doorstep: Doorstep,
        pipeline: Pipeline,
        per_second: float,
        ready: asyncio.Future[str | None],
        announce: Ready,
    ) -> None:
        link = await ready
        await furnish(doorstep, self._url_of, address(self._receivers))
        announce(link)
        async with asyncio.TaskGroup() as steadily:
            steadily.create_task(send_steadily(doorstep, per_second))
            steadily.create_task(submit_steadily(doorstep))
            steadily.create_task(scan_steadily(doorstep, pipeline))
            steadily.create_task(work_steadily(doorstep, pipeline))

    def _url_of(self, sample: Sample) -> str:
        return address(self._dead if sample.behaviour is None else self._receivers) + sample.path


def _usual_listener() -> socket.socket:
    """At the usual port, or at a free one where another Doorstep is at home already."""
    try:
        return listener(_HERE, _USUAL_PORT)
    except DoorstepError:
        return listener(_HERE, 0)


def _taken_but_silent() -> socket.socket:
    """A port where every connection is refused, for as long as the socket is held."""
    silent = socket.socket()
    silent.bind((_HERE, 0))
    return silent
