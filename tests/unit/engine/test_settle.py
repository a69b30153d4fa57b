"""What happens to results that cannot be written, and how retries without delay are settled."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import SECOND, Instant
from doorstep.model.claim import Quota, Settled, Settlement
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import RetryPolicy
from doorstep.model.listing import DeliveryAttempts
from tests.unit.engine.scene import Bench


async def test_one_result_that_no_store_can_write_does_not_hold_up_the_others() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    ids = await bench.accept(endpoint, 4)
    _break_for(bench, ids[1])
    await bench.deliverer.round()
    bench.http.answer(200)

    settler = bench.deliverer.settler
    for _ in range(10):
        with contextlib.suppress(TypeError):
            await settler.run_once()

    assert settler.backlog == 0
    dropped, *others = (DeliveryState.IN_PROGRESS, *[DeliveryState.DELIVERED] * 3)
    assert await bench.states([ids[1], ids[0], ids[2], ids[3]]) == [dropped, *others]


def _break_for(bench: Bench, delivery_id: UUID) -> None:
    """Simulate a bug in Doorstep: settling this delivery always fails, although the store is available."""
    settle = bench.failing.kept.settle

    async def broken(settlements: Sequence[Settlement], now: Instant) -> Settled:
        if any(settlement.claim.delivery_id == delivery_id for settlement in settlements):
            raise TypeError("cannot be written")
        return await settle(settlements, now)

    bench.failing.kept.settle = broken  # type: ignore[method-assign]


async def test_a_retry_without_delay_is_not_due_for_a_round_that_began_before_it_was_written() -> None:
    """Otherwise that round's history entry would have an earlier time than the failure that precedes it."""
    bench = Bench()
    (endpoint,) = await bench.prepare(policy=RetryPolicy((0.0,)))
    (delivery_id,) = await bench.accept(endpoint, 1)
    await bench.deliverer.round()
    bench.http.answer(503)
    began_at = bench.clock.advance(0.1)
    written_at = bench.clock.advance(0.1)
    await bench.deliverer.settler.run_once()
    store, quotas = bench.store, [Quota(endpoint.endpoint_id, 1)]
    assert await store.claim(quotas, began_at, began_at + SECOND, "w") == []
    (claim,) = await store.claim(quotas, written_at, written_at + SECOND, "w")
    (attempt,) = await store.find(endpoint.org_id, DeliveryAttempts(delivery_id=delivery_id))
    assert attempt.next_retry_at == written_at
    assert claim.delivery_id == delivery_id
