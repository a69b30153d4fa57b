"""The HTTP API of a scene's first Doorstep, on a real socket, and a client that uses no Doorstep code."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from doorstep.api.application import create_application
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.org import Role
from tests.support.builders import unused
from tests.support.http_calls import Answer, call
from tests.support.scene import Scene, until

lasting = pytest.mark.asyncio(loop_scope="module")
"""Mark for tests that share one API per file."""


class Api:
    """A client that sends requests with one API key; `with_key` returns a client with another key."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self.key = key

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def with_key(self, key: str) -> Api:
        return Api(self._port, key)

    async def request(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request. A body that is not bytes is sent as JSON. Write header names with underscores."""
        return await asyncio.to_thread(self._request, method, path, body, headers)

    async def get(self, path: str) -> Answer:
        return await self.request("GET", path)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.request("POST", path, body, **headers)

    async def patch(self, path: str, body: Any) -> Answer:
        return await self.request("PATCH", path, body)

    async def delete(self, path: str) -> Answer:
        return await self.request("DELETE", path)

    def _request(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        given = {"X-API-Key": self.key} | {name.replace("_", "-"): value for name, value in headers.items()}
        return call(self.url, method, path, body, given)

    # -- shortcuts -----------------------------------------------------------------------------------------

    async def endpoint(self, url: str, **fields: Any) -> dict[str, Any]:
        given = {"name": unused("shop"), "url": url, "circuit": {"failures_max": 1_000_000}, **fields}
        answer = await self.post("/v1/endpoints", given)
        assert answer.status == 201, answer.body
        return answer.json

    async def send(self, event_type: str = "order.paid", payload: Any = 1, **fields: Any) -> str:
        """Send an event and return its id."""
        answer = await self.post("/v1/events", {"event_type": event_type, "payload": payload, **fields})
        assert answer.status == 202, answer.body
        return str(answer.json["event_id"])

    async def status(self, event_id: str) -> dict[str, Any]:
        return (await self.get(f"/v1/events/{event_id}/status")).json

    async def until_status(self, event_id: str, status: str) -> dict[str, Any]:
        async def reached() -> bool:
            return (await self.status(event_id))["status"] == status

        await until(reached, f"an event that is {status}")
        return await self.status(event_id)

    async def delivery_of(self, event_id: str) -> dict[str, Any]:
        """Return the only delivery of an event."""
        (delivery,) = (await self.get(f"/v1/events/{event_id}")).json["deliveries"]
        return delivery

    async def until_delivery(self, event_id: str, **fields: Any) -> dict[str, Any]:
        async def reached() -> bool:
            return (await self.delivery_of(event_id)).items() >= fields.items()

        await until(reached, f"a delivery with {fields}")
        return await self.delivery_of(event_id)

    async def pages(self, path: str, plural: str, limit: int) -> AsyncIterator[list[Any]]:
        """Yield each page of a list, first to last."""
        cursor = ""
        while True:
            answer = await self.get(f"{path}{'&' if '?' in path else '?'}limit={limit}{cursor}")
            assert answer.status == 200, answer.body
            yield answer.json[plural]
            if not answer.json["pagination"]["has_more"]:
                return
            cursor = f"&cursor={answer.json['pagination']['cursor']}"

    async def all(self, path: str, plural: str, limit: int = 50) -> list[Any]:
        return [item async for page in self.pages(path, plural, limit) for item in page]


@asynccontextmanager
async def serving(scene: Scene) -> AsyncIterator[Api]:
    """Serve the scene's API; the client has an admin key of the default organization."""
    _, key = await scene.doorstep.components.keys.create(DEFAULT_ORG, "test", Role.ADMIN, "test")
    async with listening(create_application(scene.doorstep)) as port:
        yield Api(port, key)


@asynccontextmanager
async def listening(application: FastAPI) -> AsyncIterator[int]:
    """Serve an application on a real socket and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = _Server(uvicorn.Config(application, log_config=None, lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started, "a server")
        try:
            yield listener.getsockname()[1]
        finally:
            server.over.set()
            await task


class _Server(uvicorn.Server):
    """A server that stops immediately. Uvicorn's own server checks ten times a second, which costs 0.2 s per test."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.over = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers: pytest handles the signals."""
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.over.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await until(lambda: not self.server_state.tasks, "its last requests")
