"""Folding takes no more rows than requested, whichever plan PostgreSQL chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from doorstep.clock import DAY
from doorstep.model.rollup import Span
from doorstep.stores.sql.postgres import PostgresStore
from tests.support.builders import NOW, a_submission, an_endpoint, an_org
from tests.support.postgres_server import PostgresServer
from tests.support.shortcuts import put, routing_versions

OTHER_WAYS = ("hashjoin", "mergejoin", "hashagg", "material", "sort")
"""With these disabled, PostgreSQL can join only with nested loops. The store itself disables the first two; PostgreSQL
then sometimes chose nested loops by its own estimates."""
_ENDPOINTS = 12


@pytest.fixture
async def store(postgres_url: str, postgres_server: PostgresServer) -> AsyncIterator[PostgresStore]:
    name = postgres_url.rsplit("/", 1)[1]
    for way in OTHER_WAYS:
        postgres_server.sql(f"ALTER DATABASE {name} SET enable_{way} = off")
    store = PostgresStore(postgres_url)
    await store.open()
    org = an_org()
    await put(store, org)
    endpoints = [an_endpoint(org.org_id) for _ in range(_ENDPOINTS)]
    for endpoint in endpoints:
        await put(store, endpoint, 0)
    event = a_submission(org.org_id, [one.endpoint_id for one in endpoints])
    await store.accept([event], await routing_versions(store), NOW)
    yield store
    await store.close()


async def test_no_more_ticks_are_folded_and_no_more_roll_ups_dropped_than_were_asked_for(store: PostgresStore) -> None:
    later = NOW + DAY
    assert [await store.aggregate(later, 4) for _ in range(5)] == [4, 4, 4, 1, 0]
    minutes = [await store.aggregate(later, 4, minutes_before=later) for _ in range(5)]
    assert minutes == [4, 4, 4, 2, 0]
    assert (await store.series(None, [None], Span.MINUTE, 0, later))[None] == []
