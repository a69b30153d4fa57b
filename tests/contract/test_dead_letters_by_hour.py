"""R7.4: how many dead letters a cause produced in each hour."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.model.action import ActionKind
from doorstep.model.claim import Settlement
from doorstep.model.listing import DeadLetterFilter
from doorstep.model.rollup import HOUR
from doorstep.stores import limits
from tests.contract.places import Place
from tests.contract.scene import Scene
from tests.support.builders import refusal

REASONS = {"a": "no such page", "b": "no such user"}


async def die(scene: Scene, count: int, of: str = "a") -> int:
    """Create dead letters now; return their cause."""
    await scene.accept(count)
    claims = await scene.claim(count)
    await scene.settle(*(Settlement.dead(claim, replace(refusal(scene.now), reason=REASONS[of])) for claim in claims))
    cause = (await scene.delivery(claims[0].delivery_id)).cause
    assert cause is not None
    return cause


async def test_deaths_are_told_by_cause_and_hour_from_the_oldest_to_the_newest(scene: Scene) -> None:
    since = scene.now
    a = await die(scene, 2)
    scene.wait(HOUR - SECOND)
    await die(scene, 1)
    b = await die(scene, 1, "b")
    scene.wait(SECOND)
    await die(scene, 4)
    scene.wait(3 * HOUR)
    await die(scene, 5)
    found = await scene.store.dead_letters_by_hour(scene.org_id, [a, b, 12345], since, 4)
    assert found == {a: (3, 4, 0, 0), b: (1, 0, 0, 0), 12345: (0, 0, 0, 0)}
    assert await scene.store.dead_letters_by_hour(scene.org_id, [a], since + HOUR, 4) == {a: (4, 0, 0, 5)}
    assert await scene.store.dead_letters_by_hour(scene.org_id, [], since, 4) == {}


async def test_only_what_is_still_dead_and_of_the_organization_counts(scene: Scene) -> None:
    since = scene.now
    other = await Scene(scene.store).prepare()
    other.endpoint = scene.endpoint
    cause = await die(scene, 5)
    letters = (await scene.store.page(scene.org_id, DeadLetterFilter())).items
    for kind, letter in zip((ActionKind.RETRY, ActionKind.RESOLVE, ActionKind.DELETE), letters):
        await scene.act(kind, letter.delivery_id)
    assert await scene.store.dead_letters_by_hour(scene.org_id, [cause], since, 1) == {cause: (2,)}
    assert await scene.store.dead_letters_by_hour(other.org_id, [cause], since, 1) == {cause: (0,)}
    await scene.store.archive(scene.now + 1, scene.now, 1)
    assert await scene.store.dead_letters_by_hour(scene.org_id, [cause], since, 1) == {cause: (1,)}


async def test_a_crowded_hour_is_counted_no_further_than_its_part(
    scene: Scene, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place.name == "dynamodb":
        pytest.skip("DynamoDB counts the newest dead letters of all causes and hours together")
    since = scene.now
    for module in ("tests.reference.lists", "doorstep.stores.sql.queries.dead_letters"):
        monkeypatch.setattr(f"{module}.DEAD_LETTERS_COUNTED_MAX", 12)
    assert limits.DEAD_LETTERS_COUNTED_MAX > 12
    cause = await die(scene, 9)
    scene.wait(HOUR)
    await die(scene, 3)
    assert await scene.store.dead_letters_by_hour(scene.org_id, [cause], since, 2) == {cause: (6, 3)}
    assert await scene.store.dead_letters_by_hour(scene.org_id, [cause, 1], since, 2) == {cause: (3, 3), 1: (0, 0)}
