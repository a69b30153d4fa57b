"""R5.4: however many processes share a store, nothing is lost, duplicated or miscounted, and nobody waits forever."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

from doorstep.clock import SECOND
from doorstep.model.action import Action, ActionKind
from doorstep.model.claim import Claim, Quota, Settlement
from doorstep.model.delivery import DEAD_STATES, DONE_STATES, OPEN_STATES, Delivery
from doorstep.model.event import EventStatus, EventView, status_of
from doorstep.model.listing import DeliveryAttempts, EventDeliveries
from doorstep.stores.store import Store
from tests.contract.scene import LEASE, Scene
from tests.support.builders import failure, refusal, success
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import count_states

WORKERS, ROUNDS, EVENTS = 4, 12, 60


class Shift:
    """One worker's random share of the work: claims, settles, releases, and lets an operator interfere."""

    def __init__(self, scene: Scene, store: Store, seed: int, quotas: list[Quota], ids: list[UUID]) -> None:
        self._scene, self._store, self._quotas, self._ids = scene, store, quotas, ids
        self._chance = random.Random(seed)
        self.settled: list[tuple[UUID, int]] = []

    async def work(self) -> None:
        for _ in range(ROUNDS):
            now = self._scene.now
            claims = await self._store.claim(self._quotas, now, now + LEASE, "w", forced_max=2)
            await self._settle(claims)
            await self._act()

    async def _settle(self, claims: list[Claim]) -> None:
        back = [claim for claim in claims if self._chance.random() < 0.2]
        await self._store.release(back, self._scene.now)
        tried = [claim for claim in claims if claim not in back]
        self._chance.shuffle(tried)
        settled = await self._store.settle([self._result(claim) for claim in tried], self._scene.now)
        assert settled.late == (), "nobody else held these"
        self.settled += [(claim.delivery_id, claim.token) for claim in tried]

    def _result(self, claim: Claim) -> Settlement:
        now = self._scene.now
        match self._chance.choice(["delivered", "retry", "dead"]):
            case "delivered":
                return Settlement.delivered(claim, success(now))
            case "dead":
                return Settlement.dead(claim, refusal(now))
        return Settlement.retry(claim, failure(now), now, 3)

    async def _act(self) -> None:
        kind = self._chance.choice(list(ActionKind))
        ids = tuple(self._chance.sample(self._ids, 5))
        now = self._scene.now
        await self._store.act(Action(kind=kind, org_id=self._scene.org_id, delivery_ids=ids, actor="ops", at=now))


async def test_after_any_amount_of_work_at_once_every_count_and_status_is_true(
    scene: Scene, other_store: Store
) -> None:
    other = await scene.add_endpoint()
    made = await scene.accept(EVENTS, endpoints=[scene.endpoint, other], retries_max=9)
    ids = [delivery.delivery_id for one in made for delivery in one.deliveries]
    quotas = [Quota(one.endpoint_id, 6) for one in (scene.endpoint, other)]
    everything = [Quota(quota.endpoint_id, EVENTS) for quota in quotas]
    await scene.store.release(
        await scene.store.claim(everything, scene.now, scene.now + LEASE, "w"), scene.now
    )  # so that every event has been picked up
    stores = [scene.store, other_store] * (WORKERS // 2)
    shifts = [Shift(scene, store, seed, quotas, ids) for seed, store in enumerate(stores)]

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(shift.work() for shift in shifts))

    settled = [pair for shift in shifts for pair in shift.settled]
    assert len(settled) == len(set(settled)), "no claim was held by two"
    assert sum((await count_states(scene.store)).values()) == len(ids), "none lost, none doubled"
    logged = 0
    for one in made:
        deliveries = await scene.store.find(scene.org_id, EventDeliveries(event_id=one.event.event_id))
        view = await scene.store.get(EventView, scene.org_id, one.event.event_id)
        assert view.status is _status(deliveries)
        logged += sum(
            [
                len(await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=delivery.delivery_id)))
                for delivery in deliveries
            ]
        )
    assert logged == len(settled), "one row for every attempt"


async def test_acts_on_the_same_deliveries_in_opposite_orders_do_not_block_each_other(
    scene: Scene, other_store: Store
) -> None:
    made = await scene.accept(100)
    ids = [one.deliveries[0].delivery_id for one in made]

    async def toggle(store: Store, order: list[UUID]) -> None:
        for kind in (ActionKind.SKIP, ActionKind.RETRY) * 3:
            act = Action(
                kind=kind,
                org_id=scene.org_id,
                delivery_ids=tuple(order),
                actor="ops",
                at=scene.now,
                revive_at=scene.now + SECOND,
            )
            await store.act(act)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(toggle(store, ids[::step]) for store in (scene.store, other_store) for step in (1, -1)))
    assert sum((await count_states(scene.store)).values()) == 100


def _status(deliveries: list[Delivery]) -> EventStatus:
    states = [delivery.state for delivery in deliveries]
    return status_of(
        open_count=sum(state in OPEN_STATES for state in states),
        dead_count=sum(state in DEAD_STATES for state in states),
        done_count=sum(state in DONE_STATES for state in states),
        picked_up=True,
    )
