"""`doorstep serve`: the HTTP API and the delivering in one process, with more worker processes if asked for."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping

from doorstep import __version__
from doorstep.api.application import create_application
from doorstep.app import Doorstep
from doorstep.cli.loading import doorstep_for
from doorstep.cli.output import say
from doorstep.cli.running import key_line, naming_database, place_of_data, run_command, spare_collector
from doorstep.cli.web_server import WebServer, address, listener
from doorstep.config import Settings
from doorstep.services.running import keep_running
from doorstep.services.supervisor import Supervisor, spawn
from doorstep.telemetry.facts import Telemetry


def serve(settings: Settings, app: str | None = None, *, isolate: bool = False, said: Mapping[str, object] = {}) -> int:
    """Run until a signal comes; with the handlers of someone's own program, if that is named.

    `said` is what the command line said of the settings.
    """
    doorstep = doorstep_for(settings, app, isolate=isolate, said=said)

    async def command(telemetry: Telemetry, stop: asyncio.Event) -> None:
        doorstep.telemetry.subscribe(telemetry.emit_all)
        with listener(settings.host, settings.port) as listening:
            await serve_until(doorstep, listening, stop, lambda: say(*banner(doorstep, address(listening))))

    return run_command(doorstep.settings, command)


async def serve_until(
    doorstep: Doorstep, listening: socket.socket, stop: asyncio.Event, ready: Callable[[], None]
) -> None:
    """Open, deliver and answer requests until `stop`, then end in order; `ready` is called when requests can come."""
    settings = doorstep.settings
    host, port = listening.getsockname()[:2]
    doorstep.guard.refuse_own(host, port)
    supervisor = Supervisor(
        lambda: spawn(_worker(doorstep), _environment(settings, host, port)),
        settings.workers,
        doorstep.clock,
        doorstep.telemetry,
    )
    with naming_database(settings):
        await doorstep.open(admin_key=True)
    try:
        doorstep.start()
        supervising = asyncio.create_task(keep_running(supervisor, doorstep.clock, doorstep.telemetry))
        try:
            await _server(doorstep, ready).serve_until(stop, listening)
        finally:
            supervising.cancel()  # however it ended: what is being stopped must not be replaced
    finally:
        await asyncio.gather(supervisor.stop(settings.grace_seconds + _LAST_WRITES_SECONDS), doorstep.close())


def _server(doorstep: Doorstep, ready: Callable[[], None]) -> WebServer:
    def started() -> None:
        spare_collector()
        ready()

    # Requests take milliseconds; most of the grace is for the deliveries.
    grace_seconds = doorstep.settings.grace_seconds / 4
    return WebServer(create_application(doorstep), grace_seconds=grace_seconds, ready=started)


def banner(doorstep: Doorstep, url: str) -> Iterator[str]:
    """What someone who just started it wants to know; the last line is a command to copy."""
    yield f"Doorstep {__version__} listens at {url}"
    yield f"Its data is in {place_of_data(doorstep)}"
    yield from key_line(doorstep)
    yield "Next, send an event:"
    yield ""
    key = doorstep.generated_admin_key
    header = f"'X-API-Key: {key}'" if key is not None else '"X-API-Key: $DOORSTEP_ADMIN_KEY"'
    body = """'{"event_type": "hello", "payload": {"text": "it works"}}'"""
    yield f"  curl -s {url}/v1/events -H {header} -H 'Content-Type: application/json' -d {body}"
    yield ""


_LAST_WRITES_SECONDS = 10
"""What a worker may take beyond its grace to write its last results, before it is killed."""


def _worker(doorstep: Doorstep) -> list[str]:
    """The command of a worker beside us: with the same program, if it is one."""
    command = [sys.executable, "-m", "doorstep", "worker", "--end-with-parent"]
    if doorstep.loaded_from is not None:
        command += ["--app", doorstep.loaded_from]
    return command + (["--isolate"] if doorstep.isolate_all else [])


def _environment(settings: Settings, host: str, port: int) -> dict[str, str]:
    """What the command line said goes on in the environment, where a password cannot be read off the process list."""
    ours = {"DOORSTEP_DATABASE_URL": settings.database_url, "DOORSTEP_HOST": host, "DOORSTEP_PORT": str(port)}
    return os.environ | ours
