"""R5.4: any number of workers share one database: limits hold across all of them, and they never deadlock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import chain

import asyncpg
import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.errors import StaleRouting
from doorstep.model.claim import Claim, Quota, Settlement
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventStatus, EventView, Submission, Verdict
from doorstep.model.listing import EventDeliveries
from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.sql.postgres.connections import begin_transaction
from tests.support.builders import NOW, a_submission, an_endpoint, an_org, success
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import put, routing_versions

LEASE_END = NOW + 30 * SECOND
WORKERS = 4


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    """Several stores on one database, one for each simulated process."""
    opened = [PostgresStore(postgres_url) for _ in range(WORKERS)]
    for store in opened:
        await store.open()
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
async def endpoints(stores: list[PostgresStore]) -> list[Endpoint]:
    org = an_org()
    await put(stores[0], org)
    made = [an_endpoint(org.org_id) for _ in range(3)]
    for endpoint in made:
        await put(stores[0], endpoint, 0)
    return made


async def _accept(store: PostgresStore, endpoints: Sequence[Endpoint], count: int) -> list[Submission]:
    targets = [endpoint.endpoint_id for endpoint in endpoints]
    made = [a_submission(endpoints[0].org_id, targets) for _ in range(count)]
    await store.accept(made, await routing_versions(store), NOW)
    return made


async def _claim_together(stores: Sequence[PostgresStore], quota: Quota, rounds: int) -> list[Claim]:
    async def work(number: int, store: PostgresStore) -> list[Claim]:
        claims: list[Claim] = []
        for _ in range(rounds):
            claims += await store.claim([quota], NOW, LEASE_END, f"w{number}")
        return claims

    return list(chain.from_iterable(await asyncio.gather(*(work(*pair) for pair in enumerate(stores)))))


async def test_workers_that_claim_together_never_get_the_same_delivery(
    stores: list[PostgresStore], endpoints: list[Endpoint]
) -> None:
    await _accept(stores[0], endpoints[:1], 400)
    claims = await _claim_together(stores, Quota(endpoints[0].endpoint_id, 17), rounds=10)
    assert len(claims) == len({claim.delivery_id for claim in claims}) == 400


async def test_a_concurrency_limit_holds_over_all_workers(
    stores: list[PostgresStore], endpoints: list[Endpoint]
) -> None:
    await _accept(stores[0], endpoints[:1], 100)
    quota = Quota(endpoints[0].endpoint_id, 4, concurrency_max=7)
    assert len(await _claim_together(stores, quota, rounds=10)) == 7


async def test_a_rate_holds_over_all_workers(stores: list[PostgresStore], endpoints: list[Endpoint]) -> None:
    await _accept(stores[0], endpoints[:1], 100)
    quota = Quota(endpoints[0].endpoint_id, 4, rate_per_second=100.0)
    assert len(await _claim_together(stores, quota, rounds=10)) == 10


async def test_without_a_limit_they_take_all(stores: list[PostgresStore], endpoints: list[Endpoint]) -> None:
    await _accept(stores[0], endpoints[:1], 100)
    assert len(await _claim_together(stores, Quota(endpoints[0].endpoint_id, 4), rounds=10)) == 100


async def test_workers_that_settle_deliveries_of_the_same_events_do_not_lose_a_status(
    stores: list[PostgresStore], endpoints: list[Endpoint]
) -> None:
    made = await _accept(stores[0], endpoints, 100)
    quotas = [Quota(endpoint.endpoint_id, 100) for endpoint in endpoints]
    hands = [await stores[0].claim([quota], NOW, LEASE_END, "w") for quota in quotas]
    settlements = [[Settlement.delivered(claim, success(NOW)) for claim in hand] for hand in hands]
    settlements[1].reverse()  # in whatever order the batch is given
    results = await asyncio.gather(*(store.settle(batch, NOW) for store, batch in zip(stores, settlements)))
    assert sum(len(settled.changes) for settled in results) == 100
    views = [await stores[0].get(EventView, one.event.org_id, one.event.event_id) for one in made]
    assert {view.status for view in views} == {EventStatus.DELIVERED}


async def test_one_idempotency_key_in_many_concurrent_accepts_is_one_event(
    stores: list[PostgresStore], endpoints: list[Endpoint]
) -> None:
    version = await routing_versions(stores[0])
    made = [a_submission(endpoints[0].org_id, [endpoints[0].endpoint_id], key="k") for _ in range(40)]
    answers = await asyncio.gather(*(stores[n % WORKERS].accept([one], version, NOW) for n, one in enumerate(made)))
    verdicts = [receipt.verdict for (receipt,) in answers]
    assert verdicts.count(Verdict.ACCEPTED) == 1
    assert verdicts.count(Verdict.REPEATED) == 39
    assert len({receipt.event_id for (receipt,) in answers}) == 1


async def test_an_accept_waits_for_a_change_of_endpoints_under_way_and_is_then_stale(
    stores: list[PostgresStore], endpoints: list[Endpoint], postgres_url: str
) -> None:
    version = await routing_versions(stores[0])
    changing = await asyncpg.connect(postgres_url)
    await changing.execute(begin_transaction(None, reading=False))
    await changing.execute("UPDATE doorstep_variables SET value = value + 1 WHERE name = 'routing'")
    await changing.execute("UPDATE doorstep_orgs SET routing = routing + 1")
    submission = a_submission(endpoints[0].org_id, [endpoints[0].endpoint_id])
    accepting = asyncio.create_task(stores[0].accept([submission], version, NOW))
    await _until_someone_waits(changing)
    assert not accepting.done()
    await changing.execute("COMMIT")
    await changing.close()
    with pytest.raises(StaleRouting):
        await accepting
    assert await stores[0].find(endpoints[0].org_id, EventDeliveries(event_id=submission.event.event_id)) == []


async def test_a_change_of_endpoints_is_not_starved_by_a_stream_of_accepts(
    stores: list[PostgresStore], endpoints: list[Endpoint]
) -> None:
    changed = asyncio.Event()

    async def stream(store: PostgresStore) -> None:
        while not changed.is_set():
            try:
                await _accept(store, endpoints[:1], 5)
            except StaleRouting:
                continue

    streams = [asyncio.create_task(stream(store)) for store in stores for _ in range(3)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(5):
            await put(stores[0], replace(endpoints[0], name="renamed"), 1)
    changed.set()
    await asyncio.gather(*streams)


async def _until_someone_waits(connection: asyncpg.Connection) -> None:
    """Poll until another session waits for a lock; the round trips of the polling query replace a sleep."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
        ):
            continue
