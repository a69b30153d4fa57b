"""R5.5: an endpoint's concurrency and rate limits apply across all workers, because the claim itself enforces them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from doorstep.clock import SECOND
from doorstep.model.action import ActionKind
from doorstep.model.claim import Quota
from doorstep.model.delivery import DeliveryState
from doorstep.stores.store import Store
from tests.contract.scene import LEASE, Scene


async def test_no_more_than_concurrency_max_are_in_progress_whoever_claims(scene: Scene) -> None:
    await scene.accept(10)
    first = await scene.claim(2, "w1", concurrency_max=3)
    second = await scene.claim(5, "w2", concurrency_max=3)
    assert (len(first), len(second)) == (2, 1)
    assert await scene.claim(5, "w3", concurrency_max=3) == []


async def test_a_settled_or_released_claim_frees_its_place(scene: Scene) -> None:
    await scene.accept(10)
    one, two, three = await scene.claim(3, concurrency_max=3)
    await scene.deliver(one)
    await scene.fail(two)
    await scene.store.release([three], scene.now)
    assert len(await scene.claim(9, concurrency_max=3)) == 3


async def test_concurrent_claims_on_two_stores_keep_concurrency_max(scene: Scene, other_store: Store) -> None:
    await scene.accept(50)
    quotas = [Quota(scene.endpoint.endpoint_id, 4, concurrency_max=5)]
    for _ in range(3):
        claims = (store.claim(quotas, scene.now, scene.now + LEASE, "w") for store in (scene.store, other_store) * 5)
        await asyncio.gather(*claims)
    assert (await scene.counts())[DeliveryState.IN_PROGRESS] == 5


async def test_forced_claims_pass_the_limit_but_take_places(scene: Scene) -> None:
    made = await scene.accept(5)
    await scene.claim(1, concurrency_max=1)
    await scene.act(ActionKind.RETRY, *(one.deliveries[0].delivery_id for one in made))

    quotas = [Quota(scene.endpoint.endpoint_id, 9, concurrency_max=3)]
    claims = await scene.store.claim(quotas, scene.now, scene.now + LEASE, "w1", forced_max=1)

    assert len(claims) == 2, "one forced, and one that fills the third place"


async def test_a_rate_lets_a_small_burst_through_and_then_keeps_its_pace(scene: Scene) -> None:
    await scene.accept(100)
    taken = []
    for _ in range(11):
        taken.append(len(await scene.claim(rate_per_second=20)))
        scene.wait(SECOND // 10)
    assert taken == [2] * 11, "a tenth of a second's worth at once, 20 a second over time"


async def test_a_rate_below_one_a_second_waits_for_whole_intervals(scene: Scene) -> None:
    await scene.accept(3)
    assert len(await scene.claim(rate_per_second=0.5)) == 1
    scene.wait(2 * SECOND - 1)
    assert await scene.claim(rate_per_second=0.5) == []
    scene.wait(1)
    assert len(await scene.claim(rate_per_second=0.5)) == 1


async def test_idle_time_is_not_saved_up_for_a_flood(scene: Scene) -> None:
    await scene.accept(100)
    await scene.claim(rate_per_second=10)
    scene.wait(600 * SECOND)
    assert len(await scene.claim(rate_per_second=10)) == 1


async def test_the_rate_holds_over_all_workers(scene: Scene, other_store: Store) -> None:
    await scene.accept(50)
    quotas = [Quota(scene.endpoint.endpoint_id, 9, rate_per_second=40)]
    claims = (store.claim(quotas, scene.now, scene.now + LEASE, "w") for store in (scene.store, other_store) * 5)
    taken = [claim for batch in await asyncio.gather(*claims) for claim in batch]
    assert len(taken) == 4


async def test_forced_claims_do_not_use_up_the_rate(scene: Scene) -> None:
    made = await scene.accept(5)
    await scene.act(ActionKind.RETRY, made[0].deliveries[0].delivery_id)
    await scene.store.claim([], scene.now, scene.now + LEASE, "w1", forced_max=1)
    assert len(await scene.claim(rate_per_second=1)) == 1


# -- bytes -------------------------------------------------------------------------------------------------

SHORT, LONG = b"1" * 100, b"2" * 2_000
"""SQLite keeps long payloads in a separate table."""


@pytest.mark.parametrize("payload", [SHORT, LONG], ids=["short", "long"])
async def test_a_claim_ends_with_the_delivery_that_uses_up_its_bytes(scene: Scene, payload: bytes) -> None:
    await scene.accept(5, payload=payload)
    taken = await scene.claim(bytes_max=2 * len(payload) + 1)
    assert [claim.payload for claim in taken] == [payload] * 3
    assert len(await scene.claim(bytes_max=2 * len(payload))) == 2


async def test_a_payload_longer_than_the_bytes_of_a_claim_is_taken_by_itself(scene: Scene) -> None:
    made = [(await scene.accept(payload=payload))[0] for payload in (LONG, SHORT, LONG)]
    taken = [await scene.claim(bytes_max=1) for _ in made]
    assert [[claim.payload for claim in claims] for claims in taken] == [[LONG], [SHORT], [LONG]]
    assert [claim.event_id for (claim,) in taken] == [one.event.event_id for one in made]


async def test_what_a_claim_leaves_for_its_bytes_is_not_counted_as_tried(scene: Scene) -> None:
    made = await scene.accept(3, payload=LONG)
    await scene.claim(bytes_max=1)
    left = [await scene.delivery(one.deliveries[0].delivery_id) for one in made[1:]]
    assert [(one.state, one.attempt) for one in left] == [(DeliveryState.PENDING, 0)] * 2


async def test_each_quota_has_bytes_of_its_own(scene: Scene) -> None:
    other = await scene.add_endpoint()
    await scene.accept(3, endpoints=[scene.endpoint, other], payload=LONG)
    quotas = [Quota(scene.endpoint.endpoint_id, 9, bytes_max=1), Quota(other.endpoint_id, 9, bytes_max=len(LONG) + 1)]
    claims = await scene.store.claim(quotas, scene.now, scene.now + LEASE, "w1")
    assert Counter(claim.endpoint_id for claim in claims) == {scene.endpoint.endpoint_id: 1, other.endpoint_id: 2}


async def test_a_rate_counts_only_what_the_bytes_let_through(scene: Scene) -> None:
    await scene.accept(9, payload=LONG)
    assert len(await scene.claim(rate_per_second=40, bytes_max=1)) == 1
    assert len(await scene.claim(rate_per_second=40)) == 3


async def test_long_and_short_payloads_come_out_as_they_went_in_whatever_their_order(scene: Scene) -> None:
    sizes = [2_000, 3, 700_000, 501, 500, 1, 3_000_000, 0, 4_000_000, 2_500_000, 499]
    made = [(await scene.accept(payload=bytes([n + 1]) * size))[0] for n, size in enumerate(sizes)]
    payloads = {one.event.event_id: one.event.payload for one in made}
    assert {claim.event_id: claim.payload for claim in await scene.claim()} == payloads
