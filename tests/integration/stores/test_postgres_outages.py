"""An unreachable, frozen, full or read-only PostgreSQL raises StoreUnavailable, and the store recovers by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest

from doorstep.errors import ConfigError, StoreUnavailable
from doorstep.model.event import EventView, Verdict
from doorstep.model.listing import EventDeliveries
from doorstep.stores.sql.postgres import PostgresStore
from tests.support.builders import NOW, a_submission, an_endpoint, an_org
from tests.support.postgres_server import PostgresServer
from tests.support.shortcuts import count_states, put, routing_versions
from tests.support.stretching import stretched

T = TypeVar("T")
TRIES = 20
"""Each call discovers at most one of the pool's broken connections, so several tries may be needed."""


@pytest.fixture
async def store(durable_postgres_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(durable_postgres_url, command_seconds=1.0)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def server(durable_postgres_server: PostgresServer) -> PostgresServer:
    return durable_postgres_server


async def _prepare(store: PostgresStore) -> tuple[UUID, UUID]:
    org = an_org()
    await put(store, org)
    endpoint = an_endpoint(org.org_id)
    await put(store, endpoint, 0)
    return org.org_id, endpoint.endpoint_id


async def _eventually(verb: Callable[[], Awaitable[T]]) -> T:
    for _ in range(TRIES):
        try:
            return await verb()
        except StoreUnavailable:
            continue
    return await verb()


async def test_every_path_verb_is_unavailable_while_the_server_is_down_and_works_after_its_return(
    store: PostgresStore, server: PostgresServer
) -> None:
    org_id, endpoint_id = await _prepare(store)
    version = await routing_versions(store)
    server.stop("immediate")
    try:
        for verb in (
            lambda: store.accept([a_submission(org_id, [endpoint_id])], version, NOW),
            lambda: store.due_lanes(NOW),
            lambda: store.claim([], NOW, NOW + 1, "w"),
            lambda: store.settle([], NOW),
            lambda: count_states(store),
        ):
            with pytest.raises(StoreUnavailable):
                await verb()
    finally:
        server.start()
    (receipt,) = await _eventually(lambda: store.accept([a_submission(org_id, [endpoint_id])], version, NOW))
    assert receipt.verdict is Verdict.ACCEPTED


async def test_what_was_acknowledged_survives_a_server_killed_at_once(
    store: PostgresStore, server: PostgresServer
) -> None:
    org_id, endpoint_id = await _prepare(store)
    submission = a_submission(org_id, [endpoint_id])
    await store.accept([submission], await routing_versions(store), NOW)
    server.stop("kill")
    server.start()
    view = await _eventually(lambda: store.get(EventView, org_id, submission.event.event_id))
    assert view.event == submission.event


async def test_a_frozen_server_holds_a_call_no_longer_than_its_timeout(
    store: PostgresStore, server: PostgresServer
) -> None:
    await store.due_lanes(NOW)
    server.freeze()
    try:
        async with asyncio.timeout(stretched(10)):
            with pytest.raises(StoreUnavailable):
                await store.due_lanes(NOW)
            with pytest.raises(StoreUnavailable):
                await count_states(store)
    finally:
        server.thaw()
    assert await _eventually(lambda: store.due_lanes(NOW)) == []


async def test_killed_connections_are_made_again(
    store: PostgresStore, server: PostgresServer, durable_postgres_url: str
) -> None:
    await store.due_lanes(NOW)
    assert server.kill_connections(durable_postgres_url.rsplit("/", 1)[1])
    assert await _eventually(lambda: store.due_lanes(NOW)) == []


async def test_too_many_connections_are_unavailability(server: PostgresServer, durable_postgres_url: str) -> None:
    database = durable_postgres_url.rsplit("/", 1)[1]
    store = PostgresStore(durable_postgres_url)
    server.sql(f"ALTER DATABASE {database} CONNECTION LIMIT 0")
    with pytest.raises(StoreUnavailable, match="too many connections"):
        await store.open()
    server.sql(f"ALTER DATABASE {database} CONNECTION LIMIT -1")
    await store.open()
    await store.close()


async def test_a_server_that_became_read_only_is_unavailable_until_it_can_write_again(
    store: PostgresStore, server: PostgresServer, durable_postgres_url: str
) -> None:
    org_id, endpoint_id = await _prepare(store)
    version = await routing_versions(store)
    database = durable_postgres_url.rsplit("/", 1)[1]
    server.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    server.kill_connections(database)
    accept = lambda: store.accept([a_submission(org_id, [endpoint_id])], version, NOW)
    with pytest.raises(StoreUnavailable):
        await _eventually(accept)
    with pytest.raises(StoreUnavailable):
        await _eventually(lambda: put(store, an_org()))
    server.sql(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    assert (await _eventually(accept))[0].verdict is Verdict.ACCEPTED


async def test_an_accept_whose_answer_was_lost_can_be_repeated_and_is_kept_once(
    store: PostgresStore, durable_postgres_url: str
) -> None:
    org_id, endpoint_id = await _prepare(store)
    version = await routing_versions(store)
    submission = a_submission(org_id, [endpoint_id])
    async with _losing_commits(durable_postgres_url) as url:
        lossy = PostgresStore(url)
        await lossy.open()
        with pytest.raises(StoreUnavailable):
            await lossy.accept([submission], version, NOW)
        await lossy.close()
    assert len(await store.find(org_id, EventDeliveries(event_id=submission.event.event_id))) == 1, (
        "the commit itself went through"
    )
    (receipt,) = await store.accept([submission], version, NOW)
    assert (receipt.verdict, receipt.deliveries) == (Verdict.ACCEPTED, 1)
    assert len(await store.find(org_id, EventDeliveries(event_id=submission.event.event_id))) == 1


async def test_a_statement_given_wrong_arguments_is_a_bug_and_not_taken_for_an_outage(store: PostgresStore) -> None:
    for arguments in ((), ("not a number",)):
        with pytest.raises((asyncpg.InterfaceError, asyncpg.DataError)):
            async with store._hot.connection() as connection:
                await connection.fetch("SELECT $1::int", *arguments)
    assert await store.due_lanes(NOW) == []


async def test_a_database_that_was_never_migrated_is_refused_with_the_command_to_run(server: PostgresServer) -> None:
    server.create_database("bare")
    try:
        with pytest.raises(ConfigError, match="doorstep migrate"):
            await PostgresStore(server.url("bare")).open()
    finally:
        server.drop_database("bare")


async def test_a_database_that_does_not_exist_is_a_matter_of_configuration(server: PostgresServer) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        await PostgresStore(server.url("nowhere")).open()


async def test_migrations_started_at_once_do_not_collide(server: PostgresServer) -> None:
    server.create_database("racing")
    try:
        store = PostgresStore(server.url("racing"))
        await asyncio.gather(*(store.migrate() for _ in range(4)))
        await store.open()
        await store.close()
    finally:
        server.drop_database("racing")


@asynccontextmanager
async def _losing_commits(url: str) -> AsyncIterator[str]:
    """A proxy that forwards every COMMIT to the server and disconnects the client before the answer arrives."""
    parts = urlsplit(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(parts.hostname, parts.port)
        back = asyncio.create_task(_copy(from_server, writer))
        while data := await reader.read(65_536):
            if b"COMMIT\0" in data:
                back.cancel()
                await asyncio.wait([back])  # only one task may read from the server
                to_server.write(data)
                await from_server.read(1)  # once the first byte of the answer arrives, the transaction is committed
                break
            to_server.write(data)
        back.cancel()
        to_server.close()
        writer.close()

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    try:
        yield url.replace(f":{parts.port}/", f":{port}/")
    finally:
        proxy.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
