"""Every method that takes many items takes thousands: a database's limit on parameters never cuts a batch short."""

from __future__ import annotations

from doorstep.model.action import ActionKind
from doorstep.model.claim import Quota
from doorstep.model.delivery import DeliveryState
from doorstep.stores.store import Retention
from tests.contract.scene import LEASE, Scene
from tests.support.builders import a_submission

MANY = 3_000


async def test_thousands_are_accepted_claimed_and_settled_in_one_call_each(scene: Scene) -> None:
    other = await scene.add_endpoint()
    targets = [scene.endpoint.endpoint_id, other.endpoint_id]
    made = [a_submission(scene.org_id, targets, key=f"k{n}") for n in range(MANY)]
    assert len(await scene.submit(*made)) == MANY

    quotas = [Quota(endpoint_id, MANY) for endpoint_id in targets]
    claims = await scene.store.claim(quotas, scene.now, scene.now + LEASE, "w1")
    assert len(claims) == 2 * MANY

    settled = await scene.deliver(*claims)
    assert (settled.late, len(settled.changes)) == ((), MANY)
    assert await scene.counts() == {DeliveryState.DELIVERED: 2 * MANY}
    assert (await scene.store.clean(Retention(settled_before=scene.now + 1), scene.now, 2 * MANY)).events == MANY


async def test_thousands_are_released_and_found_expired_in_one_call_each(scene: Scene) -> None:
    await scene.accept(MANY)
    claims = await scene.claim(MANY)
    assert len(await scene.store.expired(scene.now + LEASE, MANY)) == MANY
    assert len(await scene.store.release(claims, scene.now)) == MANY


async def test_thousands_are_acted_on_buried_and_archived_in_one_call_each(scene: Scene) -> None:
    made = await scene.accept(MANY)
    ids = [one.deliveries[0].delivery_id for one in made]
    assert len((await scene.act(ActionKind.SKIP, *ids)).done) == MANY
    assert len((await scene.act(ActionKind.RETRY, *ids)).done) == MANY
    buried = await scene.store.dead_letter_waiting(scene.endpoint.endpoint_id, "GONE", "gone", scene.now, MANY)
    assert len(buried.delivery_ids) == MANY
    assert len((await scene.store.archive(scene.now + 1, scene.now, MANY)).moves) == MANY
    assert await scene.counts() == {DeliveryState.ARCHIVED: MANY}
