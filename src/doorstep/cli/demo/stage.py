"""The three places of the demo: where the service listens, where the receivers do, and where nobody does."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from contextlib import ExitStack

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.demo.samples import SAMPLES, Sample, behaviour_at
from doorstep.cli.demo.traffic import send_steadily
from doorstep.cli.receiver import Receiver
from doorstep.cli.serving import serve_until
from doorstep.cli.web_server import WebServer, address, listener
from doorstep.errors import DoorstepError

_HERE = "127.0.0.1"
_USUAL_PORT = 8080
_ACTOR = "demo"


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

    async def play(
        self, doorstep: Doorstep, per_second: float, stop: asyncio.Event, announce: Callable[[], None]
    ) -> None:
        """Serve until `stop`. The receivers outlive the service, so that what is under way can end well."""
        curtain = asyncio.Event()
        receiver = Receiver(behaviour_at, doorstep.clock, random.random)
        server = WebServer(receiver, grace_seconds=1, ready=lambda: None)
        receiving = asyncio.create_task(server.serve_until(curtain, self._receivers))
        ready = asyncio.Event()
        acting = asyncio.create_task(self._act(doorstep, per_second, ready, announce))
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: acting.cancel())
        try:
            await serve_until(doorstep, self._service, stop, ready.set)
        finally:
            stopping.cancel()
            curtain.set()
            await asyncio.gather(receiving, acting, return_exceptions=True)

    async def _act(
        self, doorstep: Doorstep, per_second: float, ready: asyncio.Event, announce: Callable[[], None]
    ) -> None:
        await ready.wait()
        for sample in SAMPLES:
            await _set_up(doorstep, sample, self._url_of(sample))
        announce()
        await send_steadily(doorstep, per_second)

    def _url_of(self, sample: Sample) -> str:
        return address(self._dead if sample.behaviour is None else self._receivers) + sample.path


async def _set_up(doorstep: Doorstep, sample: Sample, url: str) -> None:
    """Create the endpoint; one that an earlier demo left is led to where its receiver is now."""
    fields = sample.fields(url)
    for endpoint in await doorstep.endpoints():
        if endpoint.name == sample.name:
            await doorstep.registrar.change(DEFAULT_ORG, endpoint.endpoint_id, fields, _ACTOR)
            return
    await doorstep.create_endpoint(**fields, actor=_ACTOR)


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
