"""`doorstep demo`: a Doorstep with sample endpoints, traffic and simulated operators, in one process."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from doorstep.app import Doorstep
from doorstep.cli.demo.operators import simulate_operators
from doorstep.cli.demo.shop import (
    SAMPLES,
    Sample,
    behaviour_at,
    bill_pipeline,
    create_samples,
    declare_carrier,
    scan_bills,
    send_events,
    submit_batches,
)
from doorstep.cli.listen import Receiver
from doorstep.cli.listening import address, listener
from doorstep.cli.output import Output, say
from doorstep.cli.run import run_command
from doorstep.cli.serve import Ready, WebServer, console_line, serve_until
from doorstep.config import Settings
from doorstep.errors import DoorstepError
from doorstep.operations import keys
from doorstep.pipelines.pipeline import Pipeline
from doorstep.telemetry.facts import Telemetry

KEPT_FOLDER = "doorstep-demo"
_LOG_FILE = "doorstep.log"
"""The name of the log file. The log is written to a file, because the demo's many failures would fill the terminal."""
_GRACE_SECONDS = 2.0


def run_demo(output: Output, port: int | None, per_second: float, keep: bool) -> int:
    """Run the demo until a signal arrives. If `port` is None, use the default port, or any free port if the default is
    taken."""
    key = keys.new_key()
    with _data_folder(keep) as folder, open(folder / _LOG_FILE, "ab", buffering=0) as log:
        settings = _settings(folder, key)

        async def command(telemetry: Telemetry, stop: asyncio.Event) -> None:
            with ExitStack() as sockets:
                demo = Demo(sockets, port)
                doorstep = Doorstep(settings.model_copy(update={"public_url": demo.url}), telemetry=telemetry)
                announce = partial(_announce, output, demo.url, key, folder, keep)
                await demo.run(doorstep, per_second, stop, announce)

        return run_command(settings, command, log.fileno())


def _settings(folder: Path, key: str) -> Settings:
    """The demo's settings, all explicit, so that it does not use the database of an installation on this machine."""
    return Settings(
        database_url=f"sqlite:///{folder / 'doorstep.db'}",
        admin_key=key,
        allow_addresses="127.0.0.0/8",
        grace_seconds=_GRACE_SECONDS,
        workers=0,
        console=True,
    )


@contextmanager
def _data_folder(keep: bool) -> Iterator[Path]:
    """A temporary folder; with `keep`, a permanent one."""
    if keep:
        folder = Path(KEPT_FOLDER).absolute()
        folder.mkdir(exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="doorstep-demo-") as folder_name:
        yield Path(folder_name)


def _announce(output: Output, url: str, key: str, folder: Path, keep: bool, link: str | None) -> None:
    link = link or ""
    if output.as_json:
        output.json({"url": url, "key": key, "console": url + link, "folder": str(folder), "kept": keep})
    program = _program()
    say(
        f"The Doorstep demo listens at {url} (API documentation: {url}/docs)",
        f"Its data and log are in {folder}, and {'are kept' if keep else 'are deleted when it stops'}",
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
        "Ctrl-C stops it.",
    )


def _program() -> str:
    """The shell command that runs Doorstep from the current folder."""
    if shutil.which("doorstep"):
        return "doorstep"
    called = Path(sys.argv[0]).absolute()
    return _relative(called) if called.name == "doorstep" else f"{_relative(Path(sys.executable))} -m doorstep"


def _relative(path: Path) -> str:
    folder = Path.cwd()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


_LOOPBACK = "127.0.0.1"
_DEFAULT_PORT = 8080


class Demo:
    """The demo's sockets: for Doorstep, for its receivers, and for one receiver that is down."""

    def __init__(self, sockets: ExitStack, port: int | None) -> None:
        self._service = sockets.enter_context(_default_listener() if port is None else listener(_LOOPBACK, port))
        self._receivers = sockets.enter_context(listener(_LOOPBACK, 0))
        self._down = sockets.enter_context(_refusing_port())

    @property
    def url(self) -> str:
        """The URL of Doorstep."""
        return address(self._service)

    async def run(self, doorstep: Doorstep, per_second: float, stop: asyncio.Event, announce: Ready) -> None:
        """Serve until `stop` is set. The receivers stop last, so that deliveries in flight can finish."""
        pipeline = bill_pipeline()
        doorstep.add(pipeline)
        declare_carrier(doorstep)
        receivers_stop = asyncio.Event()
        clock = doorstep.clock
        receiver = Receiver(lambda path: behaviour_at(path, clock.now()), clock, random.random)
        server = WebServer(receiver, grace_seconds=1, ready=lambda: None)
        receiving = asyncio.create_task(server.serve_until(receivers_stop, self._receivers))
        ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        activity = asyncio.create_task(self._simulate(doorstep, pipeline, per_second, ready, announce))
        activity.add_done_callback(lambda _: stop.set())
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: activity.cancel())
        try:
            await serve_until(doorstep, self._service, stop, ready.set_result)
        finally:
            stopping.cancel()
            receivers_stop.set()
            await asyncio.gather(receiving, activity, return_exceptions=True)
        if not activity.cancelled():
            activity.result()  # raises: the activity ends only with an error

    async def _simulate(
        self,
        doorstep: Doorstep,
        pipeline: Pipeline,
        per_second: float,
        ready: asyncio.Future[str | None],
        announce: Ready,
    ) -> None:
        link = await ready
        await create_samples(doorstep, self._url_of, address(self._receivers))
        announce(link)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send_events(doorstep, per_second))
            tasks.create_task(submit_batches(doorstep))
            tasks.create_task(scan_bills(doorstep, pipeline))
            tasks.create_task(simulate_operators(doorstep, pipeline))

    def _url_of(self, sample: Sample) -> str:
        return address(self._down if sample.behaviour is None else self._receivers) + sample.path


def _default_listener() -> socket.socket:
    """A listening socket on the default port, or on a free port if the default is taken."""
    try:
        return listener(_LOOPBACK, _DEFAULT_PORT)
    except DoorstepError:
        return listener(_LOOPBACK, 0)


def _refusing_port() -> socket.socket:
    """A port that refuses every connection, as long as the socket is open."""
    bound = socket.socket()
    bound.bind((_LOOPBACK, 0))
    return bound
