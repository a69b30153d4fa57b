"""`doorstep serve`: the HTTP API and a worker in one process, with more worker processes if configured."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn

from doorstep import __version__
from doorstep.api.application import create_application
from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.connection_limits import ConnectionLimits, Connections
from doorstep.cli.connections import Connection
from doorstep.cli.listening import address
from doorstep.cli.load_shedding import LoadShedder
from doorstep.cli.output import say
from doorstep.cli.run import (
    admin_key_line,
    data_location,
    doorstep_for,
    freeze_startup_objects,
    naming_database,
    run_command,
)
from doorstep.cli.service_manager import notify
from doorstep.clock import SECOND
from doorstep.config import Settings
from doorstep.console.sessions import LASTS, SignInLinks
from doorstep.model.org import Role
from doorstep.services.supervisor import Supervisor, spawn
from doorstep.services.worker import keep_running
from doorstep.telemetry.facts import Telemetry

_LAST_WRITES_SECONDS = 10
"""How long after its grace period a worker may keep running to write its last results. Then it is killed."""

Ready = Callable[[str | None], None]
"""Called when the server is ready, with the path of a sign-in link to the console, if there is one."""


def serve(
    settings: Settings, listening: socket.socket, given: Mapping[str, object], app: str | None, *, isolate: bool
) -> int:
    """Serve on this socket until a signal arrives. `given` holds the settings from the command line."""
    doorstep = doorstep_for(settings, app, given, isolate=isolate)

    async def command(telemetry: Telemetry, stop: asyncio.Event) -> None:
        doorstep.telemetry.subscribe(telemetry.emit_all)
        doorstep.telemetry.failures = None  # the log of this command has them
        url = address(listening)

        def ready(link: str | None) -> None:
            notify("READY=1")
            say(*banner(doorstep, url, link))

        await serve_until(doorstep, listening, stop, ready)

    return run_command(doorstep.settings, command, log_lines=doorstep.server.log_lines)


async def serve_until(doorstep: Doorstep, listening: socket.socket, stop: asyncio.Event, ready: Ready) -> None:
    """Open the store, deliver events and serve requests until `stop` is set, then shut down. Calls `ready` once it
    accepts requests."""
    settings = doorstep.settings
    host, port = listening.getsockname()[:2]
    supervisor = Supervisor(
        lambda: spawn(_worker_command(doorstep), _worker_environment(settings, host, port)),
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
            supervising.cancel()  # this comes first, so that the supervisor does not restart workers that are stopping
    finally:
        notify("STOPPING=1")
        await asyncio.gather(supervisor.stop(settings.grace_seconds + _LAST_WRITES_SECONDS), doorstep.close())


async def _first_link(doorstep: Doorstep, links: SignInLinks) -> str | None:
    """A sign-in link for the first admin key that does not expire. None if there is no console or no such key."""
    if not doorstep.settings.console:
        return None
    now = doorstep.clock.now()
    keys = await doorstep.components.keys.keys(DEFAULT_ORG)
    admins = (key for key in keys if key.role is Role.ADMIN and key.expires_at is None and key.is_valid(now))
    return next(map(links.new, admins), None)


def _server(doorstep: Doorstep, links: SignInLinks, ready: Callable[[], None]) -> WebServer:
    def started() -> None:
        freeze_startup_objects()
        ready()

    # Requests take milliseconds, so most of the grace period is left to deliveries.
    grace_seconds = doorstep.settings.grace_seconds / 4
    connections = Connections(
        ConnectionLimits.of(doorstep.settings), doorstep.telemetry.timings.connections, doorstep.components.note
    )
    shedder = LoadShedder(
        doorstep.settings.send_wait_seconds,
        doorstep.telemetry.timings,
        lambda: doorstep.components.accepter.store_seconds,
        doorstep.components.note,
    )
    return WebServer(
        create_application(doorstep, links), connections, shedder, grace_seconds=grace_seconds, ready=started
    )


def banner(doorstep: Doorstep, url: str, link: str | None) -> Iterator[str]:
    """The messages printed at startup. The last line is a command to copy."""
    yield f"Doorstep {__version__} listens at {url}"
    yield f"Its data is in {data_location(doorstep.settings)}"
    yield from admin_key_line(doorstep)
    if link is not None:
        yield console_line(doorstep.settings.public_url.rstrip("/") or url, link)
    key = doorstep.generated_admin_key
    if doorstep.server.first_lines is not None:
        yield from doorstep.server.first_lines(url, key or "$DOORSTEP_ADMIN_KEY")
        return
    yield "Next, send an event:"
    yield ""
    header = f"'X-API-Key: {key}'" if key is not None else '"X-API-Key: $DOORSTEP_ADMIN_KEY"'
    body = """'{"event_type": "hello", "payload": {"text": "it works"}}'"""
    yield f"  curl -s {url}/v1/events -H {header} -H 'Content-Type: application/json' -d {body}"
    yield ""


def console_line(url: str, link: str) -> str:
    return f"Console: {url}{link} (signs you in once, within {LASTS // (60 * SECOND)} minutes)"


def _worker_command(doorstep: Doorstep) -> list[str]:
    """The command line of a worker process, with the same --app if there is one."""
    command = [sys.executable, "-m", "doorstep", "worker", "--end-with-parent"]
    if doorstep.registry.loaded_from is not None:
        command += ["--app", doorstep.registry.loaded_from]
    return command + (["--isolate"] if doorstep.registry.isolate_all else [])


def _worker_environment(settings: Settings, host: str, port: int) -> dict[str, str]:
    """The environment of a worker process. It passes the settings, because passwords in command-line arguments would be
    visible in the process list."""
    ours = {"DOORSTEP_DATABASE_URL": settings.database_url, "DOORSTEP_HOST": host, "DOORSTEP_PORT": str(port)}
    return os.environ | ours


# -- the web server ----------------------------------------------------------------------------------------


class WebServer(uvicorn.Server):
    """Uvicorn without its signal handlers, and with a callback that is called once it is serving."""

    def __init__(
        self,
        application: Any,
        connections: Connections | None = None,
        shedder: LoadShedder | None = None,
        *,
        grace_seconds: float,
        ready: Callable[[], None],
    ) -> None:
        self._connections = connections = connections or Connections()
        super().__init__(
            uvicorn.Config(
                application,
                http=partial(Connection, connections=connections, shedder=shedder),  # type: ignore[arg-type]  # called like a class
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                backlog=connections.limits.backlog,
                timeout_keep_alive=math.ceil(connections.limits.idle_seconds),
                timeout_graceful_shutdown=max(1, round(grace_seconds)),
            )
        )
        self._shedder = shedder
        self._ready = ready
        self._exiting = asyncio.Event()

    async def serve_until(self, stop: asyncio.Event, listening: socket.socket) -> None:
        """Serve until `stop` is set, or until the server stops on its own, which happens only after an error."""
        serving = asyncio.create_task(self.serve(sockets=[listening]))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            self.should_exit = True
            self._exiting.set()
        await serving

    async def main_loop(self) -> None:
        """Update the header `Date` and close connections once a second. Uvicorn's own loop wakes up ten times as
        often."""
        while not await self.on_tick(0):
            self._connections.sweep()
            if self._shedder is not None:
                self._shedder.log()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._exiting.wait(), 1.0)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()
