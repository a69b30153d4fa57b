"""The web server that commands run in their own event loop, and the socket that it listens at."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from doorstep.errors import DoorstepError

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
