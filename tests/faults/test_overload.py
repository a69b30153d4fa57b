"""Far more requests than the server can answer: it refuses some, keeps answering everything else, and loses nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from tests.faults.conftest import Install
from tests.faults.harness.databases import SqliteDatabase
from tests.faults.harness.installation import ADMIN_KEY
from tests.support.patience import PATIENCE_SECONDS

_CONNECTIONS = 1_500
_EVENT = b'{"event_type": "plain", "payload": {"order": 1}}'
_SEND = (
    b"POST /v1/events HTTP/1.1\r\nHost: x\r\nX-API-Key: %b\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (ADMIN_KEY.encode(), len(_EVENT), _EVENT)
)


class Client:
    """One connection that sends one event."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connected(cls, port: int, at_once: asyncio.Semaphore) -> Client:
        async with at_once:
            client = cls(*await asyncio.open_connection("127.0.0.1", port))
            client._writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await client.answer() == (200, {"status": "ok"}, b"")
            return client

    def send(self) -> None:
        self._writer.write(_SEND)

    async def answer(self) -> tuple[int, Any, bytes]:
        """The status, the body, and Retry-After."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
        body = await self._reader.readexactly(int(fields[b"content-length"]))
        return int(head[9:12]), json.loads(body), fields.get(b"retry-after", b"")


@pytest.mark.full
async def test_too_many_requests_are_refused_while_others_are_answered_and_what_was_accepted_is_kept(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = install(sqlite_database)
    installation.receive("ok")
    server = installation.serve()
    installation.enrol("plain")
    at_once = asyncio.Semaphore(50)
    async with asyncio.timeout(PATIENCE_SECONDS):
        clients = await asyncio.gather(*(Client.connected(installation.port, at_once) for _ in range(_CONNECTIONS)))
        server.pause()  # so that all requests arrive at the same moment
        for client in clients:
            client.send()
        server.resume()
        health, listed, *answers = await asyncio.gather(
            asyncio.to_thread(installation.ask, "GET", "/healthz"),
            asyncio.to_thread(installation.ask, "GET", "/v1/events?limit=1"),
            *(client.answer() for client in clients),
        )
        assert (health[0], listed[0]) == (200, 200)
        assert {status for status, _, _ in answers} == {202, 429}
        assert all(retry_after in (b"1", b"2", b"3") for status, _, retry_after in answers if status == 429)
        clients[-1].send()  # the connection of a refused request stays usable
        assert (await clients[-1].answer())[0] == 202
    accepted = {UUID(body["event_id"]) for status, body, _ in answers if status == 202}
    stored = {UUID(row[0]) for row in sqlite_database.rows("SELECT lower(hex(uid)) FROM doorstep_events")}
    print(f"\n{len(accepted)} of {_CONNECTIONS} events were accepted")
    assert len(accepted) >= 1_000
    assert accepted <= stored
    assert len(stored) == len(accepted) + 1
