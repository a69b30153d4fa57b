"""`doorstep serve`: the HTTP API and the delivering in one process, with more worker processes if asked for."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from doorstep import __version__
from doorstep.api.application import create_application
from doorstep.app import Doorstep
from doorstep.cli.running import key_line, naming_database, place_of_data, run_command, say, spare_collector
from doorstep.config import Settings
from doorstep.errors import DoorstepError
from doorstep.services.running import keep_running
from doorstep.services.supervisor import Supervisor, spawn
from doorstep.telemetry import Telemetry


def serve(settings: Settings) -> int:
    async def command(telemetry: Telemetry, stop: asyncio.Event) -> None:
        with listener(settings.host, settings.port) as listening:
            await _serve(Doorstep(settings, telemetry=telemetry), listening, stop)

    return run_command(settings, command)


async def _serve(doorstep: Doorstep, listening: socket.socket, stop: asyncio.Event) -> None:
    settings = doorstep.settings
    host, port = listening.getsockname()[:2]
    doorstep.guard.refuse_own(host, port)
    supervisor = Supervisor(
        lambda: spawn(_WORKER, _environment(settings, host, port)),
        settings.workers,
        doorstep.clock,
        doorstep.telemetry,
    )
    with naming_database(settings):
        await doorstep.open()
    try:
        doorstep.start()
        supervising = asyncio.create_task(keep_running(supervisor, doorstep.clock, doorstep.telemetry))
        server = _Server(doorstep, lambda: say(*banner(doorstep, address(listening))))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await _first_of(stop, serving)
        server.should_exit = True
        await serving
        supervising.cancel()
    finally:
        await asyncio.gather(supervisor.stop(settings.grace_seconds + _LAST_WRITES_SECONDS), doorstep.close())


class _Server(uvicorn.Server):
    """Uvicorn, which leaves the signals to us and says when it is ready."""

    def __init__(self, doorstep: Doorstep, ready: Callable[[], None]) -> None:
        # Requests take milliseconds; most of the grace is for the deliveries.
        grace = max(1, round(doorstep.settings.grace_seconds / 4))
        super().__init__(
            uvicorn.Config(
                create_application(doorstep),
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                backlog=2_048,
                timeout_graceful_shutdown=grace,
            )
        )
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        spare_collector()
        self._ready()


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens there. Taken before anything else, so that a second start touches no data."""
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(place[:2], family=family, backlog=2_048)
    except OSError as error:
        raise DoorstepError(
            f"cannot listen at {host} port {port}: {_words(error)}; "
            "stop the program that uses it, or choose another with --host and --port"
        ) from None


def _words(error: OSError) -> str:
    """What the system calls it; Python adds to that what we have already said."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


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
_WORKER = [sys.executable, "-m", "doorstep", "worker", "--end-with-parent"]


def _environment(settings: Settings, host: str, port: int) -> dict[str, str]:
    """What the command line said goes on in the environment, where a password cannot be read off the process list."""
    ours = {"DOORSTEP_DATABASE_URL": settings.database_url, "DOORSTEP_HOST": host, "DOORSTEP_PORT": str(port)}
    return os.environ | ours


async def _first_of(stop: asyncio.Event, serving: asyncio.Task[None]) -> None:
    """Until a signal comes, or the server ends by itself, which it does only when something is broken."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
