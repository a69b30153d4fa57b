"""Deliveries of one endpoint and ordering key are tried in order of acceptance, each after the last has ended."""

from __future__ import annotations

from uuid import UUID

import pytest

from doorstep.clock import SECOND
from doorstep.model.action import ActionKind
from doorstep.model.claim import Quota
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventView, Submission
from tests.contract.scene import SOON, Scene
from tests.support.builders import a_submission


async def accept(scene: Scene, count: int = 1, key: str | None = "a", **fields: object) -> list[UUID]:
    """Accept events with one delivery each; return the delivery ids."""
    return [_id(one) for one in await scene.accept(count, (), ordering_key=key, created_at=scene.now, **fields)]


def _id(submission: Submission) -> UUID:
    return submission.deliveries[0].delivery_id


async def claimed(scene: Scene) -> list[UUID]:
    return [claim.delivery_id for claim in await scene.claim()]


async def blocked(scene: Scene, *delivery_ids: UUID) -> list[bool]:
    return [(await scene.delivery(delivery_id)).blocked for delivery_id in delivery_ids]


async def test_only_the_first_of_a_line_can_be_claimed(scene: Scene) -> None:
    first, second, third = await accept(scene, 3)
    assert await blocked(scene, first, second, third) == [False, True, True]
    assert await claimed(scene) == [first]
    scene.wait(10**6 * SECOND)
    assert await claimed(scene) == []


async def test_each_goes_when_the_one_before_is_delivered_whichever_call_brought_them(scene: Scene) -> None:
    expected = [*await accept(scene), *await accept(scene, 2), *await accept(scene)]
    seen = []
    while claims := await scene.claim():
        seen += [claim.delivery_id for claim in claims]
        scene.wait(SECOND)
        await scene.deliver(*claims)
    assert seen == expected


async def test_a_claim_tells_its_ordering_key_also_when_its_lease_has_ended(scene: Scene) -> None:
    await accept(scene, key="Ключ ' \" 1")
    await accept(scene, key=None)
    keys = {claim.ordering_key for claim in await scene.claim()}
    assert keys == {"Ключ ' \" 1", None}
    assert {claim.ordering_key for claim in await scene.store.expired(scene.now + 10**9, 10)} == keys


async def test_what_fails_and_is_retried_holds_up_those_behind_it(scene: Scene) -> None:
    first, second = await accept(scene, 2)
    await scene.fail(*await scene.claim())
    assert await claimed(scene) == []
    scene.wait(SOON)
    claims = await scene.claim()
    assert [claim.delivery_id for claim in claims] == [first]
    await scene.store.release(claims, scene.now)
    claims = await scene.claim()
    assert [claim.delivery_id for claim in claims] == [first]
    await scene.deliver(*claims)
    assert await claimed(scene) == [second]


async def test_a_dead_letter_lets_those_behind_it_go(scene: Scene) -> None:
    _, second = await accept(scene, 2)
    await scene.kill(*await scene.claim())
    assert await claimed(scene) == [second]


async def test_a_late_result_lets_nobody_go(scene: Scene) -> None:
    _, second = await accept(scene, 2)
    (late,) = await scene.claim()
    await scene.store.release([late], scene.now)
    await scene.claim()
    await scene.deliver(late)
    assert await blocked(scene, second) == [True]


@pytest.mark.parametrize("kind", [ActionKind.SKIP, ActionKind.CANCEL])
async def test_skipping_or_cancelling_lets_the_next_go(scene: Scene, kind: ActionKind) -> None:
    first, second, third = await accept(scene, 3)
    await scene.act(kind, first)
    assert await blocked(scene, second, third) == [False, True]
    assert await claimed(scene) == [second]


async def test_one_taken_out_of_the_middle_lets_nobody_go(scene: Scene) -> None:
    _, second, third = await accept(scene, 3)
    await scene.act(ActionKind.SKIP, second)
    assert await blocked(scene, second, third) == [False, True]
    await scene.deliver(*await scene.claim())
    assert await claimed(scene) == [third]


async def test_burying_and_expiring_let_the_next_go(scene: Scene) -> None:
    await accept(scene, 2)
    third, fourth = await accept(scene, 1, expires_at=scene.now + SECOND), await accept(scene)
    await scene.store.dead_letter_waiting(scene.endpoint.endpoint_id, "GONE", "gone", scene.now, 2)
    assert await blocked(scene, *third, *fourth) == [False, True]
    scene.wait(2 * SECOND)
    await scene.store.expire("EXPIRED", "too late", 0, scene.now, 10)
    assert await claimed(scene) == fourth


async def test_deleting_an_event_lets_the_next_go(scene: Scene) -> None:
    (first,) = await scene.accept(ordering_key="a")
    (second,) = await accept(scene)
    await scene.store.delete_event(scene.org_id, first.event.event_id, "ops", scene.now)
    assert await claimed(scene) == [second]


async def test_other_keys_and_events_without_one_go_their_own_ways(scene: Scene) -> None:
    first, _ = await accept(scene, 2)
    others = [*await accept(scene, key="b"), *await accept(scene, 2, key=None), *await accept(scene, key="A")]
    assert sorted(await claimed(scene)) == sorted([first, *others])


async def test_each_endpoint_has_lines_of_its_own(scene: Scene) -> None:
    other = await scene.add_endpoint()
    submissions = await scene.accept(2, [scene.endpoint, other], ordering_key="a")
    mine, theirs = ([one.deliveries[place].delivery_id for one in submissions] for place in (0, 1))
    await scene.deliver(*await scene.claim())
    assert await blocked(scene, *mine, *theirs) == [False, False, False, True]
    assert await claimed(scene) == [mine[1]]
    assert await _claim_of(scene, other) == [theirs[0]]


async def _claim_of(scene: Scene, endpoint: Endpoint) -> list[UUID]:
    claims = await scene.store.claim([Quota(endpoint.endpoint_id, 9)], scene.now, scene.now + SECOND, "w1")
    return [claim.delivery_id for claim in claims]


async def test_its_own_time_counts_when_its_turn_comes(scene: Scene) -> None:
    at = scene.now + 60 * SECOND
    _, second = [*await accept(scene), *await accept(scene, deliver_at=at, due_at=at)]
    await scene.deliver(*await scene.claim())
    assert (await scene.delivery(second)).due_at == at
    assert await claimed(scene) == []
    scene.wait(60 * SECOND)
    assert await claimed(scene) == [second]


async def test_one_that_is_to_go_later_holds_up_those_behind_it(scene: Scene) -> None:
    at = scene.now + 60 * SECOND
    await accept(scene, deliver_at=at, due_at=at)
    await accept(scene)
    assert await claimed(scene) == []


async def test_a_time_that_has_passed_meanwhile_is_now(scene: Scene) -> None:
    at = scene.now + 2 * SECOND
    _, second = [*await accept(scene), *await accept(scene, deliver_at=at, due_at=at)]
    claims = await scene.claim()
    scene.wait(9 * SECOND)
    await scene.deliver(*claims)
    assert (await scene.delivery(second)).due_at == scene.now


# -- how blocked deliveries appear -------------------------------------------------------------------------


async def test_a_blocked_delivery_has_no_time_and_no_lane(scene: Scene) -> None:
    _, second = await accept(scene, 2)
    await scene.claim()
    assert (await scene.delivery(second)).due_at is None
    assert await scene.store.due_lanes(scene.now) == []
    assert (
        await scene.store.get(EventView, scene.org_id, (await scene.delivery(second)).event_id)
    ).next_retry_at is None


async def test_a_lane_tells_the_first_that_may_go(scene: Scene) -> None:
    await accept(scene, 2)
    await scene.claim()
    await accept(scene, key=None, due_at=scene.now + 7)
    assert [lane.due_at for lane in await scene.store.due_lanes(scene.now)] == [scene.now + 7]


# -- operators ---------------------------------------------------------------------------------------------


async def test_an_operators_retry_of_a_blocked_delivery_does_not_break_the_order(scene: Scene) -> None:
    at = scene.now + 60 * SECOND
    _, second = [*await accept(scene), *await accept(scene, deliver_at=at, due_at=at)]
    assert (await scene.act(ActionKind.RETRY, second)).done == (second,)
    assert await blocked(scene, second) == [True]
    forced = await scene.store.claim([], scene.now, scene.now + SECOND, "w1", 10)
    assert forced == []
    await scene.deliver(*await scene.claim())
    forced = await scene.store.claim([], scene.now, scene.now + SECOND, "w1", 10)
    assert [claim.delivery_id for claim in forced] == [second]


async def test_a_retried_dead_letter_is_due_whatever_has_overtaken_it(scene: Scene) -> None:
    first, _, third = await accept(scene, 3)
    await scene.kill(*await scene.claim())
    (under_way,) = await scene.claim()
    await scene.act(ActionKind.RETRY, first, revive_at=scene.now)
    assert await claimed(scene) == [first]
    await scene.deliver(under_way)
    assert await blocked(scene, third) == [True]


async def test_one_retried_after_being_skipped_does_not_hold_up_those_before_it(scene: Scene) -> None:
    first, second, third, fourth = await accept(scene, 4)
    await scene.act(ActionKind.SKIP, third)
    await scene.act(ActionKind.RETRY, third, revive_at=scene.now)
    claims = {claim.delivery_id: claim for claim in await scene.claim()}
    assert set(claims) == {first, third}
    await scene.deliver(claims[first])
    assert await blocked(scene, second, fourth) == [False, True]
    await scene.deliver(claims[third])
    assert await blocked(scene, fourth) == [True]
    await scene.deliver(*await scene.claim())
    assert await claimed(scene) == [fourth]


# -- batches and concurrency -------------------------------------------------------------------------------


async def test_a_repeated_call_blocks_nothing_that_is_under_way(scene: Scene) -> None:
    """The answer of the first call was lost. An operator has retried an earlier delivery before the second call."""
    first, second = (a_submission(scene.org_id, [scene.endpoint.endpoint_id], ordering_key="a") for _ in range(2))
    await scene.submit(first, second)
    await scene.kill(*await scene.claim())
    (claim,) = await scene.claim()
    await scene.act(ActionKind.RETRY, _id(first), revive_at=scene.now)
    third = a_submission(scene.org_id, [scene.endpoint.endpoint_id], ordering_key="a")
    await scene.submit(first, second, third)
    assert await blocked(scene, _id(first), _id(second), _id(third)) == [False, False, True]
    assert (await scene.delivery(_id(second))).due_at == claim.lease_until


async def test_a_repeated_event_that_has_ended_holds_up_nobody(scene: Scene) -> None:
    first, second = (a_submission(scene.org_id, [scene.endpoint.endpoint_id], ordering_key="a") for _ in range(2))
    await scene.submit(first)
    await scene.deliver(*await scene.claim())
    await scene.submit(first, second)
    assert await claimed(scene) == [_id(second)]


async def test_many_lines_move_on_in_one_call(scene: Scene) -> None:
    names = [f"line {n}" for n in range(700)]
    endpoint_ids = [scene.endpoint.endpoint_id]
    made = [a_submission(scene.org_id, endpoint_ids, ordering_key=name, due_at=scene.now) for name in names * 2]
    await scene.submit(*made)
    claims = await scene.claim(2_000)
    assert [claim.delivery_id for claim in claims] == [_id(one) for one in made[:700]]
    await scene.deliver(*claims)
    assert len(await scene.claim(2_000)) == 700
