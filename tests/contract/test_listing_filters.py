"""R7.1, R7.4, R8.1: a list returns exactly the items that match its filter, in its order, page after page.

Each test goes through all combinations of filter values, and compares the list with a plain loop over everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import pytest

from doorstep.clock import DAY
from doorstep.model.action import AuditEntry, audit_entry
from doorstep.model.attempt import Code
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import EndpointState
from doorstep.model.event import EventStatus
from doorstep.model.listing import (
    AttemptFilter,
    AuditFilter,
    CauseGroup,
    CauseGroups,
    Count,
    DeadLetterFilter,
    DeliveryAttempts,
    DeliveryFilter,
    EndpointFilter,
    EventFilter,
    InboxFilter,
    RetryQueueFilter,
)
from doorstep.model.record import earliest_id
from doorstep.stores.store import Store
from tests.contract.scene import SOON, Scene
from tests.contract.shelf import Shelf, summary, two_shelves
from tests.contract.wanted import all_of, pages_of
from tests.support.builders import NOW, new_id
from tests.support.shortcuts import living_endpoints

TYPES = (None, "order.paid", "user.*", "*", "user.")
SPANS = ((None, None), (NOW + DAY, None), (None, NOW + DAY + 4), (NOW + DAY + 2, NOW + 2 * DAY + 5), (NOW, NOW))
LIMIT = 3


@pytest.fixture
async def shelf(store: Store) -> Shelf:
    mine, _ = await two_shelves(store)
    return mine


def is_of(wanted: str | None, event_type: str) -> bool:
    return wanted in (None, "*") or event_type == wanted or (wanted == "user.*" and event_type.startswith("user."))


def is_within(span: tuple[int | None, int | None], instant: int) -> bool:
    begin, end = span
    return (begin is None or instant >= begin) and (end is None or instant < end)


def by_endpoint(deliveries: list[Delivery]) -> dict[UUID, int]:
    return Counter(one.endpoint_id for one in deliveries)


# -- events ------------------------------------------------------------------------------------------------


async def test_events_are_listed_by_status_type_and_time_in_both_directions(shelf: Shelf) -> None:
    events = await shelf.all_events()
    for status, event_type, span, oldest_first in product((None, *EventStatus), TYPES, SPANS, (True, False)):
        wanted = EventFilter(
            status=status,
            event_type=event_type,
            created_from=span[0],
            created_before=span[1],
            oldest_first=oldest_first,
        )
        expected = [
            summary(one)
            for one in events
            if status in (None, one.status) and is_of(event_type, one.event.event_type)
            if is_within(span, one.event.created_at)
        ]
        found = await all_of(shelf.store.page, shelf.org_id, wanted, limit=LIMIT)
        assert found == (expected if oldest_first else expected[::-1]), wanted
        assert await shelf.store.count(shelf.org_id, wanted) == Count(len(expected), exact=True), wanted


@pytest.mark.parametrize("status", [EventStatus.RECEIVED, EventStatus.FAILED])
async def test_the_inbox_has_whole_events_oldest_first_and_knows_how_many(shelf: Shelf, status: EventStatus) -> None:
    pushed = status is EventStatus.FAILED
    expected = [one for one in await shelf.all_events() if one.status is status and bool(one.deliveries) is pushed]
    assert expected
    assert await all_of(shelf.store.page, shelf.org_id, InboxFilter(status=status), limit=LIMIT) == expected
    assert await shelf.store.count(shelf.org_id, InboxFilter(status=status)) == Count(len(expected), exact=True)
    assert await shelf.store.count(shelf.org_id, InboxFilter(status=status), 2) == Count(2, exact=False)


# -- deliveries and attempts -------------------------------------------------------------------------------

CODES = (None, Code.NOT_FOUND, "NEVER")


def is_listed(one: Delivery, wanted: DeliveryFilter) -> bool:
    old = one.state is DeliveryState.DEAD and (one.settled_at or 0) < wanted.archived_before
    span = (wanted.created_from, wanted.created_before)
    begin, end = (None if at is None else earliest_id(at).int for at in span)
    return (
        not one.deleted
        and wanted.endpoint_id in (None, one.endpoint_id)
        and wanted.state in (None, DeliveryState.ARCHIVED if old else one.state)
        and wanted.code in (None, one.code)
        and is_of(wanted.event_type, one.event_type)
        and is_within((begin, end), one.delivery_id.int)
    )


async def test_deliveries_are_listed_by_endpoint_state_type_code_and_time_newest_first(shelf: Shelf) -> None:
    deliveries = sorted(await shelf.all_deliveries(), key=lambda one: one.delivery_id, reverse=True)
    assert {one.state for one in deliveries} == {*DeliveryState} - {DeliveryState.CANCELLED}
    endpoints = (None, shelf.endpoints[1].endpoint_id)
    half = middle_of([one.delivery_id.int for one in deliveries])
    spans = ((None, None), (half, None), (None, half))
    for endpoint_id, state, event_type, code, span, before in product(
        endpoints, (None, *DeliveryState), TYPES[:3], CODES, spans, (0, NOW + DAY)
    ):
        wanted = DeliveryFilter(
            endpoint_id=endpoint_id,
            state=state,
            archived_before=before,
            event_type=event_type,
            code=code,
            created_from=span[0],
            created_before=span[1],
        )
        expected = [one for one in deliveries if is_listed(one, wanted)]
        assert await all_of(shelf.store.page, shelf.org_id, wanted, limit=17) == expected, wanted


def middle_of(ids: list[int]) -> int:
    """The time in the middle of these ids, whose first 48 bits are milliseconds."""
    return (sorted(ids)[len(ids) // 2] >> 80) * 1000


async def test_attempts_are_listed_by_endpoint_result_type_code_and_time_newest_first(shelf: Shelf) -> None:
    deliveries = {one.delivery_id: one for one in await shelf.all_deliveries()}
    found = await all_of(shelf.store.page, shelf.org_id, AttemptFilter(), limit=7)
    logged = [
        one for key in deliveries for one in await shelf.store.find(shelf.org_id, DeliveryAttempts(delivery_id=key))
    ]
    assert Counter((one.delivery_id, one.number) for one in found) == Counter(
        (one.delivery_id, one.number) for one in logged
    )
    assert [one.started_at for one in found] == sorted((one.started_at for one in logged), reverse=True)
    endpoints = (None, shelf.endpoints[1].endpoint_id, new_id())
    for endpoint_id, succeeded, event_type, code, span in product(
        endpoints, (None, True, False), TYPES[:3], CODES, SPANS[1:4]
    ):
        wanted = AttemptFilter(
            endpoint_id=endpoint_id,
            succeeded=succeeded,
            event_type=event_type,
            code=code,
            started_from=span[0],
            started_before=span[1],
        )
        expected = [
            one
            for one in found
            if endpoint_id in (None, deliveries[one.delivery_id].endpoint_id)
            if succeeded in (None, one.category is None) and code in (None, one.code)
            if is_of(event_type, deliveries[one.delivery_id].event_type) and is_within(span, one.started_at)
        ]
        assert await all_of(shelf.store.page, shelf.org_id, wanted, limit=17) == expected, wanted


# -- the retry queue ---------------------------------------------------------------------------------------


def queues(shelf: Shelf) -> Iterator[RetryQueueFilter]:
    endpoints = (None, shelf.endpoints[1].endpoint_id, new_id())
    for waiting, event_type, endpoint_id, before in product((None, True, False), TYPES, endpoints, (None, NOW + DAY)):
        yield RetryQueueFilter(waiting=waiting, event_type=event_type, endpoint_id=endpoint_id, failed_before=before)


def is_queued(one: Delivery, wanted: RetryQueueFilter) -> bool:
    return (
        one.state in (DeliveryState.PENDING, DeliveryState.IN_PROGRESS)
        and one.first_failed_at is not None
        and wanted.waiting in (None, one.state is DeliveryState.PENDING)
        and wanted.endpoint_id in (None, one.endpoint_id)
        and is_of(wanted.event_type, one.event_type)
        and (wanted.failed_before is None or one.first_failed_at < wanted.failed_before)
    )


async def test_the_retry_queue_is_listed_and_counted_by_state_type_endpoint_and_age(shelf: Shelf) -> None:
    deliveries = await shelf.all_deliveries()
    assert {one.state for one in deliveries if is_queued(one, RetryQueueFilter())} == {"pending", "in_progress"}
    for wanted in queues(shelf):
        expected = sorted((one for one in deliveries if is_queued(one, wanted)), key=lambda one: one.due_at or 0)
        found = await all_of(shelf.store.page, shelf.org_id, wanted, limit=LIMIT)
        assert found == expected, wanted
        assert await shelf.store.count(shelf.org_id, wanted) == Count(len(expected), exact=True), wanted
        assert await shelf.store.count_by_endpoint(shelf.org_id, wanted) == by_endpoint(expected), wanted


# -- dead letters ------------------------------------------------------------------------------------------


def all_letters(shelf: Shelf, causes: tuple[int | None, ...]) -> Iterator[DeadLetterFilter]:
    endpoints = (None, shelf.endpoints[2].endpoint_id, new_id())
    befores = (0, NOW + DAY)
    for archived, before, event_type, endpoint_id, cause, span in product(
        (False, True), befores, TYPES[:3], endpoints, causes, SPANS[:4]
    ):
        yield DeadLetterFilter(
            archived=archived,
            archived_before=before,
            event_type=event_type,
            endpoint_id=endpoint_id,
            cause=cause,
            died_from=span[0],
            died_before=span[1],
        )


def is_letter(one: Delivery, wanted: DeadLetterFilter) -> bool:
    if one.state not in (DeliveryState.DEAD, DeliveryState.ARCHIVED) or one.deleted or one.settled_at is None:
        return False
    archived = one.state is DeliveryState.ARCHIVED or one.settled_at < wanted.archived_before
    return (
        archived is wanted.archived
        and wanted.endpoint_id in (None, one.endpoint_id)
        and wanted.cause in (None, one.cause)
        and is_of(wanted.event_type, one.event_type)
        and is_within((wanted.died_from, wanted.died_before), one.settled_at)
    )


def newest_first(letters: list[Delivery]) -> list[Delivery]:
    return sorted(letters, key=lambda one: one.settled_at or 0, reverse=True)


async def test_dead_letters_are_listed_and_counted_by_age_type_endpoint_cause_and_time(shelf: Shelf) -> None:
    deliveries = await shelf.all_deliveries()
    causes = (None, *sorted({one.cause for one in deliveries if one.cause is not None})[:2], 12345)
    assert {one.state for one in deliveries if one.cause} == {"dead", "archived", "resolved"}
    for wanted in all_letters(shelf, causes):
        expected = newest_first([one for one in deliveries if is_letter(one, wanted)])
        found = await all_of(shelf.store.page, shelf.org_id, wanted, limit=LIMIT)
        assert found == expected, wanted
        assert await shelf.store.count(shelf.org_id, wanted) == Count(len(expected), exact=True), wanted
        assert await shelf.store.count_by_endpoint(shelf.org_id, wanted) == by_endpoint(expected), wanted


async def test_causes_are_grouped_with_their_counts_times_and_newest_letter(shelf: Shelf) -> None:
    deliveries = await shelf.all_deliveries()
    for wanted in all_letters(shelf, (None,)):
        expected = groups_of(newest_first([one for one in deliveries if is_letter(one, wanted)]))
        pages = await pages_of(shelf.store.page, shelf.org_id, CauseGroups(filter=wanted), limit=LIMIT)
        found = [group for page in pages for group in page]
        assert {group.cause: group for group in found} == expected, wanted
        assert len(found) == len(expected)
        assert all(sorted(page, key=lambda one: one.last_died_at, reverse=True) == list(page) for page in pages)


def groups_of(letters: list[Delivery]) -> dict[int, CauseGroup]:
    groups: dict[int, list[Delivery]] = {}
    for letter in letters:
        assert letter.cause is not None
        groups.setdefault(letter.cause, []).append(letter)
    return {cause: group_of(cause, members) for cause, members in groups.items()}


def group_of(cause: int, letters: list[Delivery]) -> CauseGroup:
    newest, oldest = letters[0], letters[-1]
    fields: dict[str, Any] = {"code": newest.code, "reason": newest.reason, "sample_id": newest.delivery_id}
    fields |= {"first_died_at": oldest.settled_at, "last_died_at": newest.settled_at}
    return CauseGroup(cause=cause, endpoint_id=newest.endpoint_id, count=Count(len(letters), exact=True), **fields)


# -- endpoints and audit -----------------------------------------------------------------------------------


async def test_endpoints_are_listed_by_state_and_deleted_ones_only_when_asked_for(shelf: Shelf) -> None:
    await shelf.add_endpoint(state=EndpointState.PAUSED)
    gone = await shelf.add_endpoint(state=EndpointState.DELETED)
    living = [one for one in (await living_endpoints(shelf.store)) if one.org_id == shelf.org_id]

    async def listed(state: EndpointState | None) -> list[UUID]:
        found = await all_of(shelf.store.page, shelf.org_id, EndpointFilter(state=state), limit=2)
        return [endpoint.endpoint_id for endpoint in found]

    assert await all_of(shelf.store.page, shelf.org_id, EndpointFilter(), limit=2) == living
    for state in EndpointState:
        expected = [one.endpoint_id for one in living if one.state is state]
        assert await listed(state) == (expected or ([gone.endpoint_id] if state is EndpointState.DELETED else []))


async def test_the_audit_is_listed_by_actor_and_action(shelf: Shelf) -> None:
    lines = await all_of(shelf.store.page, shelf.org_id, AuditFilter(), limit=2)
    assert len(lines) > 5
    assert all(line.org_id == shelf.org_id for line in lines)
    for actor, action in product((None, "ops", "nobody"), (None, "resolve", "delete")):
        expected = [line for line in lines if actor in (None, line.actor) and action in (None, line.action)]
        query = AuditFilter(actors=() if actor is None else (actor,), action=action)
        assert await all_of(shelf.store.page, shelf.org_id, query, limit=2) == expected


async def test_the_audit_is_listed_by_time_and_by_several_actors(scene: Scene) -> None:
    """Entries written later may be of an earlier time, because the clocks of machines differ."""
    subject, lines = new_id(), list[AuditEntry]()
    for minute, actor in ((3, "ops"), (1, "lena"), (2, "ops"), (2, "lena"), (1, "else"), (3, "lena")):
        lines.append(audit_entry(minute * SOON, scene.org_id, actor, "x", subject, result=str(len(lines))))
        await scene.store.write([], lines[-1])
    newest_first = sorted(lines, key=lambda one: (one.at, one.result), reverse=True)

    async def listed(**query: Any) -> list[AuditEntry]:
        return await all_of(scene.store.page, scene.org_id, AuditFilter(**query), limit=2)

    for actors, since, before in product(((), ("lena",), ("ops", "lena"), ("nobody", "ops")), (None, 2), (None, 3)):
        times = {"since": since and since * SOON, "before": before and before * SOON}
        expected = [
            one
            for one in newest_first
            if (not actors or one.actor in actors) and (since or 0) * SOON <= one.at < (before or 9) * SOON
        ]
        assert await listed(actors=actors, **times) == expected
        about = await listed(actors=actors, about=(subject,), **times)
        assert sorted(about, key=newest_first.index) == expected


async def test_the_audit_is_listed_by_what_it_is_about(shelf: Shelf) -> None:
    lines = await all_of(shelf.store.page, shelf.org_id, AuditFilter(), limit=2)
    named = list(dict.fromkeys(UUID(line.subjects[0]) for line in lines))
    for about in (named[:1], named[:3], [uuid4()], [uuid4(), *named[1:2]]):
        expected = [line for line in lines if not {str(one) for one in about}.isdisjoint(line.subjects)]
        assert (await shelf.store.page(shelf.org_id, AuditFilter(about=tuple(about)), limit=1_000)).items == tuple(
            expected
        )
