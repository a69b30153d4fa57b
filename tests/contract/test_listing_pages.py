"""R8.1, R8.3: lists stay complete while the store changes, show one organization, and refuse foreign cursors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.errors import InvalidInput
from doorstep.model.action import ActionKind, AuditEntry
from doorstep.model.alert import Alert, AlertChange, AlertFilter, AlertWrite, Rule
from doorstep.model.batch import BatchFilter
from doorstep.model.bulk import Bulk, BulkFilter, BulkKind, Selection
from doorstep.model.claim import Claim, Settlement
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.entity import Entity, EntityFilter, Phase
from doorstep.model.event import EventStatus
from doorstep.model.listing import (
    AuditFilter,
    CauseGroups,
    Count,
    DeadLetterFilter,
    EndpointFilter,
    EventDeliveries,
    EventFilter,
    InboxFilter,
    Page,
    PagedQuery,
    RetryQueueFilter,
)
from doorstep.stores.store import Store
from tests.contract.scene import Scene
from tests.contract.wanted import all_of
from tests.reference import ReferenceStore
from tests.support.builders import a_submission, failure, new_id, refusal
from tests.support.shortcuts import acknowledge, put

T = TypeVar("T")
RECEIVED, FAILED = EventStatus.RECEIVED, EventStatus.FAILED
Maker = Callable[[Scene], Awaitable[UUID]]
Remover = Callable[[Scene, UUID], Awaitable[object]]


# -- creating items, and removing them from their list -----------------------------------------------------


async def new_event(scene: Scene) -> UUID:
    (made,) = await scene.accept()
    return made.event.event_id


async def new_inbox_event(scene: Scene) -> UUID:
    made = a_submission(scene.org_id)
    await scene.submit(made)
    return made.event.event_id


async def new_failure(scene: Scene) -> UUID:
    """Create a failed delivery that is due again soon; many are due at the same instant."""
    claim = await _claimed(scene)
    outcome = failure(scene.now)
    await scene.settle(Settlement.retry(claim, outcome, scene.now + claim.token * SECOND, claim.retries_max))
    return claim.delivery_id


async def new_letter(scene: Scene) -> UUID:
    claim = await _claimed(scene)
    await scene.kill(claim)
    return claim.delivery_id


async def new_cause(scene: Scene) -> UUID:
    claim = await _claimed(scene)
    word = "".join(chr(ord("g") + int(digit)) for digit in str(claim.delivery_id.int))
    await scene.settle(Settlement.dead(claim, refusal(scene.now, reason=f"never heard of {word}")))
    return claim.delivery_id


async def new_failed_event(scene: Scene) -> UUID:
    return (await scene.delivery(await new_letter(scene))).event_id


async def new_endpoint(scene: Scene) -> UUID:
    return (await scene.add_endpoint()).endpoint_id


def an_entry(scene: Scene, uid: UUID) -> AuditEntry:
    return AuditEntry(at=scene.now, org_id=scene.org_id, actor="a", action="x", subjects=(str(uid),), result="")


async def new_entry(scene: Scene) -> UUID:
    uid = new_id()
    await scene.store.write([], an_entry(scene, uid))
    return uid


async def new_batch(scene: Scene) -> UUID:
    made = a_submission(scene.org_id, [scene.endpoint.endpoint_id])
    (delivery,) = made.deliveries
    await scene.submit(replace(made, deliveries=(replace(delivery, batch=True),)))
    return delivery.delivery_id


async def new_alert(scene: Scene) -> UUID:
    alert = Alert(
        alert_id=new_id(),
        org_id=scene.org_id,
        rule=Rule.DEAD_LETTER,
        opened_at=scene.now,
        seen_at=scene.now,
        endpoint_id=new_id(),
    )
    assert await scene.store.write_alerts(AlertWrite(org_id=scene.org_id, changes=(AlertChange(alert, 0),)))
    return alert.alert_id


async def new_bulk(scene: Scene) -> UUID:
    bulk = Bulk(
        bulk_id=new_id(),
        org_id=scene.org_id,
        kind=BulkKind.RETRY,
        selection=Selection(letters=DeadLetterFilter()),
        actor="ops",
        created_at=scene.now,
    )
    assert await put(scene.store, bulk)
    return bulk.bulk_id


async def new_entity(scene: Scene) -> UUID:
    uid = new_id()
    entity = Entity(
        entity_id=str(uid),
        org_id=scene.org_id,
        pipeline="protocol",
        status="uploaded",
        phase=Phase.RUNNING,
        created_at=scene.now,
        changed_at=scene.now,
    )
    assert await scene.store.put_entity(entity, 0)
    return uid


async def _claimed(scene: Scene) -> Claim:
    (made,) = await scene.accept()
    claims = {claim.delivery_id: claim for claim in await scene.claim()}
    return claims[made.deliveries[0].delivery_id]


async def delete_event(scene: Scene, event_id: UUID) -> None:
    await scene.store.delete_event(scene.org_id, event_id, "ops", scene.now)


async def take_out(scene: Scene, event_id: UUID) -> None:
    await acknowledge(scene.store, scene.org_id, event_id, scene.now)


async def skip(scene: Scene, delivery_id: UUID) -> None:
    await scene.act(ActionKind.SKIP, delivery_id)


async def resolve(scene: Scene, delivery_id: UUID) -> None:
    await scene.act(ActionKind.RESOLVE, delivery_id)


async def retry_event(scene: Scene, event_id: UUID) -> None:
    (delivery,) = await scene.store.find(scene.org_id, EventDeliveries(event_id=event_id))
    await scene.act(ActionKind.RETRY, delivery.delivery_id)


async def delete_endpoint(scene: Scene, endpoint_id: UUID) -> None:
    endpoint = await scene.store.get(Endpoint, scene.org_id, endpoint_id)
    await put(scene.store, replace(endpoint, state=EndpointState.DELETED), endpoint.version)


async def delete_batch(scene: Scene, delivery_id: UUID) -> None:
    await skip(scene, delivery_id)
    await scene.act(ActionKind.DELETE, delivery_id)


async def end_alert(scene: Scene, alert_id: UUID) -> None:
    alert = await scene.store.get(Alert, scene.org_id, alert_id)
    change = AlertChange(replace(alert, ended_at=scene.now), alert.version)
    assert await scene.store.write_alerts(AlertWrite(org_id=scene.org_id, changes=(change,)))


async def delete_entity(scene: Scene, uid: UUID) -> None:
    entity = await scene.store.get(Entity, scene.org_id, ("protocol", str(uid)))
    assert await scene.store.delete_entity(entity, an_entry(scene, uid)) is not None


async def nothing(scene: Scene, uid: UUID) -> None:
    """Do nothing: audit entries and bulk operations cannot be taken out of their list."""


# -- the lists ---------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    query: PagedQuery[Any]
    id_of: Callable[[Any], UUID]
    make: Maker
    remove: Remover
    shape: tuple[int, ...]
    """The number of bits of each number in the cursor."""


def _event_id(item: Any) -> UUID:
    return UUID(int=item.event_id.int)


def _delivery_id(item: Any) -> UUID:
    return UUID(int=item.delivery_id.int)


KINDS = {
    "events": Kind(EventFilter(), _event_id, new_event, delete_event, (128,)),
    "events, oldest first": Kind(
        EventFilter(oldest_first=True, event_type="user.*"),
        _event_id,
        new_event,
        delete_event,
        (128,),
    ),
    "failed events": Kind(EventFilter(status=FAILED), _event_id, new_failed_event, retry_event, (128,)),
    "inbox": Kind(InboxFilter(status=RECEIVED), lambda item: item.event.event_id, new_inbox_event, take_out, (128,)),
    "failed inbox": Kind(
        InboxFilter(status=FAILED), lambda item: item.event.event_id, new_failed_event, delete_event, (128,)
    ),
    "retry queue": Kind(RetryQueueFilter(), _delivery_id, new_failure, skip, (63, 128)),
    "retry queue, filtered": Kind(
        RetryQueueFilter(waiting=True, event_type="user.*"),
        _delivery_id,
        new_failure,
        skip,
        (63, 128),
    ),
    "dead letters": Kind(DeadLetterFilter(), _delivery_id, new_letter, resolve, (63, 128)),
    "archived letters": Kind(
        DeadLetterFilter(archived=True, archived_before=2**62),
        _delivery_id,
        new_letter,
        resolve,
        (63, 128),
    ),
    "causes": Kind(CauseGroups(), lambda item: item.sample_id, new_cause, resolve, (63,)),
    "endpoints": Kind(EndpointFilter(), lambda item: item.endpoint_id, new_endpoint, delete_endpoint, (128,)),
    "audit": Kind(AuditFilter(), lambda item: UUID(item.subjects[0]), new_entry, nothing, (63, 63)),
    "batches": Kind(BatchFilter(), _delivery_id, new_batch, delete_batch, (128,)),
    "open alerts": Kind(AlertFilter(is_open=True), lambda item: item.alert_id, new_alert, end_alert, (63,)),
    "bulk operations": Kind(BulkFilter(), lambda item: item.bulk_id, new_bulk, nothing, (63,)),
    "entities": Kind(
        EntityFilter(pipeline="protocol"), lambda item: UUID(item.entity_id), new_entity, delete_entity, (63,)
    ),
}


async def page_of(kind: Kind, scene: Scene, cursor: str | None, limit: int = 3) -> Page[Any]:
    return await scene.store.page(scene.org_id, kind.query, cursor, limit)


async def with_items(kind: Kind, store: Store, count: int) -> Scene:
    """Create an organization with `count` items in this list."""
    scene = await Scene(store).prepare()
    there = isinstance(kind.query, EndpointFilter)  # the endpoint of the scene
    for _ in range(count - there):
        await kind.make(scene)
    return scene


# -- the promises of lists ---------------------------------------------------------------------------------


async def turn_pages(kind: Kind, scene: Scene, random: Random) -> tuple[Counter[UUID], set[UUID]]:
    """Page through a list while items are added, and while items that were seen or not yet seen are removed.

    Returns how often each item was seen, and the items that were in the list all the time.
    """
    staying = {await kind.make(scene) for _ in range(11)}
    seen: Counter[UUID] = Counter()
    cursor: str | None = None
    while True:
        page = await page_of(kind, scene, cursor, random.randint(1, 3))
        seen.update(map(kind.id_of, page.items))
        if page.next is None or seen.total() > 100:
            return seen, staying
        cursor = page.next
        scene.wait(random.choice([0, 1]))
        if kind.remove is not nothing:
            removed = random.choice(sorted(staying)[1:])
            staying.discard(removed)
            await kind.remove(scene, removed)
        if len(seen) < 30:
            await kind.make(scene)


def is_whole(seen: Counter[UUID], staying: set[UUID]) -> bool:
    return all(seen[uid] == 1 for uid in staying) and max(seen.values()) == 1


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
async def test_what_matches_all_the_time_is_met_exactly_once_and_nothing_twice(store: Store, kind: Kind) -> None:
    for seed in range(3):
        assert is_whole(*await turn_pages(kind, await Scene(store).prepare(), Random(seed)))


async def test_pages_that_are_counted_off_instead_are_caught_by_this() -> None:
    """The control: paging by offset misses items that moved up, and repeats items that moved down."""

    class CountsOff(ReferenceStore):
        async def page(
            self, org_id: UUID | None, query: PagedQuery[T], cursor: str | None = None, limit: int = 50
        ) -> Page[T]:
            found = (await super().page(org_id, query, None, 1_000)).items
            begin = int(cursor or 0)
            end = begin + limit
            return Page(found[begin:end], str(end) if end < len(found) else None)

    for name in ("events", "events, oldest first"):
        scene = await Scene(CountsOff()).prepare()
        assert not is_whole(*await turn_pages(KINDS[name], scene, Random(1)))


async def test_a_list_of_another_organization_is_empty_also_with_a_cursor_of_this_one(store: Store) -> None:
    for name, kind in KINDS.items():
        scene = await with_items(kind, store, 4)
        page = await page_of(kind, scene, None, 2)
        assert len(page.items) == 2 and page.next is not None, name
        other = Scene(store)
        for _ in range(2):
            assert await page_of(kind, other, None) == await page_of(kind, other, page.next) == Page(()), name
            await put(store, other.org)


async def test_a_last_page_that_is_full_leads_nowhere(store: Store) -> None:
    for name, kind in KINDS.items():
        scene = await with_items(kind, store, 4)
        first = await page_of(kind, scene, None, 2)
        second = await page_of(kind, scene, first.next, 2)
        assert (len(second.items), second.next) == (2, None), name


HOSTILE = [
    "",
    " ",
    "-1",
    "0x1",
    "1.",
    ".1",
    "1..1",
    "1.1.1",
    "g",
    "1\n",
    "\x00",
    "١",
    "ff" * 17,
    "1" * 9_999,
    "1." * 999,
]


async def test_a_cursor_that_no_list_gave_is_refused_by_name(scene: Scene) -> None:
    for name, kind in KINDS.items():
        too_large = ".".join(f"{2**bits:x}" for bits in kind.shape)
        another_shape = ".".join(["1"] * (3 - len(kind.shape)))
        for cursor in (*HOSTILE, too_large, another_shape):
            with pytest.raises(InvalidInput) as refused:
                await page_of(kind, scene, cursor)
            assert refused.value.field == "cursor", name


async def test_a_cursor_that_was_made_up_in_the_right_shape_is_a_place_like_any_other(store: Store) -> None:
    for kind in KINDS.values():
        scene = await with_items(kind, store, 1)
        for places in ([0] * len(kind.shape), [2**bits - 1 for bits in kind.shape]):
            await page_of(kind, scene, ".".join(f"{place:x}" for place in places))


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
async def test_a_filter_that_no_store_can_look_for_is_refused_by_name(scene: Scene, text: str) -> None:
    store, org_id = scene.store, scene.org_id
    calls: dict[str, list[Awaitable[object]]] = {
        "event_type": [
            store.page(org_id, EventFilter(event_type=text)),
            store.page(org_id, RetryQueueFilter(event_type=text)),
            store.count(org_id, RetryQueueFilter(event_type=text)),
            store.page(org_id, DeadLetterFilter(event_type=text)),
            store.count(org_id, DeadLetterFilter(event_type=text)),
            store.page(org_id, CauseGroups(filter=DeadLetterFilter(event_type=text))),
        ],
        "actor": [store.page(org_id, AuditFilter(actors=(text,)))],
        "action": [store.page(org_id, AuditFilter(action=text))],
    }
    for field, refusals in calls.items():
        for call in refusals:
            with pytest.raises(InvalidInput) as refused:
                await call
            assert refused.value.field == field


async def test_letters_that_died_at_one_instant_are_listed_the_last_created_first(scene: Scene) -> None:
    await scene.accept(5)
    claims = await scene.claim()
    await scene.kill(*claims)
    made = [letter.delivery_id for letter in await all_of(scene.store.page, scene.org_id, DeadLetterFilter(), limit=2)]
    assert made == sorted((claim.delivery_id for claim in claims), reverse=True)


@pytest.mark.parametrize("cause", [-1, 2**63, 2**64 - 1])
async def test_a_cause_that_no_column_holds_is_nobodys(scene: Scene, cause: int) -> None:
    await new_letter(scene)
    wanted = DeadLetterFilter(cause=cause)
    assert await scene.store.page(scene.org_id, wanted) == Page(())
    assert await scene.store.page(scene.org_id, CauseGroups(filter=wanted)) == Page(())
    assert await scene.store.count(scene.org_id, wanted) == Count(0, exact=True)
