"""Forwarding: every posted message is accepted once and in order, and an unacceptable one does not delay the rest."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND, Instant
from doorstep.engine.accept import Accepter, Draft
from doorstep.errors import InvalidInput, Overloaded, StoreUnavailable
from doorstep.model.attempt import Code
from doorstep.model.claim import Lease
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.event import EventStatus, EventView, Receipt, Submission
from doorstep.model.listing import EventDeliveries, RejectedMessages
from doorstep.model.outbox import OutboxMessage, OutboxOptions
from doorstep.operations.outbox import post
from doorstep.services.coordination import IDLE_POLL_SECONDS
from doorstep.services.forwarder import LEASE_SECONDS, NOTICED_POLL_SECONDS, Forwarder
from doorstep.stores.store import Retention
from doorstep.telemetry.facts import Notice, StatusTransition
from tests.support import shortcuts
from tests.support.builders import new_id
from tests.support.shortcuts import put
from tests.unit.engine.scene import Bench


class Desk:
    """A bench with an outbox and its forwarders."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.forwarder = self.another("f1")

    def another(self, name: str) -> Forwarder:
        bench = self.bench
        accepter = Accepter(bench.store, bench.directory, bench.clock, bench.tuning, bench.telemetry, wake=bench._wake)
        return Forwarder(bench.store, accepter, bench.clock, bench.telemetry, name)

    async def post(self, count: int = 1, org_id: UUID | None = None, **options: object) -> list[OutboxMessage]:
        made = [
            OutboxMessage(
                event_id=new_id(),
                org_id=org_id or self.bench.org.org_id,
                event_type="order.paid",
                payload=b"%d" % number,
                created_at=self.bench.clock.now(),
                options=OutboxOptions(**options),  # type: ignore[arg-type]
            )
            for number in range(count)
        ]
        await shortcuts.post(self.bench.store, made)
        return made

    async def status(self, message: OutboxMessage) -> EventStatus:
        return (await self.bench.store.get(EventView, message.org_id, message.event_id)).status

    async def deliveries(self, message: OutboxMessage) -> int:
        return len(await self.bench.store.find(message.org_id, EventDeliveries(event_id=message.event_id)))


async def test_what_was_posted_is_accepted_under_its_own_id_and_leaves_the_outbox() -> None:
    desk = Desk()
    await desk.bench.prepare()
    (message,) = await desk.post(correlation_id="c-1", metadata=' {"a":1}', ordering_key="k")
    desk.bench.clock.advance(5)
    assert await desk.forwarder.forward() == 1
    assert await desk.bench.store.outbox(10) == []
    view = await desk.bench.store.get(EventView, message.org_id, message.event_id)
    assert (view.deliveries, view.event.payload) == (1, b"0")
    assert view.event.created_at == desk.bench.clock.now(), "deadlines and retention count from the acceptance"
    assert (view.event.correlation_id, view.event.metadata, view.event.ordering_key) == ("c-1", b' {"a":1}', "k")
    assert (desk.bench.woken, await desk.forwarder.forward()) == (1, 0)


async def test_while_another_process_forwards_it_looks_each_second_so_that_it_takes_over_soon_after_a_kill() -> None:
    desk = Desk()
    await desk.bench.prepare()
    features = desk.bench.failing.features
    desk.bench.failing.features = replace(features, notices_posts=True, announces_work=True)
    killed, other = desk.forwarder, desk.another("f2")
    assert await killed.lock.acquire()
    pauses = [await other.run_once() for _ in range(20)]
    assert pauses[-1] == IDLE_POLL_SECONDS, "nothing waits"
    (message,) = await desk.post()
    assert await other.run_once() == NOTICED_POLL_SECONDS
    desk.bench.clock.advance(LEASE_SECONDS)
    assert await other.run_once() == 0.0
    assert await desk.status(message) is EventStatus.RECEIVED


async def test_a_sender_whose_clock_is_ahead_does_not_make_his_event_wait() -> None:
    desk = Desk()
    await desk.bench.prepare()
    (message,) = await desk.post()
    desk.bench.clock.advance(-3_600)
    await desk.forwarder.forward()
    (delivery,) = await desk.bench.store.find(message.org_id, EventDeliveries(event_id=message.event_id))
    assert delivery.due_at == desk.bench.clock.now()


async def test_a_forwarder_killed_before_it_cleared_is_followed_by_one_that_adds_nothing() -> None:
    desk = Desk()
    await desk.bench.prepare(2)
    messages = await desk.post(3)
    desk.bench.failing.away = {"clear_outbox"}
    with pytest.raises(StoreUnavailable):
        await desk.forwarder.forward()
    desk.bench.failing.away.clear()
    assert [await desk.status(one) for one in messages] == [EventStatus.RECEIVED] * 3
    desk.bench.clock.advance(LEASE_SECONDS)
    assert await desk.another("f2").forward() == 3
    assert [await desk.deliveries(one) for one in messages] == [2, 2, 2]
    assert len(desk.bench.heard(StatusTransition)) == 3, "what was received once is told once"


async def test_while_one_forwards_the_others_leave_it_to_him_and_take_over_when_he_is_gone() -> None:
    desk = Desk()
    await desk.bench.prepare()
    await desk.post(501)
    other = desk.another("f2")
    assert await desk.forwarder.forward() == 500
    assert await other.forward() == 0, "the first is not done yet"
    desk.bench.clock.advance(LEASE_SECONDS)
    assert await other.forward() == 1
    assert (await desk.forwarder.forward(), await other.forward()) == (0, 0)
    await desk.post()
    assert await desk.forwarder.forward() == 1, "whoever found nothing has let go"


async def test_who_forwards_for_long_keeps_the_right_to() -> None:
    desk = Desk()
    await desk.bench.prepare()
    other = desk.another("f2")
    for _ in range(5):
        await desk.post(501)
        assert await desk.forwarder.forward() == 500
        desk.bench.clock.advance(LEASE_SECONDS * 0.9)
        assert await other.forward() == 0


async def test_events_for_an_endpoint_deleted_meanwhile_become_dead_letters_and_reach_the_others() -> None:
    desk = Desk()
    gone, living = await desk.bench.prepare(2)
    (message,) = await desk.post(endpoint_ids=(gone.endpoint_id, living.endpoint_id))
    await put(desk.bench.store, replace(gone, state=EndpointState.DELETED), gone.version)
    await desk.bench.directory.refresh()
    assert await desk.forwarder.forward() == 1
    await desk.bench.deliver()
    found = await desk.bench.store.find(message.org_id, EventDeliveries(event_id=message.event_id))
    states = {one.endpoint_id: (one.state, one.code) for one in found}
    assert states[gone.endpoint_id] == (DeliveryState.DEAD, Code.ENDPOINT_DELETED)
    assert states[living.endpoint_id][0] is DeliveryState.DELIVERED
    assert await desk.bench.store.find(None, RejectedMessages(limit=10)) == []


async def test_what_can_never_be_accepted_is_rejected_with_its_reason_and_holds_nobody_up() -> None:
    desk = Desk()
    await desk.bench.prepare()
    stranger, unknown = new_id(), new_id()
    (first,) = await desk.post()
    (orgless,) = await desk.post(org_id=stranger)
    (misdirected,) = await desk.post(endpoint_ids=(unknown,))
    (last,) = await desk.post()
    assert await desk.forwarder.forward() == 4
    assert [await desk.deliveries(one) for one in (first, last)] == [1, 1]
    assert await desk.status(misdirected) is EventStatus.FAILED
    refused = {one.event_id: one.refusal or "" for one in await desk.bench.store.find(None, RejectedMessages(limit=10))}
    assert str(stranger) in refused[orgless.event_id]
    assert str(unknown) in refused[misdirected.event_id]
    notices = desk.bench.heard(Notice)
    assert {notice.fields["event_id"] for notice in notices} == refused.keys()
    assert await desk.forwarder.forward() == 0


JUNK: dict[str, dict[str, object]] = {
    "a float": {"deliver_at": 1.5e9},
    "a word": {"deliver_at": "tomorrow"},
    "no id": {"endpoint_ids": ("nonsense",)},
    "too late": {"expires_at": 2**63},
}


@pytest.mark.parametrize("options", JUNK.values(), ids=JUNK)
async def test_junk_between_two_good_ones_is_rejected_and_they_go_on(options: dict[str, object]) -> None:
    desk = Desk()
    await desk.bench.prepare()
    (first,), (junk,), (last,) = await desk.post(), await desk.post(**options), await desk.post()
    assert await desk.forwarder.forward() == 3
    assert [await desk.deliveries(one) for one in (first, last)] == [1, 1]
    (refused,) = await desk.bench.store.find(None, RejectedMessages(limit=10))
    assert refused.event_id == junk.event_id
    assert refused.refusal
    assert await desk.forwarder.forward() == 0


async def test_a_row_that_cannot_be_read_is_rejected_with_its_flaw() -> None:
    desk = Desk()
    await desk.bench.prepare()
    (junk,), (good,) = await desk.post(), await desk.post()
    tables = desk.bench.failing.kept._tables
    tables.outbox[junk.event_id] = replace(junk, flaw="cannot be read: what is this?")
    assert await desk.forwarder.forward() == 2
    assert await desk.deliveries(good) == 1
    (refused,) = await desk.bench.store.find(None, RejectedMessages(limit=10))
    assert refused.refusal == "options: cannot be read: what is this?"


async def test_whatever_a_single_posting_breaks_the_others_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    await desk.bench.prepare()
    (poison,), (good,) = await desk.post(), await desk.post()
    whole = desk.bench.failing.kept.accept

    async def fragile(submissions: Sequence[Submission], version: int, now: Instant, *lease: Lease) -> list[Receipt]:
        if any(one.event.event_id == poison.event_id for one in submissions):
            raise OverflowError("too large")
        return await whole(submissions, version, now, *lease)

    monkeypatch.setattr(desk.bench.failing.kept, "accept", fragile)
    assert await desk.forwarder.forward() == 2
    assert await desk.deliveries(good) == 1
    (refused,) = await desk.bench.store.find(None, RejectedMessages(limit=10))
    assert (refused.event_id, refused.refusal) == (poison.event_id, "OverflowError: too large")


async def test_an_endpoint_deleted_between_the_look_and_the_acceptance_sets_nothing_aside() -> None:
    desk = Desk()
    (endpoint,) = await desk.bench.prepare()
    (message,) = await desk.post(endpoint_ids=(endpoint.endpoint_id,))
    look, looks = desk.bench.failing.kept.get, 0
    await put(desk.bench.store, replace(endpoint, state=EndpointState.DELETED), endpoint.version)
    await desk.bench.directory.refresh()

    async def late_look(kind: type[Endpoint], org_id: UUID, endpoint_id: UUID) -> Endpoint:
        nonlocal looks
        looks += 1
        return endpoint if looks == 1 else await look(kind, org_id, endpoint_id)

    desk.bench.failing.answers["get Endpoint"] = late_look
    assert await desk.forwarder.forward() == 1
    assert await desk.bench.store.find(None, RejectedMessages(limit=10)) == []
    assert await desk.deliveries(message) == 1


async def test_an_event_larger_than_this_workers_limit_is_accepted_once_it_is_committed() -> None:
    desk = Desk()
    await desk.bench.prepare()
    small = replace(desk.bench.tuning, payload_bytes_max=10)
    bench = desk.bench
    accepter = Accepter(bench.store, bench.directory, bench.clock, small, bench.telemetry, wake=bench._wake)
    draft = Draft(org_id=bench.org.org_id, event_type="order.paid", payload=b'"eleven bytes and more"')
    with pytest.raises(InvalidInput, match="at most 10 bytes"):
        await accepter.accept([draft])
    message = OutboxMessage(
        event_id=new_id(), org_id=draft.org_id, event_type="order.paid", payload=draft.payload, created_at=0
    )
    await shortcuts.post(bench.store, [message])
    assert await Forwarder(bench.store, accepter, bench.clock, bench.telemetry, "f").forward() == 1
    assert await desk.deliveries(message) == 1


async def test_an_event_that_waited_long_in_the_outbox_is_kept_as_long_as_any_other() -> None:
    desk = Desk()
    await desk.bench.prepare(event_types=("nothing.*",))
    (message,) = await desk.post()
    desk.bench.clock.advance(60 * 86_400)
    await desk.forwarder.forward()
    now = desk.bench.clock.now()
    await desk.bench.store.clean(Retention(inbox_before=now - 86_400 * SECOND), now, 100)
    assert await desk.status(message) is EventStatus.RECEIVED


async def test_a_forwarder_that_fails_lets_another_go_on_at_once() -> None:
    desk = Desk()
    await desk.bench.prepare()
    await desk.post()
    desk.bench.failing.away = {"accept"}
    with pytest.raises(StoreUnavailable):
        await desk.forwarder.forward()
    desk.bench.failing.away.clear()
    assert await desk.another("f2").forward() == 1


async def test_a_forwarder_that_is_told_to_stop_lets_another_go_on_at_once() -> None:
    desk = Desk()
    await desk.bench.prepare()
    await desk.post(501)
    assert await desk.forwarder.forward() == 500
    await desk.forwarder.lock.release()
    assert await desk.another("f2").forward() == 1


async def test_where_too_much_waits_to_be_stored_smaller_batches_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    await desk.bench.prepare()
    await desk.post(500)
    whole, sizes = desk.forwarder._accepter.accept, []

    async def narrow(drafts: Sequence[Draft]) -> list[Receipt]:
        sizes.append(len(drafts))
        if len(drafts) > 200:
            raise Overloaded("too many")
        return await whole(drafts)

    monkeypatch.setattr(desk.forwarder._accepter, "accept", narrow)
    for _ in range(2):
        with pytest.raises(Overloaded):
            await desk.forwarder.forward()
    assert await desk.forwarder.forward() == 125
    assert (sizes, await desk.bench.store.find(None, RejectedMessages(limit=10))) == ([500, 250, 125], [])


async def test_a_store_that_is_away_sets_nothing_aside() -> None:
    desk = Desk()
    await desk.bench.prepare()
    await desk.post(2)
    desk.bench.failing.away = {"accept"}
    with pytest.raises(StoreUnavailable):
        await desk.forwarder.forward()
    desk.bench.failing.away.clear()
    assert len(await desk.bench.store.outbox(10)) == 2
    assert await desk.bench.store.find(None, RejectedMessages(limit=10)) == []
    assert await desk.forwarder.forward() == 2
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
        "deliver_at": replace(draft, deliver_at=1.5e9),  # type: ignore[arg-type]
        "org_id": replace(draft, org_id="default"),  # type: ignore[arg-type]
        "correlation_id": replace(draft, correlation_id=7),  # type: ignore[arg-type]
        "ordering_key": replace(draft, ordering_key=7),  # type: ignore[arg-type]
    }.items():
        with pytest.raises(InvalidInput) as refused:
            post(wrong, object(), bench.store, bench.clock.now(), 1_000, lambda: None)
        assert refused.value.field == field
    assert bench.failing.calls == []
