"""The three places of the demo: where the service listens, where the receivers do, and where nobody does."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import ExitStack

from doorstep.app import Doorstep
from doorstep.cli.demo.furnishing import furnish
from doorstep.cli.demo.messages import declare_carrier, submit_steadily
from doorstep.cli.demo.people import work_steadily
from doorstep.cli.demo.samples import Sample, behaviour_at
from doorstep.cli.demo.scans import bills, scan_steadily
from doorstep.cli.demo.traffic import send_steadily
from doorstep.cli.receiver import Receiver
from doorstep.cli.serving import Ready, serve_until
from doorstep.cli.web_server import WebServer, address, listener
from doorstep.errors import DoorstepError
from doorstep.pipelines.pipeline import Pipeline

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
