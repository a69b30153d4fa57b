"""`doorstep serve`: the HTTP API and the delivering in one process, with more worker processes if asked for."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from doorstep import __version__
from doorstep.api.application import create_application
from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.load_app import doorstep_for
from doorstep.cli.output import say
from doorstep.cli.run import key_line, naming_database, place_of_data, run_command, spare_collector
from doorstep.clock import SECOND
from doorstep.config import Settings
from doorstep.console.sessions import LASTS, SignInLinks
from doorstep.errors import DoorstepError
from doorstep.model.org import Role
from doorstep.services.runner import keep_running
from doorstep.services.supervisor import Supervisor, spawn
from doorstep.telemetry.facts import Telemetry

Ready = Callable[[str | None], None]
"""Called with the path of a link that signs in to the console, if there is one."""


def serve(settings: Settings, app: str | None = None, *, isolate: bool = False, said: Mapping[str, object] = {}) -> int:
    """Run until a signal comes; with the handlers of someone's own program, if that is named.

    `said` is what the command line said of the settings.
    """
    doorstep = doorstep_for(settings, app, isolate=isolate, said=said)

    async def command(telemetry: Telemetry, stop: asyncio.Event) -> None:
        doorstep.telemetry.subscribe(telemetry.emit_all)
        with listener(settings.host, settings.port) as listening:
            url = address(listening)
            await serve_until(doorstep, listening, stop, lambda link: say(*banner(doorstep, url, link)))

    return run_command(doorstep.settings, command)


async def serve_until(doorstep: Doorstep, listening: socket.socket, stop: asyncio.Event, ready: Ready) -> None:
    """Open, deliver and answer requests until `stop`, then end in order; `ready` is called when requests can come."""
    settings = doorstep.settings
    host, port = listening.getsockname()[:2]
    supervisor = Supervisor(
        lambda: spawn(_worker(doorstep), _environment(settings, host, port)),
        settings.workers,
        doorstep.clock,
        doorstep.telemetry,
    )
    with naming_database(settings):
        await doorstep.open(admin_key=True)
    doorstep.components.guard.refuse_own(host, port)
    links = SignInLinks(doorstep.clock)
    try:
        link = await _first_link(doorstep, links)
        doorstep.start()
        supervising = asyncio.create_task(keep_running(supervisor, doorstep.clock, doorstep.telemetry))
        try:
            await _server(doorstep, links, lambda: ready(link)).serve_until(stop, listening)
        finally:
            supervising.cancel()  # however it ended: what is being stopped must not be replaced
    finally:
        await asyncio.gather(supervisor.stop(settings.grace_seconds + _LAST_WRITES_SECONDS), doorstep.close())


async def _first_link(doorstep: Doorstep, links: SignInLinks) -> str | None:
    """For whoever starts it, as the first admin; None where there is no console, or no admin key that lasts."""
    if not doorstep.settings.console:
        return None
    now = doorstep.clock.now()
    for key in await doorstep.components.keys.keys(DEFAULT_ORG):
        if key.role is Role.ADMIN and key.expires_at is None and key.is_valid(now):
            return links.new(key)
    return None


def _server(doorstep: Doorstep, links: SignInLinks, ready: Callable[[], None]) -> WebServer:
    def started() -> None:
        spare_collector()
        ready()

    # Requests take milliseconds; most of the grace is for the deliveries.
    grace_seconds = doorstep.settings.grace_seconds / 4
    return WebServer(create_application(doorstep, links), grace_seconds=grace_seconds, ready=started)


def banner(doorstep: Doorstep, url: str, link: str | None) -> Iterator[str]:
    """What someone who just started it wants to know; the last line is a command to copy."""
    yield f"Doorstep {__version__} listens at {url}"
    yield f"Its data is in {place_of_data(doorstep.settings)}"
    yield from key_line(doorstep)
    if link is not None:
        yield console_line(doorstep.settings.public_url.rstrip("/") or url, link)
    yield "Next, send an event:"
    yield ""
    key = doorstep.generated_admin_key
    header = f"'X-API-Key: {key}'" if key is not None else '"X-API-Key: $DOORSTEP_ADMIN_KEY"'
    body = """'{"event_type": "hello", "payload": {"text": "it works"}}'"""
    yield f"  curl -s {url}/v1/events -H {header} -H 'Content-Type: application/json' -d {body}"
    yield ""


def console_line(url: str, link: str) -> str:
    return f"Console: {url}{link} (signs you in once, within {LASTS // (60 * SECOND)} minutes)"


_LAST_WRITES_SECONDS = 10
"""What a worker may take beyond its grace to write its last results, before it is killed."""


def _worker(doorstep: Doorstep) -> list[str]:
    """The command of a worker beside us: with the same program, if it is one."""
    command = [sys.executable, "-m", "doorstep", "worker", "--end-with-parent"]
    if doorstep.registry.loaded_from is not None:
        command += ["--app", doorstep.registry.loaded_from]
    return command + (["--isolate"] if doorstep.registry.isolate_all else [])


def _environment(settings: Settings, host: str, port: int) -> dict[str, str]:
    """What the command line said goes on in the environment, where a password cannot be read off the process list."""
    ours = {"DOORSTEP_DATABASE_URL": settings.database_url, "DOORSTEP_HOST": host, "DOORSTEP_PORT": str(port)}
    return os.environ | ours


_BACKLOG = 2_048


class WebServer(uvicorn.Server):
    """Uvicorn, which leaves the signals to us and says when it is ready."""

    def __init__(self, application: Any, *, grace_seconds: float, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                backlog=_BACKLOG,
                timeout_graceful_shutdown=max(1, round(grace_seconds)),
            )
        )
        self._ready = ready

    async def serve_until(self, stop: asyncio.Event, listening: socket.socket) -> None:
        """Until `stop`, or until the server ends by itself, which it does only when something is broken."""
        serving = asyncio.create_task(self.serve(sockets=[listening]))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            self.should_exit = True
        await serving

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens there. Taken before anything else, so that a second start touches no data."""
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(place[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise DoorstepError(
            f"cannot listen at {host} port {port}: {_words(error)}; "
            "stop the program that uses it, or choose another with --host and --port"
        ) from None


def address(listening: socket.socket) -> str:
    """The URL of what listens there."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _words(error: OSError) -> str:
    """What the system calls it; Python adds to that what we have already said."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
