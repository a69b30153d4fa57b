"""The outbox: posted messages wait there in order until they are cleared, and can be read like any other event."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import UUID

import pytest

from doorstep.errors import NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.listing import AuditFilter, EventDeliveries, RejectedMessages
from doorstep.model.outbox import OutboxMessage, OutboxOptions, event_of
from doorstep.stores.limits import OUTBOX_BYTES_MAX
from doorstep.stores.store import Store, Topic
from tests.contract.scene import Scene
from tests.support.builders import NOW, a_submission, an_endpoint, an_org, new_id
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import post, put

ALL_OPTIONS = OutboxOptions(
    correlation_id="request-7",
    endpoint_ids=(new_id(), new_id()),
    deliver_at=NOW + 5,
    expires_at=NOW + 6,
    metadata=' {"a": "\\u0000\\ud800 é"} ',
    ordering_key="order 1",
)


def a_message(org_id: UUID, **changes: object) -> OutboxMessage:
    fields: dict[str, object] = {"event_id": new_id(), "org_id": org_id, "event_type": "order.paid"}
    return OutboxMessage(**fields | {"payload": b'{"n": 1}', "created_at": NOW} | changes)  # type: ignore[arg-type]


def a_line(org_id: UUID) -> AuditEntry:
    return AuditEntry(at=NOW, org_id=org_id, actor="ops", action="outbox.retry", subjects=(), result="")


async def ids_in_outbox(store: Store, limit: int = 1_000) -> list[UUID]:
    return [message.event_id for message in await store.outbox(limit)]


async def test_what_is_posted_comes_out_as_it_went_in(scene: Scene) -> None:
    message = a_message(scene.org_id, payload=b'\t{"text": "\xc3\xa9\\u0000"} ', options=ALL_OPTIONS)
    await post(scene.store, [message])
    assert await scene.store.outbox(10) == [message]


async def test_messages_come_out_in_the_order_of_posting_and_not_of_their_ids(scene: Scene) -> None:
    made = [a_message(scene.org_id) for _ in range(4)]
    shuffled = [made[2], made[0], made[3], made[1]]
    await post(scene.store, shuffled[:3])
    await post(scene.store, shuffled[3:])
    assert await ids_in_outbox(scene.store) == [one.event_id for one in shuffled]
    assert await ids_in_outbox(scene.store, limit=2) == [one.event_id for one in shuffled[:2]]


async def test_only_what_is_cleared_leaves_and_unknown_ids_do_no_harm(scene: Scene) -> None:
    first, second, third = made = [a_message(scene.org_id) for _ in range(3)]
    await post(scene.store, made)
    await scene.store.clear_outbox([first.event_id, third.event_id, new_id()])
    await scene.store.clear_outbox([first.event_id])
    assert await ids_in_outbox(scene.store) == [second.event_id]


async def test_clearing_again_what_another_has_cleared_spares_what_came_since(scene: Scene) -> None:
    """A slow forwarder clears messages that it read long ago. SQLite may have reused the keys of removed rows."""
    old, new = a_message(scene.org_id), a_message(scene.org_id)
    await post(scene.store, [old])
    read_by_the_slow_one = await ids_in_outbox(scene.store)
    await scene.store.clear_outbox([old.event_id])
    await post(scene.store, [new])
    await scene.store.clear_outbox(read_by_the_slow_one)
    assert await ids_in_outbox(scene.store) == [new.event_id]


async def test_a_thousand_postings_can_be_cleared_at_once(scene: Scene) -> None:
    made = [a_message(scene.org_id) for _ in range(1_000)]
    await post(scene.store, made)
    found = await ids_in_outbox(scene.store, 2_000)
    assert len(found) == 1_000
    await scene.store.clear_outbox(found)
    assert await scene.store.outbox(1) == []


async def test_no_more_is_read_at_once_than_fits_into_memory_but_always_something(scene: Scene) -> None:
    long = b'"' + b"x" * (OUTBOX_BYTES_MAX // 2) + b'"'
    made = [a_message(scene.org_id, payload=long) for _ in range(3)]
    await post(scene.store, made)
    assert await ids_in_outbox(scene.store) == [one.event_id for one in made[:2]]
    await scene.store.clear_outbox([one.event_id for one in made])
    await post(scene.store, [a_message(scene.org_id, payload=b'"' + b"x" * OUTBOX_BYTES_MAX + b'"')])
    assert len(await ids_in_outbox(scene.store)) == 1


async def test_an_event_in_the_outbox_is_shown_as_received(scene: Scene) -> None:
    message = a_message(scene.org_id, options=ALL_OPTIONS)
    await post(scene.store, [message])
    view = await scene.store.get(EventView, scene.org_id, message.event_id)
    (summary,) = await scene.store.get_many(EventSummary, scene.org_id, [message.event_id, new_id()])
    assert (view.event, view.status, view.deliveries) == (event_of(message), EventStatus.RECEIVED, 0)
    assert (summary.event_id, summary.status) == (message.event_id, EventStatus.RECEIVED)
    assert (summary.event_type, summary.correlation_id) == (message.event_type, "request-7")
    assert await scene.store.find(scene.org_id, EventDeliveries(event_id=message.event_id)) == []


async def test_once_accepted_the_event_is_shown_as_it_stands_even_before_the_outbox_is_cleared(scene: Scene) -> None:
    message = a_message(scene.org_id)
    await post(scene.store, [message])
    await scene.submit(a_submission(scene.org_id, [scene.endpoint.endpoint_id], event_id=message.event_id))
    await scene.claim_one()
    assert (await scene.store.get(EventView, scene.org_id, message.event_id)).status is EventStatus.QUEUED
    (summary,) = await scene.store.get_many(EventSummary, scene.org_id, [message.event_id])
    assert (summary.status, summary.deliveries) == (EventStatus.QUEUED, 1)


async def test_an_event_deleted_before_the_outbox_was_cleared_stays_deleted(scene: Scene) -> None:
    message = a_message(scene.org_id)
    await post(scene.store, [message])
    await scene.submit(a_submission(scene.org_id, [scene.endpoint.endpoint_id], event_id=message.event_id))
    await scene.store.delete_event(scene.org_id, message.event_id, "ops", NOW)
    with pytest.raises(NotFound):
        await scene.store.get(EventView, scene.org_id, message.event_id)
    assert await scene.store.get_many(EventSummary, scene.org_id, [message.event_id]) == []


async def test_another_organizations_posting_is_not_found(scene: Scene) -> None:
    message, stranger = a_message(scene.org_id), new_id()
    nobodys = a_message(stranger)
    await post(scene.store, [message, nobodys])
    for org_id, event_id in ((stranger, message.event_id), (scene.org_id, nobodys.event_id)):
        with pytest.raises(NotFound):
            await scene.store.get(EventView, org_id, event_id)
        assert await scene.store.get_many(EventSummary, org_id, [event_id]) == []
    with pytest.raises(NotFound):
        await scene.store.get(EventView, stranger, nobodys.event_id)


async def test_what_is_rejected_holds_nobody_up_is_shown_as_failed_and_is_kept_with_its_reason(scene: Scene) -> None:
    bad, good = a_message(scene.org_id), a_message(scene.org_id)
    await post(scene.store, [bad, good])
    await scene.store.reject(bad.event_id, "no endpoint 7", NOW + 5)
    await scene.store.reject(bad.event_id, "another reason", NOW + 6)
    await scene.store.reject(new_id(), "unknown", NOW + 6)
    assert await ids_in_outbox(scene.store) == [good.event_id]
    (kept,) = await scene.store.find(None, RejectedMessages(limit=10))
    assert (kept.event_id, kept.refusal, kept.refused_at) == (bad.event_id, "no endpoint 7", NOW + 5)
    view = await scene.store.get(EventView, scene.org_id, bad.event_id)
    assert (view.status, view.failed_at) == (EventStatus.FAILED, NOW + 5)


async def test_what_was_rejected_can_be_requeued_or_removed_and_nothing_else(scene: Scene) -> None:
    back, gone, waiting = made = [a_message(scene.org_id) for _ in range(3)]
    await post(scene.store, made)
    for one in (back, gone):
        await scene.store.reject(one.event_id, "no endpoint 7", NOW)
    named = [back.event_id, back.event_id, waiting.event_id, new_id()]
    (found,) = await scene.store.requeue(named, a_line(scene.org_id))
    assert (found.event_id, found.refusal) == (back.event_id, "no endpoint 7")
    assert await scene.store.requeue(named, a_line(scene.org_id)) == []
    (removed,) = await scene.store.discard([gone.event_id, waiting.event_id], a_line(scene.org_id))
    assert removed.event_id == gone.event_id
    assert await scene.store.find(None, RejectedMessages(limit=10)) == []
    assert await scene.store.outbox(10) == [back, waiting]


@pytest.mark.parametrize("verb", ["requeue", "discard"])
async def test_who_requeued_or_removed_what_is_audited_with_it_or_nothing_is_done(scene: Scene, verb: str) -> None:
    neighbour = an_org()
    own, other, nobodys = made = [a_message(org_id) for org_id in (scene.org_id, neighbour.org_id, new_id())]
    await put(scene.store, neighbour)
    await post(scene.store, made)
    for one in made:
        await scene.store.reject(one.event_id, "no endpoint 7", NOW)
    do, ids = getattr(scene.store, verb), [one.event_id for one in made]
    with pytest.raises(NotFound):
        await do(ids, a_line(new_id()))
    assert len(await scene.store.find(None, RejectedMessages(limit=10))) == 3
    assert len(await do(ids, a_line(scene.org_id))) == 3
    for org_id, named in ((scene.org_id, {own.event_id, nobodys.event_id}), (other.org_id, {other.event_id})):
        (line,) = (await scene.store.page(org_id, AuditFilter(action="outbox.retry"))).items
        assert (line.actor, set(line.subjects)) == ("ops", set(map(str, named)))
        assert line.result == f"{len(named)} done"


@pytest.mark.parametrize(
    "wrong",
    [{"deliver_at": 1.5e9}, {"deliver_at": "tomorrow"}, {"endpoint_ids": ("nonsense",)}, {"metadata": 7}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_row_that_cannot_be_read_comes_out_with_its_flaw_between_its_neighbours(
    scene: Scene, wrong: dict[str, object]
) -> None:
    junk = a_message(scene.org_id, options=OutboxOptions(**wrong))  # type: ignore[arg-type]
    made = [a_message(scene.org_id), junk, a_message(scene.org_id)]
    await post(scene.store, made)
    first, odd, last = await scene.store.outbox(10)
    assert (first, last) == (made[0], made[2])
    assert odd == junk or (odd.event_id == junk.event_id and odd.flaw), "a store without text keeps what it was given"
    if odd.flaw:
        assert (await scene.store.get(EventView, scene.org_id, junk.event_id)).status is EventStatus.RECEIVED
    await scene.store.reject(junk.event_id, "cannot be read", NOW)
    assert [one.event_id for one in await scene.store.find(None, RejectedMessages(limit=10))] == [junk.event_id]


async def test_a_posting_can_be_accepted_for_an_endpoint_that_was_deleted_meanwhile(scene: Scene) -> None:
    """It becomes a dead letter, like everything that waits for a deleted endpoint."""
    endpoint = an_endpoint(scene.org_id, state="deleted")
    await put(scene.store, endpoint, 0)
    (receipt,) = await scene.submit(a_submission(scene.org_id, [endpoint.endpoint_id]))
    assert receipt.deliveries == 1
    buried = await scene.store.dead_letter_waiting(endpoint.endpoint_id, "ENDPOINT_DELETED", "gone", NOW, 10)
    assert len(buried.moves) == 1


async def test_posting_wakes_who_wants_to_know(scene: Scene, other_store: Store) -> None:
    woken = asyncio.Event()
    other_store.on_wakeup(Topic.OUTBOX, woken.set)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not woken.is_set():  # a hint may be lost, so one of many is enough
            await post(scene.store, [a_message(scene.org_id)])
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), 0.2)
