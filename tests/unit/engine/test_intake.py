"""Deliveries that are claimed in the transaction that accepts them: which ones, and what happens if a process dies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from doorstep.clock import SECOND
from doorstep.engine import deliver, settle
from doorstep.engine.accept import Accepter, Draft
from doorstep.engine.deliver import Deliverer
from doorstep.engine.reclaim import reclaim
from doorstep.errors import StoreUnavailable
from doorstep.model.attempt import Code
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint, EndpointState, HandlerDestination
from doorstep.model.event import Receipt
from doorstep.model.listing import DeliveryAttempts, EventDeliveries
from doorstep.telemetry.facts import DeliveryTransition, Notice, StatusTransition
from tests.support.matrix import each_case
from tests.support.shortcuts import count_states
from tests.support.transports import FakeTransport
from tests.unit.engine.scene import PLAIN, Bench

D = DeliveryState


def accepter_of(bench: Bench, worker: Deliverer | None = None) -> Accepter:
    """The accepter of the process that runs the worker."""
    accepter = Accepter(bench.store, bench.directory, bench.clock, bench.tuning, bench.telemetry, wake=bench._wake)
    accepter.intake = (worker or bench.deliverer).intake
    return accepter


def a_draft(bench: Bench, **changes: Any) -> Draft:
    return Draft(**{"org_id": bench.org.org_id, "event_type": "order.paid", "payload": b"{}"} | changes)


async def delivery_of(bench: Bench, receipt: Receipt) -> Any:
    (delivery,) = await bench.store.find(bench.org.org_id, EventDeliveries(event_id=receipt.event_id))
    return delivery


async def test_one_event_is_two_writes_and_no_read() -> None:
    bench = Bench()
    await bench.prepare()
    bench.failing.calls.clear()
    (receipt,) = await accepter_of(bench).accept([a_draft(bench)])
    assert len(bench.http.started) == 1
    bench.http.answer(200)
    await bench.write_down()
    assert bench.failing.calls == ["accept", "settle"]
    assert bench.woken == 0, "nothing is left to claim"
    assert (await delivery_of(bench, receipt)).state is D.DELIVERED


async def test_the_log_tells_the_whole_life_in_order() -> None:
    bench = Bench()
    await bench.prepare()
    await accepter_of(bench).accept([a_draft(bench)])
    bench.http.answer(200)
    await bench.write_down()
    assert [fact.new_status for fact in bench.heard(StatusTransition)] == ["received", "queued", "delivered"]
    assert [fact.new_state for fact in bench.heard(DeliveryTransition)] == ["in_progress", "delivered"]


_LEFT_TO_THE_STORE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a paused endpoint": ({"state": EndpointState.PAUSED}, {}),
    "a disabled endpoint": ({"state": EndpointState.DISABLED}, {}),
    "a limit of concurrency that all workers share": ({"concurrency_max": 5}, {}),
    "a rate": ({"rate_per_second": 5.0}, {}),
    "a rate for the backlog": ({"drain_per_second": 5.0, "drain_before": 2**60}, {}),
    "a handler that this worker does not have": ({"destination": HandlerDestination("elsewhere")}, {}),
    "an ordering key": ({}, {"ordering_key": "a"}),
    "a later time": ({}, {"deliver_at": 9_000_000_000_000_000}),
    "an event that has expired": ({}, {"expires_at": 1}),
}


@each_case("endpoint, event", _LEFT_TO_THE_STORE.values(), ids=_LEFT_TO_THE_STORE)
async def test_what_another_rule_concerns_is_left_to_the_store(endpoint: dict[str, Any], event: dict[str, Any]) -> None:
    bench = Bench()
    bench.handlers.serves = lambda target, org_id: False  # type: ignore[method-assign]
    await bench.prepare(**endpoint)
    (receipt,) = await accepter_of(bench).accept([a_draft(bench, **event)])
    assert bench.http.started == bench.handlers.started == []
    assert (await delivery_of(bench, receipt)).state is D.PENDING
    assert bench.woken == 1


async def test_an_endpoint_in_doubt_is_left_to_the_claimer_even_if_only_the_store_knows() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    opened = Circuit(endpoint_id=endpoint.endpoint_id, state=CircuitState.OPEN, failures=9, changed_at=1, until=2**60)
    assert await bench.store.put_circuit(opened, 0)
    (receipt,) = await accepter_of(bench).accept([a_draft(bench)])
    assert (await delivery_of(bench, receipt)).state is D.PENDING and bench.woken == 1


async def test_a_failure_here_ends_the_short_cut_until_a_success() -> None:
    bench = Bench()
    await bench.prepare()
    accepter = accepter_of(bench)
    await accepter.accept([a_draft(bench)])
    bench.http.answer(503)
    await bench.write_down()
    (receipt,) = await accepter.accept([a_draft(bench)])
    assert receipt.claims == ()
    await bench.deliver()
    (receipt,) = await accepter.accept([a_draft(bench)])
    assert receipt.claims == (), "its round has just found a backlog"
    await bench.deliver()
    await bench.deliverer.round()
    (receipt,) = await accepter.accept([a_draft(bench)])
    assert len(receipt.claims) == 1


async def test_older_deliveries_go_first() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    waiting = await bench.accept(endpoint, 9)
    await bench.deliverer.round()
    await accepter_of(bench).accept([a_draft(bench)])
    for _ in range(4):
        await bench.deliver()
    sent = [one.claim.delivery_id for one in bench.http.started]
    assert sent[:9] == waiting and len(sent) == 10


async def test_an_endpoint_gets_no_more_than_its_connections_and_an_organization_no_more_than_its_share() -> None:
    bench = Bench(msgspec.structs.replace(PLAIN, slots=12, connections_per_endpoint=4))
    first, second = await bench.prepare(2)
    only: Sequence[Endpoint] = [first] * 6 + [second] * 6
    receipts = await accepter_of(bench).accept([a_draft(bench, endpoint_ids=(one.endpoint_id,)) for one in only])
    assert [len(receipt.claims) for receipt in receipts] == [1] * 4 + [0, 0] + [1] * 2 + [0] * 4
    assert bench.woken == 1


async def test_after_one_endpoint_has_taken_its_share_another_still_gets_a_slot() -> None:
    bench = Bench(msgspec.structs.replace(PLAIN, slots=16, connections_per_endpoint=16))
    flooded, quiet = await bench.prepare(2)
    accepter = accepter_of(bench)
    await accepter.accept([a_draft(bench, endpoint_ids=(flooded.endpoint_id,)) for _ in range(50)])
    assert len(bench.http.started) == 7, "three quarters of the half that one organization may have"
    (receipt,) = await accepter.accept([a_draft(bench, endpoint_ids=(quiet.endpoint_id,))])
    assert len(receipt.claims) == 1


async def test_all_that_was_left_is_delivered_from_the_store() -> None:
    bench = Bench()
    await bench.prepare()
    await accepter_of(bench).accept([a_draft(bench) for _ in range(20)])
    for _ in range(6):
        bench.http.answer(200)
        await bench.deliver()
    assert (await count_states(bench.store))[D.DELIVERED] == 20


# -- acceptances and rounds at the same time -----------------------------------------------------------------


def held_up(bench: Bench, verb: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold up the next call of the store. Returns an event that is set when it has begun, and one that lets it go on."""
    begun, go_on, call = asyncio.Event(), asyncio.Event(), getattr(bench.failing.kept, verb)

    async def hold_up(*args: Any) -> Any:
        del bench.failing.answers[verb]
        begun.set()
        await go_on.wait()
        return await call(*args)

    bench.failing.answers[verb] = hold_up
    return begun, go_on


async def test_a_round_during_an_acceptance_leaves_an_endpoint_the_connections_that_were_offered() -> None:
    bench = Bench(msgspec.structs.replace(PLAIN, slots=64, connections_per_endpoint=4))
    (endpoint,) = await bench.prepare()
    begun, go_on = held_up(bench, "accept")
    accepting = asyncio.ensure_future(accepter_of(bench).accept([a_draft(bench) for _ in range(3)]))
    await begun.wait()
    await bench.accept(endpoint, 20)
    await bench.deliverer.round()
    assert len(bench.http.started) == 1
    go_on.set()
    await accepting
    assert len(bench.http.started) == 4
    bench.http.answer(200)
    await bench.write_down()
    await bench.deliverer.round()
    assert len(bench.http.unanswered) == 4, "the offer has ended"


async def test_an_acceptance_during_a_round_leaves_an_organization_its_share() -> None:
    bench = Bench()
    first, second = await bench.prepare(2)
    await bench.accept(first, 20)
    begun, go_on = held_up(bench, "claim")
    claiming = asyncio.ensure_future(bench.deliverer.round())
    await begun.wait()
    (receipt,) = await accepter_of(bench).accept([a_draft(bench, endpoint_ids=(second.endpoint_id,))])
    assert receipt.claims == ()
    go_on.set()
    await claiming
    assert len(bench.http.started) == 4, "half of the slots"


async def test_a_call_that_fails_ends_its_offer() -> None:
    bench = Bench(msgspec.structs.replace(PLAIN, slots=64, connections_per_endpoint=4))
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, 20)
    bench.failing.away = {"accept", "claim"}
    for call in (accepter_of(bench).accept([a_draft(bench)] * 4), bench.deliverer.round()):
        with pytest.raises(StoreUnavailable):
            await call
    bench.failing.away = set()
    await bench.deliverer.round()
    assert len(bench.http.started) == 4


async def test_slots_that_an_endpoint_frees_wake_the_dispatcher_for_another_that_was_short_of_them() -> None:
    bench = Bench()
    accepting, waiting = await bench.prepare(2)
    await accepter_of(bench).accept([a_draft(bench, endpoint_ids=(accepting.endpoint_id,))] * 4)
    assert len(bench.http.started) == 4, "half of the slots"
    await bench.accept(waiting)
    await bench.deliverer.round()
    assert len(bench.http.started) == 4
    woken = bench.woken
    bench.http.answer(200, count=1)
    assert bench.woken == woken + 1
    await bench.deliverer.round()
    assert bench.http.started[-1].claim.endpoint_id == waiting.endpoint_id


async def test_slots_that_nobody_is_short_of_wake_nobody() -> None:
    bench = Bench(msgspec.structs.replace(PLAIN, slots=64))
    accepting, hanging = await bench.prepare(2)
    await bench.accept(hanging, 20)
    await bench.deliverer.round()
    await accepter_of(bench).accept([a_draft(bench, endpoint_ids=(accepting.endpoint_id,))] * 4)
    woken = bench.woken
    bench.http.unanswered.reverse()
    bench.http.answer(200, count=1)
    assert bench.woken == woken, "the other endpoint uses all its connections"


# -- a process that dies ---------------------------------------------------------------------------------------


async def lost_in_the_window(bench: Bench, how: str) -> Receipt:
    """Accept an event whose claim its process never starts: it is killed after the commit, or hears no answer."""
    accept = bench.failing.kept.accept
    stored: list[Receipt] = []

    async def cut_off(*args: Any) -> list[Receipt]:
        stored.extend(await accept(*args))
        if how == "the answer is lost":
            raise StoreUnavailable("the answer of the store was lost")
        return await asyncio.Event().wait()  # type: ignore[return-value]

    bench.failing.answers["accept"] = cut_off
    sending = asyncio.ensure_future(accepter_of(bench).accept([a_draft(bench)]))
    if how == "the answer is lost":
        with pytest.raises(StoreUnavailable):
            await sending
    else:
        while not stored:
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    del bench.failing.answers["accept"]
    return stored[0]


@pytest.mark.parametrize("how", ["the process is killed", "the answer is lost"])
async def test_a_claim_that_was_never_handed_over_is_somebody_elses_when_its_lease_ends(how: str) -> None:
    bench = Bench()
    await bench.prepare()
    receipt = await lost_in_the_window(bench, how)
    assert bench.http.started == []
    other = FakeTransport(bench.clock)
    successor = bench.another_worker("w2", other)
    bench.clock.advance(bench.tuning.lease_seconds - 1)
    await successor.round()
    assert await reclaim(bench.store, bench.directory, successor.settler, bench.clock.now(), lambda: 0.5) == 0
    bench.clock.advance(1)
    assert await reclaim(bench.store, bench.directory, successor.settler, bench.clock.now(), lambda: 0.5) == 1
    bench.clock.advance(1)
    await successor.round()
    (sent,) = other.started
    assert (sent.claim.event_id, sent.claim.attempt) == (receipt.event_id, 2), "the first attempt was counted"
    other.answer(200)
    await successor.settler.run_once()
    delivery = await delivery_of(bench, receipt)
    assert delivery.state is D.DELIVERED
    attempts = await bench.store.find(bench.org.org_id, DeliveryAttempts(delivery_id=delivery.delivery_id))
    assert [(one.number, one.worker, one.code) for one in attempts] == [(1, "w1", Code.WORKER_LOST), (2, "w2", None)]


async def test_a_payload_that_kills_its_process_at_once_is_a_dead_letter_in_the_end() -> None:
    bench = Bench()
    await bench.prepare()
    receipt = await lost_in_the_window(bench, "the process is killed")
    for _ in range(9):
        bench.clock.advance(bench.tuning.lease_seconds + 61)
        await reclaim(bench.store, bench.directory, bench.deliverer.settler, bench.clock.now(), lambda: 0.5)
        bench.clock.advance(61)
        worker = bench.another_worker("w", FakeTransport(bench.clock))
        await worker.round()  # claims it, and dies
    delivery = await delivery_of(bench, receipt)
    assert (delivery.state, delivery.attempt) == (D.DEAD, 3)


# -- senders and stopping --------------------------------------------------------------------------------------


async def test_a_sender_that_has_gone_stops_neither_its_event_nor_the_answers_of_others() -> None:
    bench = Bench()
    await bench.prepare()
    accepter = accepter_of(bench)
    gone, other = (asyncio.ensure_future(accepter.accept([a_draft(bench)])) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert len(await other) == 1
    assert len(bench.http.started) == 2


async def test_a_worker_that_stops_while_events_are_accepted_gives_their_claims_back_uncounted() -> None:
    bench = Bench()
    await bench.prepare()
    accept, going_on = bench.failing.kept.accept, asyncio.Event()

    async def slow(*args: Any) -> list[Receipt]:
        receipts = await accept(*args)
        await going_on.wait()
        return receipts

    bench.failing.answers["accept"] = slow
    sending = asyncio.ensure_future(accepter_of(bench).accept([a_draft(bench)]))
    await asyncio.sleep(0.01)
    stopping = asyncio.ensure_future(bench.deliverer.drain(1))
    await asyncio.sleep(0.01)
    going_on.set()
    (receipt,) = await sending
    await bench.write_down()
    await stopping
    delivery = await delivery_of(bench, receipt)
    assert bench.http.started == []
    assert (delivery.state, delivery.attempt) == (D.PENDING, 0)
    assert bench.clock.now() < delivery.created_at + SECOND


async def test_while_too_many_results_wait_to_be_written_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    await bench.prepare()
    accepter = accepter_of(bench)
    await accepter.accept([a_draft(bench)])
    bench.http.answer(200)
    monkeypatch.setattr(settle, "_BACKLOG_MAX", 0)
    (receipt,) = await accepter.accept([a_draft(bench)])
    assert receipt.claims == () and bench.woken == 1
    await bench.write_down()
    (receipt,) = await accepter.accept([a_draft(bench)])
    assert len(receipt.claims) == 1


async def test_events_that_are_stored_are_confirmed_even_if_their_attempts_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    await bench.prepare()

    def broken() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(bench.deliverer.buffer, "start", broken)
    receipts = await accepter_of(bench).accept([a_draft(bench) for _ in range(9)])
    assert len(receipts) == 9 and bench.woken == 1, "more events than slots: some are left to the store"
    (told,) = bench.heard(Notice)
    assert (told.level, told.fields["claims"]) == ("error", 4)


async def test_a_claim_that_cannot_be_prepared_takes_no_slot_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    await bench.prepare()

    def once(*args: Any) -> Any:
        monkeypatch.undo()
        raise RuntimeError("a bug")

    monkeypatch.setattr(deliver, "prepare", once)
    await accepter_of(bench).accept([a_draft(bench) for _ in range(2)])
    assert len(bench.http.started) == 1
    assert bench.deliverer.buffer.busy == len(bench.deliverer.in_flight) == 1
    assert [told.level for told in bench.heard(Notice)] == ["error"]


async def test_a_process_that_does_not_deliver_claims_nothing() -> None:
    bench = Bench()
    await bench.prepare()
    accepter = accepter_of(bench)
    accepter.intake = None
    (receipt,) = await accepter.accept([a_draft(bench)])
    assert receipt.claims == () and bench.woken == 1
