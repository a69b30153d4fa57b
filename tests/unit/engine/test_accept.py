"""Accepting events: a call is all or nothing, uses the current routing, and is answered only after the write."""

from __future__ import annotations

import asyncio
from uuid import UUID

import msgspec
import pytest

from doorstep.clock import SECOND
from doorstep.engine.accept import Accepter, Draft, fingerprint
from doorstep.errors import InvalidInput, NotFound, Overloaded, StoreUnavailable
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState, RetryPolicy
from doorstep.model.event import Verdict
from doorstep.model.listing import EventDeliveries
from doorstep.telemetry.facts import StatusTransition
from tests.support.builders import NOW, an_endpoint, new_id
from tests.support.matrix import each_case
from tests.support.shortcuts import count_states, put
from tests.unit.engine.scene import PLAIN, Bench


def accepter_of(bench: Bench) -> Accepter:
    return Accepter(bench.store, bench.directory, bench.clock, bench.tuning, bench.telemetry, wake=bench._wake)


def a_draft(bench: Bench, **changes: object) -> Draft:
    fields: dict[str, object] = {"org_id": bench.org.org_id, "event_type": "order.paid", "payload": b"{}"}
    return Draft(**fields | changes)  # type: ignore[arg-type]


async def test_an_event_is_kept_with_one_delivery_for_each_matching_endpoint_and_work_is_announced() -> None:
    bench = Bench()
    await bench.prepare(2)
    await bench.prepare(1, event_types=("user.*",))
    (receipt,) = await accepter_of(bench).accept([a_draft(bench)])
    assert (receipt.verdict, receipt.deliveries) == (Verdict.ACCEPTED, 2)
    assert len(await bench.store.find(bench.org.org_id, EventDeliveries(event_id=receipt.event_id))) == 2
    assert bench.woken == 1
    assert [fact.new_status for fact in bench.heard(StatusTransition)] == ["received"]


async def test_named_endpoints_are_the_only_ones_and_count_once() -> None:
    bench = Bench()
    first, second = await bench.prepare(2, event_types=("user.*",))
    named = (second.endpoint_id, second.endpoint_id)
    (receipt,) = await accepter_of(bench).accept([a_draft(bench, endpoint_ids=named)])
    (delivery,) = await bench.store.find(bench.org.org_id, EventDeliveries(event_id=receipt.event_id))
    assert delivery.endpoint_id == second.endpoint_id != first.endpoint_id


async def test_a_delivery_knows_its_due_time_and_how_often_it_may_be_retried() -> None:
    bench = Bench()
    await bench.prepare(policy=RetryPolicy((1, 2, 3, 4)))
    (receipt,) = await accepter_of(bench).accept([a_draft(bench, deliver_at=NOW + 9 * SECOND)])
    (delivery,) = await bench.store.find(bench.org.org_id, EventDeliveries(event_id=receipt.event_id))
    assert (delivery.due_at, delivery.retries_max) == (NOW + 9 * SECOND, 4)


async def test_a_time_long_past_puts_a_delivery_ahead_of_nobody() -> None:
    bench = Bench()
    await bench.prepare()
    (receipt,) = await accepter_of(bench).accept([a_draft(bench, deliver_at=NOW - 9 * SECOND)])
    (delivery,) = await bench.store.find(bench.org.org_id, EventDeliveries(event_id=receipt.event_id))
    assert delivery.due_at == delivery.created_at == NOW


async def test_an_endpoint_that_another_process_made_a_moment_ago_gets_the_event() -> None:
    bench = Bench()
    await bench.prepare()
    await put(bench.store, an_endpoint(bench.org.org_id), 0)
    (receipt,) = await accepter_of(bench).accept([a_draft(bench)])
    assert receipt.deliveries == 2


async def test_an_endpoint_that_another_process_deleted_a_moment_ago_does_not() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await put(bench.store, msgspec.structs.replace(endpoint, state=EndpointState.DELETED), 1)
    (receipt,) = await accepter_of(bench).accept([a_draft(bench)])
    assert receipt.deliveries == 0


async def test_endpoints_that_change_without_end_are_an_error_to_try_again_not_a_loop() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    accept = bench.failing.kept.accept

    async def unlucky(*args: object) -> object:
        present = await bench.store.get(Endpoint, endpoint.org_id, endpoint.endpoint_id)
        await put(bench.store, present)
        return await accept(*args)  # type: ignore[arg-type]

    bench.failing.kept.accept = unlucky  # type: ignore[assignment,method-assign]
    with pytest.raises(StoreUnavailable, match="endpoints change faster"):
        await accepter_of(bench).accept([a_draft(bench)])


async def test_a_call_that_is_refused_spares_those_that_are_written_with_it() -> None:
    bench = Bench()
    await bench.prepare()
    accepter = accepter_of(bench)
    bad = [a_draft(bench, endpoint_ids=(new_id(),)), a_draft(bench, org_id=new_id())]
    calls = (accepter.accept([draft]) for draft in (a_draft(bench), *bad, a_draft(bench)))
    first, unknown_endpoint, unknown_org, last = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(unknown_endpoint, InvalidInput) and unknown_endpoint.field == "endpoint_ids"
    assert isinstance(unknown_org, NotFound)
    assert isinstance(first, list) and isinstance(last, list)


async def test_of_a_batch_with_one_bad_event_nothing_is_kept() -> None:
    bench = Bench()
    await bench.prepare()
    with pytest.raises(InvalidInput, match=r"events\[1\]\.event_type"):
        await accepter_of(bench).accept([a_draft(bench), a_draft(bench, event_type="no blanks")])
    assert sum((await count_states(bench.store)).values()) == 0


async def test_a_store_that_is_away_is_said_and_nothing_is_acknowledged() -> None:
    bench = Bench()
    await bench.prepare()
    bench.failing.away = {"accept"}
    with pytest.raises(StoreUnavailable):
        await accepter_of(bench).accept([a_draft(bench)])
    assert bench.woken == 0


async def test_payloads_that_wait_for_their_commit_are_bounded_by_their_bytes() -> None:
    bench = Bench(msgspec.structs.replace(PLAIN, accept_queue_bytes_max=1_000))
    await bench.prepare()
    accepter = accepter_of(bench)
    long = a_draft(bench, payload=b'"' + b"x" * 400 + b'"')
    calls = (accepter.accept([long]) for _ in range(5))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(result, Overloaded) for result in results] == [False, False, True, True, True]
    assert (await count_states(bench.store))[DeliveryState.PENDING] == 2


async def test_the_same_key_and_body_give_the_first_answer_again_and_another_body_a_conflict() -> None:
    bench = Bench()
    await bench.prepare()
    accepter = accepter_of(bench)
    drafts = [a_draft(bench, idempotency_key="k", payload=payload) for payload in (b"1", b"1", b"2")]
    receipts = [(await accepter.accept([draft]))[0] for draft in drafts]
    assert [one.verdict for one in receipts] == [Verdict.ACCEPTED, Verdict.REPEATED, Verdict.CONFLICT]
    assert len({one.event_id for one in receipts}) == 1


async def test_a_hundred_callers_with_one_key_at_once_make_one_event() -> None:
    bench = Bench()
    await bench.prepare()
    accepter = accepter_of(bench)
    calls = (accepter.accept([a_draft(bench, idempotency_key="k")]) for _ in range(100))
    receipts = [one for (one,) in await asyncio.gather(*calls)]
    assert len({one.event_id for one in receipts}) == 1
    assert [one.verdict for one in receipts].count(Verdict.ACCEPTED) == 1


@each_case(
    "changes",
    [
        {"event_type": "order.placed"},
        {"payload": b"{ }"},
        {"metadata": b'{"a":1}'},
        {"deliver_at": NOW},
        {"expires_at": NOW},
        {"endpoint_ids": (UUID(int=1),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_fingerprint_covers_everything_the_sender_gave(changes: dict[str, object]) -> None:
    bench = Bench()
    assert fingerprint(a_draft(bench)) != fingerprint(a_draft(bench, **changes))


def test_a_fingerprint_does_not_depend_on_the_request() -> None:
    bench = Bench()
    assert fingerprint(a_draft(bench, correlation_id="a")) == fingerprint(a_draft(bench, correlation_id="b"))


@each_case(
    ("changes", "field"),
    [
        ({"event_type": ""}, "event_type"),
        ({"event_type": ".hidden"}, "event_type"),
        ({"event_type": "a" * 129}, "event_type"),
        ({"event_type": "order\npaid"}, "event_type"),
        ({"event_type": "order.paid\n"}, "event_type"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "k" * 256}, "idempotency_key"),
        ({"idempotency_key": "ключ"}, "idempotency_key"),
        ({"idempotency_key": "a\x00"}, "idempotency_key"),
        ({"correlation_id": "a\x00"}, "correlation_id"),
        ({"correlation_id": "\ud800"}, "correlation_id"),
        ({"metadata": b"x" * 16_385}, "metadata"),
        ({"endpoint_ids": ()}, "endpoint_ids"),
        ({"deliver_at": NOW, "expires_at": NOW}, "expires_at"),
    ],
)
async def test_what_no_store_could_keep_is_refused_by_naming_the_field(changes: dict[str, object], field: str) -> None:
    bench = Bench()
    await bench.prepare()
    with pytest.raises(InvalidInput) as refusal:
        await accepter_of(bench).accept([a_draft(bench, **changes)])
    assert refusal.value.field == field
