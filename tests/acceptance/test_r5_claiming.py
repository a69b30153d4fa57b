"""R5: claiming, leases, crash safety.

tests/faults proves with real processes that nothing is lost to kills, power cuts and failing databases. This file tests
the same rules through the facade.
"""

from __future__ import annotations

import time
from collections import Counter
from uuid import UUID

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import SECOND, seconds
from doorstep.engine.accept import Options
from doorstep.errors import InvalidInput
from doorstep.model.claim import Claim, Quota
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventView
from doorstep.model.listing import EventDeliveries
from doorstep.model.org import Org
from doorstep.stores.open import store_from_url
from doorstep.telemetry.facts import LateSettle
from tests.acceptance.conftest import migrated_url
from tests.support.leaping_clock import LeapingClock
from tests.support.scene import Scene, until
from tests.support.shortcuts import count_states, put
from tests.support.stores import EACH_STORE
from tests.support.stretching import stretched

_S = DeliveryState
LEASE_SECONDS = 10.0
OTHER_ORG = UUID("00000000-0000-7000-8000-000000000002")


@pytest.fixture(params=EACH_STORE)
def database_url(request: pytest.FixtureRequest) -> str:
    """Both stores, because the database itself does the claiming."""
    return migrated_url(request)


# -- R5.1 --------------------------------------------------------------------------------------------------


async def test_what_was_acknowledged_is_there_for_others_with_one_delivery_per_matching_endpoint(
    scene: Scene, database_url: str
) -> None:
    scene.receiver.hold.clear()
    wanted = [await scene.endpoint(f"/{n}", event_types=("order.*",)) for n in range(3)]
    await scene.endpoint("/other", event_types=("user.*",))
    sent = await scene.send("order.paid")
    other = store_from_url(database_url)
    await other.open()
    try:
        view = await other.get(EventView, DEFAULT_ORG, sent.event_id)
        deliveries = await other.find(DEFAULT_ORG, EventDeliveries(event_id=sent.event_id))
    finally:
        await other.close()
    assert (view.event.payload, view.deliveries, sent.deliveries) == (b'{"n": 1}', 3, 3)
    assert {one.endpoint_id for one in deliveries} == {endpoint.endpoint_id for endpoint in wanted}


async def test_of_a_batch_with_one_event_that_cannot_be_kept_nothing_is_kept(scene: Scene) -> None:
    await scene.endpoint()
    with pytest.raises(InvalidInput, match=r"events\[1\].endpoint_ids"):
        await scene.doorstep.send_many([("order.paid", {}), ("order.paid", {}, {"endpoint_ids": [OTHER_ORG]})])
    await scene.nothing_more_arrives()
    assert sum((await count_states(scene.doorstep.components.store)).values()) == 0


# -- R5.2 --------------------------------------------------------------------------------------------------


async def test_a_worker_that_was_paused_past_its_lease_changes_nothing(scene: Scene) -> None:
    """Another worker takes over while the first one's time stands still. Its attempt is answered after it has resumed."""
    scene.receiver.says(200, 503)
    scene.receiver.hold.clear()
    (delivery,) = await scene.send_to(await scene.endpoint(policy=[60.0, 60.0, 60.0]))
    await scene.until_received(1)
    ahead = LeapingClock()
    ahead.leap(LEASE_SECONDS + 0.1)
    await scene.open(clock=ahead)
    await scene.until_tried(delivery)  # settled on behalf of the worker that lost it
    await scene.until_received(2)
    scene.leap(LEASE_SECONDS + 0.1)  # the first worker resumes, and renews the leases that it still holds
    scene.receiver.hold.set()
    await until(lambda: bool(scene.heard(LateSettle)), "a late result")
    await scene.until_tried(delivery, 3)
    after = await scene.delivery(delivery)
    assert (after.state, after.attempt, after.response_code) == (_S.PENDING, 2, 503)
    rows = [(row.number, row.code, row.late) for row in await scene.attempts(delivery)]
    assert sorted(rows, key=str) == sorted(
        [(1, "WORKER_LOST", False), (1, None, True), (2, "SERVICE_UNAVAILABLE", False)], key=str
    )


async def test_a_worker_that_resumes_before_another_takes_over_still_has_its_attempt(scene: Scene) -> None:
    scene.receiver.hold.clear()
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_received(1)
    scene.leap(LEASE_SECONDS + 0.1)
    await until(lambda: _renewed(scene, delivery), "a renewed lease")
    scene.receiver.hold.set()
    await scene.until_state(delivery, _S.DELIVERED)
    assert [(row.number, row.code, row.late) for row in await scene.attempts(delivery)] == [(1, None, False)]
    assert len(scene.receiver.requests) == 1


async def _renewed(scene: Scene, delivery: Delivery) -> bool:
    return ((await scene.delivery(delivery)).due_at or 0) > scene.clock.now()


# -- R5.3 --------------------------------------------------------------------------------------------------


async def test_the_work_of_a_lost_worker_is_picked_up_within_a_second_of_its_leases_end(scene: Scene) -> None:
    endpoint = await scene.endpoint(event_types=("order.*",))
    delivery, claim = await _claimed_by_a_ghost(scene, endpoint, lease_seconds=1.0)
    done = await scene.until_state(delivery, _S.DELIVERED)
    lost, good = await scene.attempts(delivery)
    assert (lost.code, lost.worker, lost.number) == ("WORKER_LOST", "ghost", 1)
    assert (good.number, done.retry_attempts) == (2, 1)
    assert 0 <= good.started_at - claim.lease_until < stretched(1.2) * SECOND


async def test_an_attempt_is_counted_when_it_is_claimed_so_what_kills_workers_ends_as_a_dead_letter(
    scene: Scene,
) -> None:
    endpoint = await scene.endpoint(policy=[0.0, 0.0])
    await scene.doorstep.components.endpoints.pause(
        DEFAULT_ORG, endpoint.endpoint_id, "ops"
    )  # only simulated workers will claim it
    (delivery,) = await scene.send_to(endpoint)
    for attempt in (1, 2, 3):
        claim = await _ghost_claims(scene, endpoint, lease_seconds=5)
        assert (await scene.delivery(delivery)).attempt == claim.attempt == attempt
        scene.leap(5)
        await scene.until_tried(delivery, attempt)
        scene.leap(4)  # longer than the random delay after two lost workers
    dead = await scene.delivery(delivery)
    assert (dead.state, dead.code, dead.attempt) == (_S.DEAD, "WORKER_LOST", 3)
    assert scene.receiver.requests == []


async def _claimed_by_a_ghost(scene: Scene, endpoint: Endpoint, lease_seconds: float) -> tuple[Delivery, Claim]:
    """Let a simulated worker claim an event and disappear. The real worker cannot claim the event meanwhile."""
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    (delivery,) = await scene.send_to(endpoint)
    claim = await _ghost_claims(scene, endpoint, lease_seconds)
    await scene.doorstep.components.endpoints.resume(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    return delivery, claim


async def _ghost_claims(scene: Scene, endpoint: Endpoint, lease_seconds: float) -> Claim:
    now = scene.clock.now()
    quotas = [Quota(endpoint.endpoint_id, 1)]
    (claim,) = await scene.doorstep.components.store.claim(quotas, now, now + seconds(lease_seconds), "ghost")
    return claim


# -- R5.4 --------------------------------------------------------------------------------------------------


async def test_several_workers_share_one_store_and_no_event_is_sent_twice(scene: Scene) -> None:
    await scene.open()
    await scene.open()
    endpoints = [await scene.endpoint(f"/{n}") for n in range(3)]
    for sender in scene.doorsteps:
        await sender.send_many([("order.paid", {})] * 60)
    await until(lambda: _settled(scene, 3 * 3 * 60), "every delivery")
    arrived = Counter((request.event_id, request.path) for request in scene.receiver.requests)
    assert len(arrived) == 3 * 60 * len(endpoints)
    assert set(arrived.values()) == {1}


async def test_an_event_accepted_by_one_process_is_delivered_by_another_within_a_second(scene: Scene) -> None:
    """The process that accepts the event has no running worker."""
    await scene.endpoint()
    accepting = await scene.open()
    assert accepting.components.worker is not None
    await accepting.components.worker.stop()
    began = time.monotonic()
    await accepting.send("order.paid", {})
    await scene.until_received(1)
    assert time.monotonic() - began < stretched(1.0)


# -- R5.5 --------------------------------------------------------------------------------------------------


async def test_an_endpoints_concurrency_limit_holds_over_all_workers(scene: Scene) -> None:
    await scene.open()
    await scene.open()
    scene.receiver.pause_seconds = 0.01
    await scene.send_to(await scene.endpoint(concurrency_max=3), 60)
    await until(lambda: _settled(scene, 60), "every delivery")
    assert scene.receiver.in_flight_max <= 3


async def test_without_a_limit_more_go_at_once(scene: Scene) -> None:
    scene.receiver.pause_seconds = 0.05
    await scene.send_to(await scene.endpoint(), 60)
    await until(lambda: _settled(scene, 60), "every delivery")
    assert scene.receiver.in_flight_max > 3


async def test_an_endpoints_rate_limit_holds_over_all_workers(scene: Scene) -> None:
    await scene.open()
    await scene.send_to(await scene.endpoint(rate_per_second=20), 30)
    await until(lambda: _settled(scene, 30), "every delivery")
    times = [request.at for request in scene.receiver.requests]
    assert times[-1] - times[0] > (30 - 2 - 1) / 20 - 0.2, "a burst is a tenth of a second's worth: two"


async def test_a_flood_for_a_slow_endpoint_of_one_org_does_not_delay_another(scene: Scene) -> None:
    """In a single queue, the event would wait for 300 attempts of 0.5 s, 16 at a time: nine seconds."""
    await scene.close()
    await scene.open(concurrency=16)
    store = scene.doorstep.components.store
    await put(store, Org(org_id=OTHER_ORG, name="other", created_at=scene.clock.now()))
    slow = await scene.endpoint("/slow", org_id=OTHER_ORG)
    await scene.endpoint("/quick")
    scene.receiver.pause_seconds = 0.5
    to_slow = Options(org_id=OTHER_ORG, endpoint_ids=[slow.endpoint_id])
    await scene.doorstep.send_many([("flood", {}, to_slow)] * 300)
    await scene.until_received(4)
    began = time.monotonic()
    await scene.send()
    await until(lambda: any(request.path == "/quick" for request in scene.receiver.requests), "the quick one")
    assert time.monotonic() - began < stretched(1.0)


async def _settled(scene: Scene, count: int) -> bool:
    return await scene.count(_S.DELIVERED) == count
