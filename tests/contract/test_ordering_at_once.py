"""The order holds, and no delivery is left behind, however many processes work on the deliveries in parallel."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from uuid import UUID

from doorstep.model.action import Action, ActionKind
from doorstep.model.claim import Claim, Quota, Settlement
from doorstep.model.delivery import OPEN_STATES
from doorstep.model.event import Submission
from doorstep.stores.store import Store
from tests.contract.scene import LEASE, Scene
from tests.support.builders import a_submission, failure, refusal, success
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import count_states, routing_versions

LINES, SENDINGS, BATCH, WORKERS = 3, 25, 3, 2


class Course:
    """Records what happens to the ordering groups while many workers process them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.sent: defaultdict[str, list[UUID]] = defaultdict(list)
        self.tried: defaultdict[str, list[UUID]] = defaultdict(list)
        self.under_way: defaultdict[str, set[UUID]] = defaultdict(set)
        self.sending = 0

    async def send(self, store: Store, line: str) -> None:
        """Send to one group, one call after another, so that the order is known; some calls send several events."""
        self.sending += 1
        version, chance = await routing_versions(store), random.Random(line)
        for _ in range(SENDINGS):
            count = chance.randint(1, BATCH)
            made = [self._made(line) for _ in range(count)]
            self.sent[line] += [one.deliveries[0].delivery_id for one in made]
            await store.accept(made, version, self.scene.now)
        self.sending -= 1

    def _made(self, line: str) -> Submission:
        targets = [self.scene.endpoint.endpoint_id]
        return a_submission(self.scene.org_id, targets, due_at=self.scene.now, ordering_key=line, retries_max=9)

    async def work(self, store: Store, seed: int) -> None:
        chance, idle = random.Random(seed), 0
        while idle < 3:
            claims = await store.claim(
                [Quota(self.scene.endpoint.endpoint_id, 2)], self.scene.now, self.scene.now + LEASE, "w", forced_max=2
            )
            self._begin(claims)
            await self._end(store, claims, chance)
            idle = 0 if claims or self.sending or any(self.under_way.values()) else idle + 1

    def _begin(self, claims: list[Claim]) -> None:
        for claim in claims:
            line = claim.ordering_key or ""
            assert not self.under_way[line], f"two of line {line} are tried at once"
            self.under_way[line].add(claim.delivery_id)
            self.tried[line].append(claim.delivery_id)

    async def _end(self, store: Store, claims: list[Claim], chance: random.Random) -> None:
        for claim in claims:  # before the store learns of it, because from then on the next delivery may begin
            self.under_way[claim.ordering_key or ""].clear()
        await store.settle([self._result(claim, chance) for claim in claims], self.scene.now)

    def _result(self, claim: Claim, chance: random.Random) -> Settlement:
        now = self.scene.now
        match chance.choice(["delivered", "delivered", "retry", "dead"]):
            case "dead":
                return Settlement.dead(claim, refusal(now))
            case "retry":
                return Settlement.retry(claim, failure(now), now, 9)
        return Settlement.delivered(claim, success(now))

    async def interfere(self, store: Store, seed: int) -> None:
        """Skip or cancel waiting deliveries anywhere in the groups."""
        chance = random.Random(seed)
        while self.sending:
            waiting = [one for line in self.sent.values() for one in line[-9:]]
            chosen = tuple(chance.sample(waiting, min(3, len(waiting))))
            kind = chance.choice([ActionKind.SKIP, ActionKind.CANCEL])
            act = Action(kind=kind, org_id=self.scene.org_id, delivery_ids=chosen, actor="ops", at=self.scene.now)
            await store.act(act)


async def test_those_of_a_line_are_tried_one_by_one_in_their_order_and_all_of_them_end(
    scene: Scene, other_store: Store
) -> None:
    course, stores = Course(scene), [scene.store, other_store]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(
            *(course.send(stores[n % 2], f"line {n}") for n in range(LINES)),
            *(course.work(stores[n % 2], n) for n in range(WORKERS)),
        )
    for line, sent in course.sent.items():
        assert list(dict.fromkeys(course.tried[line])) == sent, "each begins after the one before, none is left out"
        assert _never_goes_back(course.tried[line], sent)


async def test_nobody_is_left_behind_when_some_are_taken_out_meanwhile(scene: Scene, other_store: Store) -> None:
    course, stores = Course(scene), [scene.store, other_store]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(
            *(course.send(stores[n % 2], f"line {n}") for n in range(LINES)),
            *(course.work(stores[n % 2], n) for n in range(WORKERS)),
            *(course.interfere(stores[n % 2], n) for n in range(2)),
        )
    tally = await count_states(scene.store)
    assert not any(tally[state] for state in OPEN_STATES), "everything has ended"
    for line, sent in course.sent.items():
        assert _never_goes_back(course.tried[line], sent)


def _never_goes_back(tried: list[UUID], sent: list[UUID]) -> bool:
    places = [sent.index(one) for one in tried]
    return places == sorted(places)
