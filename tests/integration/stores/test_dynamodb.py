"""DynamoDB on an emulator of AWS: requests per event, races, large fan-outs, the queue and the sweeper."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from doorstep.clock import SECOND
from doorstep.errors import ConfigError, InvalidInput, NotOffered
from doorstep.model.claim import Claim, Lease, Quota
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus, Submission, Verdict
from doorstep.model.listing import EventBodies, EventDeliveries, EventFilter, InboxFilter
from doorstep.stores.open import store_from_url
from doorstep.stores.store import Retention, Task, Topic
from tests.contract.scene import LEASE, SOON, Scene
from tests.support.builders import NOW, a_submission
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import all_items

pytest.importorskip("botocore", reason="DYNAMODB NOT TESTED: the extra 'aws' is not installed")

from doorstep.stores.dynamodb import accept as accepting
from doorstep.stores.dynamodb.client import WRITES
from doorstep.stores.dynamodb.messages import DueMessage
from doorstep.stores.dynamodb.store import DynamoStore
from doorstep.stores.dynamodb.tables import STATUS_INDEX, table_definition

pytestmark = pytest.mark.full

WRITES_MAX = 3
"""The bound for accepting an event with one endpoint, and for a successful delivery."""


async def opened(url: str) -> DynamoStore:
    store = store_from_url(url)
    assert isinstance(store, DynamoStore)
    await store.migrate()
    await store.open()
    return store


@pytest.fixture
async def store(dynamodb_queue_url: str) -> AsyncIterator[DynamoStore]:
    store = await opened(dynamodb_queue_url)
    yield store
    await store.close()


@pytest.fixture
async def scene(store: DynamoStore) -> Scene:
    return await Scene(store).prepare()


class Requests:
    """The requests that a store sent since this was made."""

    def __init__(self, store: DynamoStore) -> None:
        self._store = store
        self._before = Counter(store._aws.calls)

    async def sent(self) -> tuple[int, int]:
        """Writes of items, and messages. Messages are sent in the background."""
        assert self._store._queue is not None
        await asyncio.gather(*self._store._queue._tasks)
        calls = self._store._aws.calls - self._before
        return sum(calls[name] for name in WRITES), calls["SendMessageBatch"]


def due_now(scene: Scene, **more: object) -> Submission:
    return a_submission(scene.org_id, [scene.endpoint.endpoint_id], due_at=scene.now, **more)  # type: ignore[arg-type]


# -- requests ----------------------------------------------------------------------------------------------


async def test_accepting_an_event_with_one_endpoint_takes_at_most_three_writes_and_one_message(
    store: DynamoStore, scene: Scene
) -> None:
    requests = Requests(store)
    await scene.submit(due_now(scene, key="once"))
    writes, messages = await requests.sent()
    assert 1 <= writes <= WRITES_MAX
    assert messages == 1


async def test_a_delivery_that_succeeds_at_once_takes_one_write_and_no_message(
    store: DynamoStore, scene: Scene
) -> None:
    requests = Requests(store)
    lease = Lease(scene.now + LEASE, "w1")
    (receipt,) = await scene.submit(due_now(scene, claimable=True), lease=lease)
    assert await requests.sent() == (1, 0)

    requests = Requests(store)
    await scene.deliver(*receipt.claims)
    assert await requests.sent() == (1, 0)
    assert await scene.status(receipt.event_id) is EventStatus.DELIVERED


async def test_a_delivery_that_is_claimed_from_the_table_takes_at_most_three_writes(
    store: DynamoStore, scene: Scene
) -> None:
    await scene.accept()
    requests = Requests(store)
    await scene.deliver(await scene.claim_one())
    assert await requests.sent() == (2, 0)


async def test_a_retry_takes_one_write_to_settle_and_one_message_with_its_delay(
    store: DynamoStore, scene: Scene
) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    requests = Requests(store)
    await scene.fail(claim)
    assert await requests.sent() == (1, 1)


# -- races -------------------------------------------------------------------------------------------------


async def test_of_many_claims_of_one_delivery_exactly_one_wins(store: DynamoStore, scene: Scene) -> None:
    for _ in range(20):
        await scene.accept()
        claims = await asyncio.gather(*(scene.claim(1, f"w{number}") for number in range(8)))
        assert sum(map(len, claims)) == 1
        await scene.deliver(*(claim for found in claims for claim in found))


async def test_deliveries_of_one_event_that_are_settled_at_once_all_count(store: DynamoStore, scene: Scene) -> None:
    endpoints = [scene.endpoint, *[await scene.add_endpoint() for _ in range(7)]]
    (submission,) = await scene.accept(1, endpoints)
    quotas = [Quota(endpoint.endpoint_id, 1) for endpoint in endpoints]
    claims = await store.claim(quotas, scene.now, scene.now + LEASE, "w1")
    await asyncio.gather(*(scene.deliver(claim) for claim in claims))
    assert await scene.status(submission.event.event_id) is EventStatus.DELIVERED


async def test_two_events_with_one_idempotency_key_are_one_event(store: DynamoStore, scene: Scene) -> None:
    receipts = await asyncio.gather(*(scene.submit(due_now(scene, key="same")) for _ in range(8)))
    verdicts = Counter(receipt.verdict for (receipt,) in receipts)
    assert verdicts == {Verdict.ACCEPTED: 1, Verdict.REPEATED: 7}
    assert len({receipt.event_id for (receipt,) in receipts}) == 1


async def test_a_lock_has_one_holder(store: DynamoStore) -> None:
    until = NOW + SOON
    taken = await asyncio.gather(*(store.acquire_lock(Task.METRICS, f"w{n}", NOW, until) for n in range(8)))
    assert sum(taken) == 1


# -- more endpoints than a transaction holds ---------------------------------------------------------------------


async def many_endpoints(scene: Scene, count: int) -> list[UUID]:
    made = await asyncio.gather(*(scene.add_endpoint() for _ in range(count)))
    return [endpoint.endpoint_id for endpoint in made]


async def test_an_event_for_more_endpoints_than_a_transaction_holds_is_delivered_to_all(
    store: DynamoStore, scene: Scene
) -> None:
    targets = await many_endpoints(scene, 2 * accepting.DELIVERIES_AT_ONCE + 1)
    submission = a_submission(scene.org_id, targets, due_at=scene.now)
    (receipt,) = await scene.submit(submission)
    assert receipt.deliveries == len(targets)
    found = await store.find(scene.org_id, EventDeliveries(event_id=receipt.event_id))
    assert {one.endpoint_id for one in found} == set(targets)


async def test_a_fan_out_that_was_interrupted_is_finished_by_the_cleaner(
    store: DynamoStore, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = await many_endpoints(scene, accepting.DELIVERIES_AT_ONCE + 5)
    submission = a_submission(scene.org_id, targets, due_at=scene.now)

    async def killed(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched, pytest.raises(asyncio.CancelledError):
        patched.setattr(store, "_complete", killed)
        await scene.submit(submission)
    event_id = submission.event.event_id
    assert len(await store.find(scene.org_id, EventDeliveries(event_id=event_id))) == accepting.DELIVERIES_AT_ONCE
    assert await scene.status(event_id) is EventStatus.RECEIVED

    scene.wait(120 * SECOND)
    await store.clean(Retention(), scene.now, 100)
    assert len(await store.find(scene.org_id, EventDeliveries(event_id=event_id))) == len(targets)
    (receipt,) = await scene.submit(submission)
    assert receipt.known
    assert receipt.deliveries == len(targets)


async def test_an_event_that_fits_no_item_is_refused_before_anything_is_stored(scene: Scene) -> None:
    with pytest.raises(InvalidInput, match="bytes of payload and metadata"):
        await scene.submit(due_now(scene, payload=b"x" * (accepting.EVENT_BYTES_MAX + 1)))


# -- the queue ---------------------------------------------------------------------------------------------


async def test_a_message_leads_straight_to_its_delivery_and_an_old_one_claims_nothing(
    store: DynamoStore, scene: Scene
) -> None:
    (submission,) = await scene.accept()
    message = DueMessage(submission.event.event_id, submission.deliveries[0].delivery_id, 1)

    async def claim(*messages: DueMessage) -> list[Claim]:
        return await store.claim_announced(messages, scene.now, scene.now + LEASE, "w1")

    claims = await asyncio.gather(*(claim(message) for _ in range(6)))
    assert sum(map(len, claims)) == 1
    await scene.deliver(*(one for found in claims for one in found))
    assert await claim(message) == []
    (failing,) = await scene.accept()
    await scene.fail(await scene.claim_one())
    early = DueMessage(failing.event.event_id, failing.deliveries[0].delivery_id, 2)
    assert await claim(early) == []


async def test_an_accepted_event_wakes_a_worker_of_another_process(
    store: DynamoStore, scene: Scene, dynamodb_queue_url: str
) -> None:
    other = await opened(dynamodb_queue_url)
    woken = asyncio.Event()
    other.on_wakeup(Topic.DELIVERIES, woken.set)
    await other.due_lanes(scene.now)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await scene.accept()
            await woken.wait()
    finally:
        await other.close()


async def test_the_sweeper_announces_what_has_no_message(store: DynamoStore, scene: Scene) -> None:
    await scene.accept(3)
    far = scene.now + 2_000 * SECOND
    await scene.accept(2, due_at=far)
    assert await store.sweep(scene.now) == 0  # none is overdue by a minute, or has come within 900 seconds
    assert await store.sweep(scene.now + 90 * SECOND) == 3
    assert await store.sweep(far - 890 * SECOND) == 5


async def test_without_any_message_everything_is_still_delivered(scene: Scene, dynamodb_url: str) -> None:
    alone = await opened(dynamodb_url)
    try:
        quiet = await Scene(alone).prepare()
        await quiet.accept(20)
        lanes = await alone.due_lanes(quiet.now)
        assert [lane.endpoint_id for lane in lanes] == [quiet.endpoint.endpoint_id]
        await quiet.deliver(*await quiet.claim(20))
        assert await quiet.counts() == {DeliveryState.DELIVERED: 20}
    finally:
        await alone.close()


# -- the inbox and the table -------------------------------------------------------------------------------------


async def test_failed_events_are_listed_in_order_page_by_page_and_none_is_missing(scene: Scene) -> None:
    made = await scene.accept(300)
    await scene.kill(*await scene.claim(300))
    failed = InboxFilter(status=EventStatus.FAILED)
    listed = [view.event.event_id async for view in all_items(scene.store, scene.org_id, failed, limit=37)]
    assert listed == sorted(one.event.event_id for one in made)


async def test_a_table_without_an_index_is_refused_by_its_name(store: DynamoStore, dynamodb_url: str) -> None:
    definition = table_definition(store_from_url(dynamodb_url).options.table)  # type: ignore[attr-defined]
    indexes = definition["GlobalSecondaryIndexes"]
    assert isinstance(indexes, list)
    definition["GlobalSecondaryIndexes"] = [one for one in indexes if one["IndexName"] != STATUS_INDEX.name]
    keys = {STATUS_INDEX.partition_key, STATUS_INDEX.sort_key}
    attributes = definition["AttributeDefinitions"]
    assert isinstance(attributes, list)
    definition["AttributeDefinitions"] = [one for one in attributes if one["AttributeName"] not in keys]
    await store._aws.call("CreateTable", **definition)
    with pytest.raises(ConfigError, match=r"must have the index StatusIndex"):
        await store_from_url(dynamodb_url).open()


async def test_a_table_that_does_not_exist_is_named(dynamodb_url: str) -> None:
    with pytest.raises(ConfigError, match="must exist, got none; run doorstep migrate"):
        await store_from_url(dynamodb_url).open()


async def test_a_part_that_is_not_offered_says_so(scene: Scene) -> None:
    with pytest.raises(NotOffered, match="statistics are not offered on DynamoDB"):
        await scene.store.figures(scene.org_id, [None])


async def test_a_filter_that_is_not_offered_is_refused_with_an_idempotency_key_too(scene: Scene) -> None:
    await scene.submit(due_now(scene, key="once"))
    wanted = EventFilter(idempotency_key="once", endpoint_id=scene.endpoint.endpoint_id)
    for query in (wanted, EventBodies(filter=wanted)):
        with pytest.raises(NotOffered, match="search by correlation id"):
            await scene.store.page(scene.org_id, query)
