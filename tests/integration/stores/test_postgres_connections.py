"""The pool opens connections before they are needed."""

from __future__ import annotations

import asyncpg
import pytest

from doorstep.errors import StoreUnavailable
from doorstep.stores.sql.postgres import PostgresStore, claim
from doorstep.stores.sql.postgres.connections import unavailability
from tests.support.builders import NOW
from tests.support.postgres_server import PostgresServer


async def test_a_store_that_opens_has_its_connections_ready_and_their_statements_planned(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, connections_ready=3)
    await store.open()
    pool = store._hot._pool
    assert pool is not None
    assert pool.get_idle_size() == 3
    async with store._hot.connection() as connection:
        plans = await connection.fetchval(
            "SELECT sum(generic_plans)::int FROM pg_prepared_statements WHERE statement = $1", claim.CLAIM
        )
    await store.close()
    assert plans >= 1


async def test_a_store_opens_and_works_although_the_server_has_no_connections_to_spare(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    name = postgres_url.rsplit("/", 1)[1]
    postgres_server.sql(f"ALTER DATABASE {name} CONNECTION LIMIT 2")
    store = PostgresStore(postgres_url, connections_ready=4)
    await store.open()
    pool = store._hot._pool
    assert pool is not None
    assert pool.get_idle_size() < 4, "the server refused some, or this test shows nothing"
    assert await store.due_lanes(NOW) == []
    await store.close()


@pytest.mark.parametrize(
    "message", ["got result for unknown protocol state 3", "_on_result: waiter is None", "TimoutError was not raised"]
)
def test_a_connection_in_a_state_that_asyncpg_does_not_expect_is_unavailability(message: str) -> None:
    """This happens when the server ends a connection while it is being opened, for example during a restart."""
    with pytest.raises(StoreUnavailable, match="PostgreSQL"), unavailability():
        raise asyncpg.InternalClientError(message)


def test_a_value_that_asyncpg_cannot_encode_is_a_bug_of_ours() -> None:
    with pytest.raises(asyncpg.InternalClientError), unavailability():
        raise asyncpg.InternalClientError("no binary format encoder for type x (OID 1)")
