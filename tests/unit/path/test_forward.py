"""Forwarding: everything posted is accepted once, in its order, and nothing unacceptable holds up the rest."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.errors import InvalidInput, StoreUnavailable
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import EndpointState
from doorstep.model.event import EventStatus
from doorstep.model.outcome import Code
from doorstep.model.posting import Posting, PostingOptions
from doorstep.path.accept import Accepter, Draft
from doorstep.path.forward import HOLD_SECONDS, Forward
from doorstep.path.post import post
from doorstep.telemetry import Notice, StatusTransition
from tests.builders import new_id
from tests.unit.path.scene import Bench


class Desk:
    """A bench with an outbox, and forwarders for it."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.forward = self.another("f1")

    def another(self, name: str) -> Forward:
        bench = self.bench
        accepter = Accepter(bench.store, bench.directory, bench.clock, bench.tuning, bench.telemetry, wake=bench._wake)
        return Forward(bench.store, accepter, bench.clock, bench.telemetry, name)

    async def post(self, count: int = 1, org_id: UUID | None = None, **options: object) -> list[Posting]:
        made = [
            Posting(
                event_id=new_id(),
                org_id=org_id or self.bench.org.org_id,
                event_type="order.paid",
                payload=b"%d" % number,
                created_at=self.bench.clock.now(),
                options=PostingOptions(**options),  # type: ignore[arg-type]
            )
            for number in range(count)
        ]
        await self.bench.store.post(made)
        return made

    async def status(self, posting: Posting) -> EventStatus:
        return (await self.bench.store.event(posting.org_id, posting.event_id)).status

    async def deliveries(self, posting: Posting) -> int:
        return len(await self.bench.store.deliveries(posting.org_id, posting.event_id))


async def test_what_was_posted_is_accepted_under_its_own_id_and_leaves_the_outbox() -> None:
    desk = Desk()
    await desk.bench.prepare()
    (posting,) = await desk.post(correlation_id="c-1", metadata=' {"a":1}', ordering_key="k")
    desk.bench.clock.advance(5)
    assert await desk.forward() == 1
    assert await desk.bench.store.outbox(10) == []
    view = await desk.bench.store.event(posting.org_id, posting.event_id)
    assert (view.deliveries, view.event.payload, view.event.created_at) == (1, b"0", posting.created_at)
    assert (view.event.correlation_id, view.event.metadata, view.event.ordering_key) == ("c-1", b' {"a":1}', "k")
    assert (desk.bench.woken, await desk.forward()) == (1, 0)


async def test_a_sender_whose_clock_is_ahead_does_not_make_his_event_wait() -> None:
    desk = Desk()
    await desk.bench.prepare()
    (posting,) = await desk.post()
    desk.bench.clock.advance(-3_600)
    await desk.forward()
    (delivery,) = await desk.bench.store.deliveries(posting.org_id, posting.event_id)
    assert delivery.due_at == desk.bench.clock.now()


async def test_a_forwarder_killed_before_it_cleared_is_followed_by_one_that_adds_nothing() -> None:
    desk = Desk()
    await desk.bench.prepare(2)
    postings = await desk.post(3)
    desk.bench.failing.away = {"clear_outbox"}
    with pytest.raises(StoreUnavailable):
        await desk.forward()
    desk.bench.failing.away.clear()
    assert [await desk.status(one) for one in postings] == [EventStatus.RECEIVED] * 3
    desk.bench.clock.advance(HOLD_SECONDS)
    assert await desk.another("f2")() == 3
    assert [await desk.deliveries(one) for one in postings] == [2, 2, 2]


async def test_while_one_forwards_the_others_leave_it_to_him_and_take_over_when_he_is_gone() -> None:
    desk = Desk()
    await desk.bench.prepare()
    await desk.post(501)
    other = desk.another("f2")
    assert await desk.forward() == 500
    assert await other() == 0, "the first is not done yet"
    desk.bench.clock.advance(HOLD_SECONDS)
    assert await other() == 1
    assert (await desk.forward(), await other()) == (0, 0)
    await desk.post()
    assert await desk.forward() == 1, "whoever found nothing has let go"


async def test_who_forwards_for_long_keeps_the_right_to() -> None:
    desk = Desk()
    await desk.bench.prepare()
    other = desk.another("f2")
    for _ in range(5):
        await desk.post(501)
        assert await desk.forward() == 500
        desk.bench.clock.advance(HOLD_SECONDS * 0.9)
        assert await other() == 0


async def test_events_for_an_endpoint_deleted_meanwhile_become_dead_letters_and_reach_the_others() -> None:
    desk = Desk()
    gone, living = await desk.bench.prepare(2)
    (posting,) = await desk.post(endpoint_ids=(gone.endpoint_id, living.endpoint_id))
    await desk.bench.store.put_endpoint(replace(gone, state=EndpointState.DELETED), gone.version)
    await desk.bench.directory.reload()
    assert await desk.forward() == 1
    await desk.bench.deliver()
    found = await desk.bench.store.deliveries(posting.org_id, posting.event_id)
    states = {one.endpoint_id: (one.state, one.code) for one in found}
    assert states[gone.endpoint_id] == (DeliveryState.DEAD, Code.ENDPOINT_DELETED)
    assert states[living.endpoint_id][0] is DeliveryState.DELIVERED
    assert await desk.bench.store.refused(10) == []


async def test_what_can_never_be_accepted_is_set_aside_with_its_reason_and_holds_nobody_up() -> None:
    desk = Desk()
    await desk.bench.prepare()
    stranger, unknown = new_id(), new_id()
    (first,) = await desk.post()
    (orgless,) = await desk.post(org_id=stranger)
    (misdirected,) = await desk.post(endpoint_ids=(unknown,))
    (last,) = await desk.post()
    assert await desk.forward() == 4
    assert [await desk.deliveries(one) for one in (first, last)] == [1, 1]
    assert await desk.status(misdirected) is EventStatus.FAILED
    refused = {one.event_id: one.refusal or "" for one in await desk.bench.store.refused(10)}
    assert str(stranger) in refused[orgless.event_id]
    assert str(unknown) in refused[misdirected.event_id]
    notices = desk.bench.heard(Notice)
    assert {notice.fields["event_id"] for notice in notices} == refused.keys()
    assert await desk.forward() == 0


async def test_a_store_that_is_away_sets_nothing_aside() -> None:
    desk = Desk()
    await desk.bench.prepare()
    await desk.post(2)
    desk.bench.failing.away = {"accept"}
    with pytest.raises(StoreUnavailable):
        await desk.forward()
    desk.bench.failing.away.clear()
    assert len(await desk.bench.store.outbox(10)) == 2
    assert await desk.bench.store.refused(10) == []
    assert await desk.forward() == 2
    assert len(desk.bench.heard(StatusTransition)) == 2


def test_what_send_would_refuse_is_refused_when_it_is_posted() -> None:
    bench = Bench()
    draft = Draft(org_id=bench.org.org_id, event_type="order.paid", payload=b"{}")
    for field, wrong in {
        "payload": replace(draft, payload=b"{"),
        "event_type": replace(draft, event_type="no such type!"),
        "metadata": replace(draft, metadata=b"[]"),
        "expires_at": replace(draft, deliver_at=2 * SECOND, expires_at=SECOND),
        "idempotency_key": replace(draft, idempotency_key="k"),
        "endpoint_ids": replace(draft, endpoint_ids=()),
    }.items():
        with pytest.raises(InvalidInput) as refused:
            post(wrong, object(), bench.store, bench.clock.now(), 1_000, lambda: None)
        assert refused.value.field == field
    assert bench.failing.calls == []
