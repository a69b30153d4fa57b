"""The clock is set while deliveries wait: leases neither end all at once nor last for hours, and nothing is stuck."""

from __future__ import annotations

from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.model.action import ActionKind
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, CircuitState
from doorstep.stores.store import Task
from tests.contract.scene import LEASE, SOON, Scene
from tests.support.builders import failure

HOUR = 3_600 * SECOND
ALL = 1_000


async def test_a_lease_survives_a_clock_that_is_set_forward_and_ends_as_long_after_as_before(scene: Scene) -> None:
    await scene.accept(2)
    await scene.claim(1, "other")
    mine = await scene.claim_one("mine")
    scene.wait(HOUR)
    await scene.store.renew_leases("mine", scene.now)
    assert [claim.worker for claim in await scene.store.expired(scene.now, ALL)] == ["other"]
    assert (await scene.store.expired(scene.now + LEASE, ALL))[-1].delivery_id == mine.delivery_id
    assert (await scene.deliver(mine)).late == ()


async def test_a_lease_that_another_worker_has_taken_over_is_not_extended(scene: Scene) -> None:
    await scene.accept()
    mine = await scene.claim_one("mine")
    scene.wait(LEASE)
    (lost,) = await scene.store.expired(scene.now, ALL)
    await scene.fail(lost)
    scene.wait(SOON)
    await scene.claim_one("successor")
    await scene.store.renew_leases("mine", scene.now)
    assert len(await scene.store.expired(scene.now + LEASE, ALL)) == 1
    assert (await scene.deliver(mine)).late == (mine,)


async def test_a_lease_of_a_lost_worker_lasts_no_longer_after_the_clock_was_set_back(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    scene.wait(-HOUR)
    await scene.store.shift_waits(scene.now, ALL)
    assert await scene.store.expired(scene.now + LEASE - 1, ALL) == []
    (lost,) = await scene.store.expired(scene.now + LEASE, ALL)
    assert (lost.delivery_id, lost.token) == (claim.delivery_id, claim.token)


async def test_a_new_delivery_is_due_at_once_after_the_clock_was_set_back_but_a_scheduled_one_keeps_its_time(
    scene: Scene,
) -> None:
    await scene.accept()
    await scene.accept(deliver_at=scene.now + SOON, due_at=scene.now + SOON)
    scene.wait(-HOUR)
    assert await scene.claim() == []
    assert await scene.store.shift_waits(scene.now, ALL) == 1
    assert len(await scene.claim()) == 1
    scene.wait(HOUR + SOON - 1)
    assert await scene.claim() == []
    scene.wait(1)
    assert len(await scene.claim()) == 1


async def test_a_retry_waits_as_long_after_the_clock_was_set_back_as_it_would_have(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.fail(claim, outcome=failure(scene.now))
    scene.wait(-HOUR)
    assert await scene.store.shift_waits(scene.now, ALL) == 1
    delivery = await scene.delivery(claim.delivery_id)
    assert (delivery.due_at, delivery.last_attempt_at) == (scene.now + SOON, scene.now)
    assert await scene.store.shift_waits(scene.now, ALL) == 0, "nothing is shifted twice"


async def test_a_wait_that_began_before_the_earlier_time_is_left_as_it_is(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.fail(claim, outcome=failure(scene.now))
    due_at = scene.now + SOON
    scene.wait(2 * SECOND)
    scene.wait(-SECOND)
    assert await scene.store.shift_waits(scene.now, ALL) == 0
    assert (await scene.delivery(claim.delivery_id)).due_at == due_at


async def test_waits_that_began_since_the_clock_was_read_keep_their_times(scene: Scene) -> None:
    """The clock is read before the store is reached. Another worker may write in between."""
    await scene.accept(2)
    retried, held = await scene.claim(2)
    await scene.fail(retried, outcome=failure(scene.now))
    due_at = scene.now + SOON
    assert await scene.store.shift_waits(scene.now - SECOND // 2, ALL) == 0
    assert (await scene.delivery(retried.delivery_id)).due_at == due_at
    assert (await scene.delivery(held.delivery_id)).due_at == held.lease_until


async def test_a_delivery_that_an_operator_retried_is_due_at_once_after_the_clock_was_set_back(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.kill(claim)
    scene.wait(HOUR)
    await scene.act(ActionKind.RETRY, claim.delivery_id)
    scene.wait(-HOUR + SECOND)
    await scene.store.shift_waits(scene.now, ALL)
    delivery = await scene.delivery(claim.delivery_id)
    assert (delivery.state, delivery.due_at) == (DeliveryState.PENDING, scene.now)


async def test_an_open_circuit_pauses_no_longer_after_the_clock_was_set_back(scene: Scene) -> None:
    circuit = Circuit(
        endpoint_id=scene.endpoint.endpoint_id,
        state=CircuitState.OPEN,
        failures=5,
        failing_since=scene.now - SECOND,
        changed_at=scene.now,
        until=scene.now + SOON,
    )
    await scene.store.put_circuit(circuit, 0)
    scene.wait(-HOUR)
    await scene.store.shift_waits(scene.now, ALL)
    found = await scene.store.get(Circuit, None, circuit.endpoint_id)
    assert found == replace(circuit, changed_at=scene.now, failing_since=scene.now, until=scene.now + SOON, version=2)


async def test_a_lock_that_a_lost_process_holds_until_much_later_is_released(scene: Scene) -> None:
    assert await scene.store.acquire_lock(Task.ROLLUPS, "lost", scene.now, scene.now + SOON)
    scene.wait(-HOUR)
    await scene.store.shift_waits(scene.now, ALL)
    await scene.store.release_lock(Task.ROLLUPS, "lost")  # on PostgreSQL, its session ends
    assert await scene.store.acquire_lock(Task.ROLLUPS, "successor", scene.now, scene.now + SOON)


async def test_more_waiting_deliveries_than_one_batch_are_shifted_in_several(scene: Scene) -> None:
    await scene.accept(5)
    scene.wait(-HOUR)
    assert [await scene.store.shift_waits(scene.now, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert len(await scene.claim()) == 5
