"""R8.3: one call of a list examines and holds a bounded amount of data, whatever is queried or stored."""

from __future__ import annotations

from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.model.attempt import Code
from doorstep.model.claim import Quota, Settlement
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.model.listing import (
    AttemptFilter,
    CauseGroups,
    Count,
    DeadLetterFilter,
    DeliveryFilter,
    EventFilter,
    InboxFilter,
    RetryQueueFilter,
)
from doorstep.stores.limits import EXAMINED_MAX, INBOX_BYTES_MAX
from tests.contract.scene import Scene
from tests.contract.wanted import all_of, pages_of
from tests.support.builders import a_submission, failure, refusal, success

COMMON, RARE = "user.created", "order.paid"


async def accept_many(scene: Scene, count: int, event_type: str = COMMON) -> None:
    for _ in range(0, count, 500):
        await scene.accept(min(500, count), event_type=event_type)


async def claim_many(scene: Scene, *, die: bool) -> None:
    """Let every waiting delivery fail: permanently with `die`, otherwise temporarily."""
    quota, until = Quota(scene.endpoint.endpoint_id, 500), scene.now + SECOND
    while claims := await scene.store.claim([quota], scene.now, until, "w1"):
        if die:
            await scene.settle(*(Settlement.dead(claim, refusal(scene.now)) for claim in claims))
        else:
            later = scene.now + SECOND
            await scene.settle(*(Settlement.retry(claim, failure(scene.now), later, 3) for claim in claims))


async def deliver_all(scene: Scene) -> None:
    while claims := await scene.claim(500):
        await scene.settle(*(Settlement.delivered(claim, success(scene.now)) for claim in claims))


async def test_a_rare_match_is_found_after_pages_without_any(sql_scene: Scene) -> None:
    """No call reads more than EXAMINED_MAX entries, so the first pages end before the match and are empty."""
    scene, store = sql_scene, sql_scene.store
    await accept_many(scene, 1, RARE)
    await accept_many(scene, EXAMINED_MAX + 500)
    rare = EventFilter(event_type="order.*")
    assert [len(page) for page in await pages_of(store.page, scene.org_id, rare, limit=50)] == [0, 1]
    assert len(await all_of(store.page, scene.org_id, EventFilter(event_type=COMMON), limit=500)) == 2_500
    assert await store.count(scene.org_id, EventFilter(event_type=COMMON), 2_501) == Count(2_500, exact=True)
    assert not (await store.count(scene.org_id, EventFilter(event_type=COMMON), 2_400)).exact

    await claim_many(scene, die=False)
    queue = RetryQueueFilter(event_type=RARE)
    assert [len(page) for page in await pages_of(store.page, scene.org_id, queue, limit=50)] == [1, 0]
    never = RetryQueueFilter(event_type="never")
    assert [len(page) for page in await pages_of(store.page, scene.org_id, never, limit=50)] == [0, 0]
    assert await store.count(scene.org_id, queue) == Count(1, exact=True)
    assert await store.count(scene.org_id, queue, 2_000) == Count(1, exact=False)
    assert await store.count(scene.org_id, RetryQueueFilter(), 2_501) == Count(2_501, exact=True)
    assert await store.count(scene.org_id, RetryQueueFilter(), 2_500) == Count(2_500, exact=False)
    assert await store.count_by_endpoint(scene.org_id, RetryQueueFilter(), 2_000) == {scene.endpoint.endpoint_id: 2_000}

    scene.wait(SECOND)
    await claim_many(scene, die=True)
    letters = DeadLetterFilter(event_type=RARE)
    assert [len(page) for page in await pages_of(store.page, scene.org_id, letters, limit=50)] == [0, 1]
    assert not (await store.count(scene.org_id, letters, 2_000)).exact
    assert await store.count_by_endpoint(scene.org_id, DeadLetterFilter(), 2_000) == {scene.endpoint.endpoint_id: 2_000}
    (group,) = await all_of(store.page, scene.org_id, CauseGroups(filter=DeadLetterFilter()), limit=50)
    assert group.count == Count(2_501, exact=True)


async def test_every_filter_of_deliveries_and_attempts_finds_its_match_behind_thousands_of_others(
    sql_scene: Scene,
) -> None:
    """Each filter has an index, so the first page has the match although all other entries come before it."""
    scene, store = sql_scene, sql_scene.store
    common, small = scene.endpoint, await scene.add_endpoint()
    scene.endpoint = small
    await scene.accept(1, event_type=RARE)
    await scene.kill(*await scene.claim(1))
    scene.endpoint = common
    await accept_many(scene, EXAMINED_MAX + 500)
    scene.wait(SECOND)
    await deliver_all(scene)
    dead = DeliveryState.DEAD
    for deliveries in (
        DeliveryFilter(endpoint_id=small.endpoint_id),
        DeliveryFilter(endpoint_id=small.endpoint_id, state=dead),
        DeliveryFilter(state=dead),
        DeliveryFilter(event_type=RARE),
        DeliveryFilter(code=Code.NOT_FOUND),
    ):
        assert [len(page) for page in await pages_of(store.page, scene.org_id, deliveries, limit=50)] == [1], deliveries
    for attempts in (
        AttemptFilter(endpoint_id=small.endpoint_id),
        AttemptFilter(succeeded=False),
        AttemptFilter(event_type=RARE),
        AttemptFilter(code=Code.NOT_FOUND),
    ):
        assert [len(page) for page in await pages_of(store.page, scene.org_id, attempts, limit=50)] == [1], attempts
    prefix = DeliveryFilter(event_type="order.*")
    assert [len(page) for page in await pages_of(store.page, scene.org_id, prefix, limit=50)] == [0, 1]


async def test_the_few_letters_of_one_endpoint_or_cause_are_found_at_once_among_those_of_others(
    sql_scene: Scene,
) -> None:
    """Endpoint and cause each have an index, so other dead letters are not examined and counts stay exact."""
    scene, store = sql_scene, sql_scene.store
    common, small = scene.endpoint, await scene.add_endpoint()
    scene.endpoint = small
    await scene.accept(2)
    await scene.kill(*await scene.claim(2))
    scene.endpoint = common
    scene.wait(SECOND)
    await accept_many(scene, EXAMINED_MAX + 500)
    await claim_many(scene, die=True)

    mine = DeadLetterFilter(endpoint_id=small.endpoint_id)
    (page,) = await pages_of(store.page, scene.org_id, mine, limit=50)
    assert [letter.endpoint_id for letter in page] == [small.endpoint_id] * 2
    cause = DeadLetterFilter(cause=page[0].cause)
    for wanted in (mine, cause, replace(mine, cause=page[0].cause), replace(mine, event_type=COMMON)):
        assert await pages_of(store.page, scene.org_id, wanted, limit=50) == [page]
        assert await store.count(scene.org_id, wanted, 100) == Count(2, exact=True)
    assert await pages_of(store.page, scene.org_id, replace(mine, event_type="never"), limit=50) == [()]

    await store.archive(scene.now + SECOND, scene.now, 10_000)
    (archived,) = await pages_of(store.page, scene.org_id, replace(mine, archived=True), limit=50)
    assert [letter.delivery_id for letter in archived] == [letter.delivery_id for letter in page]


async def test_a_page_of_the_inbox_ends_when_its_payloads_have_become_long(scene: Scene) -> None:
    long = b'"' + b"x" * (INBOX_BYTES_MAX // 2) + b'"'
    made = [a_submission(scene.org_id, payload=payload) for payload in (long, b"1", long, b"2", b"3")]
    await scene.submit(*made)
    pages = await pages_of(scene.store.page, scene.org_id, InboxFilter(status=EventStatus.RECEIVED), limit=50)
    assert [[view.event.payload for view in page] for page in pages] == [[long, b"1", long], [b"2", b"3"]]


async def test_hundreds_of_causes_are_gone_through_and_one_endpoints_own_is_found_among_them(sql_scene: Scene) -> None:
    scene, store = sql_scene, sql_scene.store
    second = await scene.add_endpoint()
    await scene.accept(300)
    words = (f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(300))
    dying = [
        Settlement.dead(claim, refusal(scene.now, reason=f"no {word}"))
        for claim, word in zip(await scene.claim(300), words)
    ]
    await scene.settle(*dying)
    scene.endpoint = second
    await scene.accept()
    await scene.kill(await scene.claim_one())

    groups = await all_of(store.page, scene.org_id, CauseGroups(filter=DeadLetterFilter()), limit=50)
    assert len({group.cause for group in groups}) == len(groups) == 301
    assert {group.count for group in groups} == {Count(1, exact=True)}
    mine = DeadLetterFilter(endpoint_id=second.endpoint_id)
    assert [
        group.endpoint_id for group in await all_of(store.page, scene.org_id, CauseGroups(filter=mine), limit=50)
    ] == [second.endpoint_id]
