"""R5.3, promise 12: a lease that ended without a settlement is found, with the token that its worker holds."""

from __future__ import annotations

from doorstep.clock import SECOND
from doorstep.model.attempt import Code
from doorstep.model.claim import Settlement
from tests.contract.scene import LEASE, Scene
from tests.support.builders import failure


async def test_a_claim_is_expired_from_the_instant_its_lease_ends(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    scene.wait(LEASE - 1)
    assert await scene.store.expired(scene.now, 10) == []
    scene.wait(1)
    assert await scene.store.expired(scene.now, 10) == [claim._replace(picked_up=False, payload=b"", was_due_at=None)]


async def test_expired_claims_come_oldest_first_and_bounded(scene: Scene) -> None:
    await scene.accept(3)
    taken = [(await scene.claim(1, f"w{n}", lease=(3 - n) * SECOND))[0] for n in range(3)]
    scene.wait(LEASE)
    found = await scene.store.expired(scene.now, 2)
    assert [claim.delivery_id for claim in found] == [taken[2].delivery_id, taken[1].delivery_id]


async def test_an_expired_claim_is_not_claimed_again_before_it_is_settled(scene: Scene) -> None:
    """The lost attempt must be recorded first. Otherwise a poison payload would leave no trace."""
    await scene.accept()
    await scene.claim_one()
    scene.wait(2 * LEASE)
    assert await scene.claim() == []


async def test_settling_an_expired_claim_fences_the_lost_worker(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    scene.wait(LEASE)
    (expired,) = await scene.store.expired(scene.now, 10)
    settled = await scene.settle(Settlement.retry(expired, failure(scene.now, Code.WORKER_LOST), scene.now, 3))
    assert settled.late == ()
    assert (await scene.deliver(claim)).late == (claim,)


async def test_an_expired_claim_tells_how_the_try_before_it_failed(scene: Scene) -> None:
    await scene.accept()
    told = []
    for code in (Code.TIMEOUT, Code.WORKER_LOST):
        claim = await scene.claim_one()
        assert claim.last_code is None, "what is claimed need not know"
        scene.wait(LEASE)
        (expired,) = await scene.store.expired(scene.now, 10)
        told.append(expired.last_code)
        await scene.settle(Settlement.retry(expired, failure(scene.now, code), scene.now, 3))
    await scene.claim_one()
    scene.wait(LEASE)
    (expired,) = await scene.store.expired(scene.now, 10)
    assert [*told, expired.last_code] == [None, Code.TIMEOUT, Code.WORKER_LOST]


async def test_of_two_reclaimers_only_one_settles_an_expired_claim(scene: Scene) -> None:
    await scene.accept()
    await scene.claim_one()
    scene.wait(LEASE)
    (one,) = await scene.store.expired(scene.now, 10)
    (two,) = await scene.store.expired(scene.now, 10)
    assert (await scene.fail(one)).late == ()
    assert (await scene.fail(two)).late == (two,)


async def test_settled_and_released_claims_never_expire(scene: Scene) -> None:
    await scene.accept(3)
    one, two, three = await scene.claim()
    await scene.deliver(one)
    await scene.fail(two)
    await scene.store.release([three], scene.now)
    scene.wait(10 * LEASE)
    assert await scene.store.expired(scene.now, 10) == []
