"""R8.1: events are found by correlation id, keys, endpoint, declared values and short id, in the order of the list."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import DAY, SECOND
from doorstep.model.claim import Quota, Settlement
from doorstep.model.event import EventStatus, EventView, Submission
from doorstep.model.listing import Count, EventBodies, EventFilter, ShortIds
from doorstep.model.record import short_id_ranges, uuid7
from doorstep.stores.limits import EXAMINED_MAX, INBOX_BYTES_MAX
from doorstep.stores.sql.queries import events
from doorstep.stores.store import Retention
from tests.contract.scene import Scene
from tests.contract.wanted import all_of, pages_of
from tests.support.builders import a_submission, an_org, failure
from tests.support.shortcuts import put


async def accept_all(scene: Scene) -> list[Submission]:
    """Events that differ in everything that can be filtered by, oldest first."""
    second = await scene.add_endpoint()
    made = []
    for n, (correlation, ordering, values) in enumerate(product(("c1", "c2"), (None, "o"), ((), (1,), (1, -2)))):
        scene.wait(1)
        one = a_submission(
            scene.org_id,
            [(scene.endpoint, second)[n % 2].endpoint_id],
            key=f"k{n}",
            event_id=uuid7(scene.now),
            created_at=scene.now,
            event_type=("user.created", "order.paid")[n % 3 == 0],
            correlation_id=correlation,
            ordering_key=ordering,
        )
        made.append(replace(one, search_keys=values))
    await scene.submit(*made)
    return made


def filters(endpoint_id: UUID) -> Iterator[EventFilter]:
    """The filters that every store offers come first: where one is not offered, the case ends."""
    values, keys = ((), (1,), (1, -2), (-2, 9)), (None, "k4", "k99")
    for value, endpoint, correlation, ordering, key in product(
        values, (None, endpoint_id), (None, "c1"), (None, "o"), keys
    ):
        wanted = EventFilter(
            correlation_id=correlation,
            ordering_key=ordering,
            search_keys=value,
            endpoint_id=endpoint,
            idempotency_key=key,
        )
        yield wanted
        yield replace(wanted, event_type="order.*", status=EventStatus.RECEIVED, oldest_first=True)


def is_wanted(one: Submission, wanted: EventFilter) -> bool:
    return (
        wanted.correlation_id in (None, one.event.correlation_id)
        and wanted.ordering_key in (None, one.event.ordering_key)
        and wanted.idempotency_key in (None, one.idempotency_key)
        and set(wanted.search_keys) <= set(one.search_keys)
        and (wanted.endpoint_id is None or wanted.endpoint_id in [owed.endpoint_id for owed in one.deliveries])
        and (wanted.event_type is None or one.event.event_type == "order.paid")
    )


async def test_every_combination_of_filters_lists_exactly_the_events_that_match_all_of_them(scene: Scene) -> None:
    made, page = await accept_all(scene), scene.store.page
    for wanted in filters(scene.endpoint.endpoint_id):
        expected = [one.event.event_id for one in made if is_wanted(one, wanted)][:: 1 if wanted.oldest_first else -1]
        found = await all_of(page, scene.org_id, wanted, limit=2)
        assert [one.event_id for one in found] == expected, wanted
        bodies = await all_of(page, scene.org_id, EventBodies(filter=wanted), limit=2)
        assert [one.event_id for one in bodies] == expected, wanted
        assert await scene.store.count(scene.org_id, wanted) == Count(len(expected), exact=True), wanted


async def test_nothing_of_another_organization_is_found(scene: Scene) -> None:
    (made, *_) = await accept_all(scene)
    stranger = an_org()
    await put(scene.store, stranger)
    event_id = made.event.event_id
    for wanted in filters(scene.endpoint.endpoint_id):
        assert (await scene.store.page(stranger.org_id, wanted)).items == ()
        assert (await scene.store.page(stranger.org_id, EventBodies(filter=wanted))).items == ()
    for kind, item_id in (("event", event_id), ("delivery", made.deliveries[0].delivery_id)):
        query = ending(kind, item_id, scene)
        assert await scene.store.find(scene.org_id, query) == [item_id]
        assert await scene.store.find(stranger.org_id, query) == []


@pytest.mark.parametrize("examined_max", [EXAMINED_MAX, 2])
async def test_events_of_an_endpoint_are_listed_alike_whether_it_has_few_or_many(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, examined_max: int
) -> None:
    monkeypatch.setattr(events, "EXAMINED_MAX", examined_max)
    made = await accept_all(scene)
    for endpoint_id in (made[0].deliveries[0].endpoint_id, made[1].deliveries[0].endpoint_id):
        for wanted in (
            EventFilter(endpoint_id=endpoint_id),
            EventFilter(endpoint_id=endpoint_id, event_type="order.*"),
        ):
            expected = [one.event.event_id for one in reversed(made) if is_wanted(one, wanted)]
            found = await all_of(scene.store.page, scene.org_id, wanted, limit=2)
            assert [one.event_id for one in found] == expected
            assert await scene.store.count(scene.org_id, wanted) == Count(len(expected), exact=True)


@pytest.mark.parametrize("name", ["correlation_id", "ordering_key", "search_keys", "endpoint_id"])
async def test_a_rare_event_is_found_at_once_among_many_others(sql_scene: Scene, name: str) -> None:
    """Each of these filters has an index, so other events are not examined, and the count stays exact."""
    endpoint_id = sql_scene.endpoint.endpoint_id
    value = {"correlation_id": "rare", "ordering_key": "rare", "search_keys": (7,), "endpoint_id": endpoint_id}[name]
    rare = a_submission(sql_scene.org_id, [endpoint_id], event_id=uuid7(sql_scene.now))
    if name == "search_keys":
        rare = replace(rare, search_keys=(7, 8))
    elif name != "endpoint_id":
        rare = replace(rare, event=replace(rare.event, **{name: value}))
    await sql_scene.submit(rare)
    for _ in range(0, EXAMINED_MAX + 500, 500):
        sql_scene.wait(1)
        await sql_scene.submit(*(a_submission(sql_scene.org_id, event_id=uuid7(sql_scene.now)) for _ in range(500)))
    wanted = EventFilter(**{name: value})  # type: ignore[arg-type]
    ((found,),) = await pages_of(sql_scene.store.page, sql_scene.org_id, wanted, limit=50)
    assert found.event_id == rare.event.event_id
    assert await sql_scene.store.count(sql_scene.org_id, wanted, 100) == Count(1, exact=True)


@pytest.mark.parametrize("event_type", [None, "order.paid", "order.*"])
@pytest.mark.parametrize("status", [EventStatus.QUEUED, EventStatus.RECEIVED])
async def test_the_few_events_that_wait_are_found_at_once_among_many_others(
    sql_scene: Scene, status: EventStatus, event_type: str | None
) -> None:
    """The oldest events wait: one with a delivery and, if it is received, one in the inbox. The others are delivered."""
    slow = await sql_scene.add_endpoint()
    made = [_old(sql_scene, slow.endpoint_id)]
    if status is EventStatus.RECEIVED:
        made.append(_old(sql_scene))
    await sql_scene.submit(*made)
    if status is EventStatus.QUEUED:
        await sql_scene.store.claim([Quota(slow.endpoint_id, 1)], sql_scene.now, sql_scene.now + DAY, "slow")
    for _ in range(0, EXAMINED_MAX + 500, 500):
        sql_scene.wait(1)
        targets = [sql_scene.endpoint.endpoint_id]
        others = [
            a_submission(sql_scene.org_id, targets, event_id=uuid7(sql_scene.now), due_at=sql_scene.now)
            for _ in range(500)
        ]
        await sql_scene.submit(*others)
        await sql_scene.deliver(*await sql_scene.claim(500))
    wanted = EventFilter(status=status, event_type=event_type)
    (found,) = await pages_of(sql_scene.store.page, sql_scene.org_id, wanted, limit=50)
    assert {one.event_id for one in found} == {one.event.event_id for one in made}
    assert await sql_scene.store.count(sql_scene.org_id, wanted, 100) == Count(len(made), exact=True)


async def test_the_few_received_events_are_found_at_once_although_thousands_wait_for_a_retry(sql_scene: Scene) -> None:
    """A received event has no delivery that failed. The index of such deliveries does not contain those that did."""
    scene, quiet = sql_scene, await sql_scene.add_endpoint()
    made = [_old(scene, quiet.endpoint_id), _old(scene)]
    await scene.submit(*made)
    for _ in range(0, EXAMINED_MAX + 500, 500):
        scene.wait(1)
        await scene.accept(500)
        claims = await scene.claim(500)
        await scene.settle(*(Settlement.retry(one, failure(scene.now), scene.now + DAY, 3) for one in claims))
    wanted = EventFilter(status=EventStatus.RECEIVED)
    (found,) = await pages_of(scene.store.page, scene.org_id, wanted, limit=50)
    assert {one.event_id for one in found} == {one.event.event_id for one in made}
    assert await scene.store.count(scene.org_id, wanted, 100) == Count(2, exact=True)


def _old(scene: Scene, *endpoint_ids: UUID) -> Submission:
    fields = {"event_id": uuid7(scene.now), "event_type": "order.paid"}
    return a_submission(scene.org_id, endpoint_ids, due_at=scene.now, **fields)


@pytest.mark.parametrize("examined_max", [EXAMINED_MAX, 1])
@pytest.mark.parametrize("status", EventStatus)
async def test_events_of_a_status_are_listed_alike_whether_they_are_few_or_many(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, examined_max: int, status: EventStatus
) -> None:
    monkeypatch.setattr(events, "EXAMINED_MAX", examined_max)
    made = await accept_all(scene)
    await scene.deliver(*(await scene.claim(4))[:2])
    all_events = [await scene.store.get(EventView, scene.org_id, one.event.event_id) for one in reversed(made)]
    expected = [one.event.event_id for one in all_events if one.status is status]
    found = await all_of(scene.store.page, scene.org_id, EventFilter(status=status), limit=2)
    assert [one.event_id for one in found] == expected


async def test_the_values_of_a_deleted_or_removed_event_are_erased_with_it(sql_scene: Scene) -> None:
    scene, wanted = sql_scene, EventFilter(search_keys=(1,))
    made = [replace(a_submission(scene.org_id), search_keys=(1, 2)) for _ in range(2)]
    await scene.submit(*made)
    await scene.store.delete_event(scene.org_id, made[0].event.event_id, "ops", scene.now)
    assert [one.event_id for one in (await scene.store.page(scene.org_id, wanted)).items] == [made[1].event.event_id]
    assert await scene.store.count(scene.org_id, wanted) == Count(1, exact=True)
    scene.wait(DAY)
    await scene.store.clean(Retention(inbox_before=scene.now), scene.now, 100)
    assert await scene.store.count(scene.org_id, wanted) == Count(0, exact=True)


async def test_a_repeated_call_adds_no_values(scene: Scene) -> None:
    made = replace(a_submission(scene.org_id), search_keys=(1,))
    await scene.submit(made)
    await scene.submit(replace(made, search_keys=(1, 2)))
    assert len((await scene.store.page(scene.org_id, EventFilter(search_keys=(1,)))).items) == 1
    assert (await scene.store.page(scene.org_id, EventFilter(search_keys=(2,)))).items == ()


async def test_a_page_of_contents_ends_when_its_payloads_have_become_long(scene: Scene) -> None:
    long = b'"' + b"x" * (INBOX_BYTES_MAX // 2) + b'"'
    made = []
    for payload in (b"3", b"2", long, b"1", long):
        scene.wait(1)
        made.append(a_submission(scene.org_id, payload=payload, event_id=uuid7(scene.now)))
    await scene.submit(*made)
    pages = await pages_of(scene.store.page, scene.org_id, EventBodies(), limit=50)
    assert [[one.payload for one in page] for page in pages] == [[long, b"1", long], [b"2", b"3"]]


# -- short ids ---------------------------------------------------------------------------------------------


def ending(kind: str, item_id: UUID, scene: Scene, ranges_max: int = 20) -> ShortIds:
    tail = item_id.int & 0xFFFF_FFFF
    ranges = short_id_ranges(tail, scene.now, ranges_max)
    return ShortIds(kind=kind, tail=tail, ranges=ranges, limit=10)  # type: ignore[arg-type]


async def test_an_event_and_a_delivery_of_any_age_are_found_by_the_end_of_their_id(scene: Scene) -> None:
    ids: list[tuple[str, UUID]] = []
    for _ in range(8):
        made = a_submission(scene.org_id, [scene.endpoint.endpoint_id], event_id=uuid7(scene.now))
        owed = replace(made.deliveries[0], delivery_id=uuid7(scene.now))
        await scene.submit(replace(made, deliveries=(owed,)))
        ids += [("event", made.event.event_id), ("delivery", owed.delivery_id)]
        scene.wait(29 * 3_600 * SECOND)
    for kind, item_id in ids:
        assert await scene.store.find(scene.org_id, ending(kind, item_id, scene)) == [item_id]
    assert await scene.store.find(scene.org_id, ending("event", ids[0][1], scene, ranges_max=1)) == []
    assert await scene.store.find(scene.org_id, ending("event", uuid7(scene.now), scene)) == []


async def test_several_events_with_the_same_short_id_are_all_found_newest_first(scene: Scene) -> None:
    first = uuid7(scene.now)
    twins = [first, UUID(int=first.int + (1 << 40)), UUID(int=first.int + (1 << 70))]
    await scene.submit(*(a_submission(scene.org_id, event_id=one) for one in twins))
    assert await scene.store.find(scene.org_id, ending("event", first, scene)) == sorted(twins, reverse=True)
    assert len(await scene.store.find(scene.org_id, replace(ending("event", first, scene), limit=2))) == 2
