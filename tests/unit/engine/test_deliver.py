"""The path of a delivery through one worker: slots, leases, results and stopping."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
import pytest

from doorstep.clock import SECOND, to_iso
from doorstep.config import Settings
from doorstep.engine.reclaim import reclaim
from doorstep.model.action import Action, ActionKind
from doorstep.model.attempt import Code, Failure
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import CircuitRules, EndpointState, HandlerDestination, RetryPolicy, SigningSecret
from doorstep.model.listing import DeliveryAttempts
from doorstep.telemetry.facts import DeliveryFailure, DeliveryTransition, Notice
from doorstep.transports.transport import Transmission
from tests.support.shortcuts import count_states, put
from tests.unit.engine.scene import PLAIN, Bench

D = DeliveryState


async def test_a_due_delivery_is_sent_and_its_result_written() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint, payload=b'{"exact":  1}')
    await bench.deliver()
    (sent,) = bench.http.started
    assert sent.claim.payload == b'{"exact":  1}'
    assert f"webhook-id: {sent.claim.event_id}" in sent.headers
    assert (await bench.delivery(delivery_id)).state is D.DELIVERED


async def test_a_payload_that_was_sent_in_an_envelope_leaves_the_hand_as_it_was_taken() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(envelope=True)
    await bench.accept(endpoint)
    await bench.deliver()
    assert bench.http.started[0].claim.payload.startswith(b'{"type":')
    assert not bench.deliverer.buffer.bytes_of


async def test_a_failure_is_recorded_and_rescheduled_by_the_same_write() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliver(503)
    delivery = await bench.delivery(delivery_id)
    (attempt,) = await bench.store.find(bench.org.org_id, DeliveryAttempts(delivery_id=delivery_id))
    assert (delivery.state, delivery.due_at) == (D.PENDING, bench.clock.now() + 60 * SECOND)
    assert attempt.next_retry_at == delivery.next_retry_at == delivery.due_at


async def test_a_thousand_failures_at_one_moment_are_all_scheduled_by_one_transaction() -> None:
    bench = Bench(msgspec.structs.replace(PLAIN, slots=3_000, connections_per_endpoint=2_000))
    (endpoint,) = await bench.prepare()
    ids = await bench.accept(endpoint, 1_000)
    await bench.deliverer.round()
    assert len(bench.http.started) == 1_000
    bench.http.answer(503)
    bench.failing.calls.clear()
    await bench.write_down()
    assert bench.failing.calls.count("settle") == 1
    assert {(await bench.delivery(one)).due_at for one in ids} == {bench.clock.now() + 60 * SECOND}


async def test_the_deliveries_of_a_handler_go_to_the_handlers() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(destination=HandlerDestination("mail"))
    await bench.accept(endpoint)
    await bench.deliverer.round()
    assert [one.target for one in bench.handlers.started] == ["mail"]
    assert not bench.http.started


async def test_a_try_that_could_not_begin_uses_up_no_attempt_until_it_has_gone_on_for_too_long() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(destination=HandlerDestination("mail"))
    (delivery_id,) = await bench.accept(endpoint)
    bench.handlers.open(bench.deliverer.done)
    for _ in range(5):
        await bench.deliverer.round()
        bench.handlers._end(None, failure=Failure(Code.TIMEOUT, "no process"), started=False)
        woken = bench.woken
        await bench.write_down()
        delivery = await bench.delivery(delivery_id)
        assert (delivery.state, delivery.attempt, delivery.retry_attempts) == (D.PENDING, 0, 0)
        assert delivery.due_at == bench.clock.now() and bench.woken > woken
        assert await bench.store.find(bench.org.org_id, DeliveryAttempts(delivery_id=delivery_id)) == []
    await bench.deliverer.round()
    bench.handlers._end(None, failure=Failure(Code.TIMEOUT, "no process"), started=False)
    await bench.write_down()
    (attempt,) = await bench.store.find(bench.org.org_id, DeliveryAttempts(delivery_id=delivery_id))
    assert attempt.code == Code.TIMEOUT and bench.deliverer.buffer.busy == 0


async def test_a_transport_that_fails_to_start_attempts_keeps_no_slots_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The attempts of other transports start nevertheless, and the deliveries are attempted again."""
    bench = Bench()
    (broken,) = await bench.prepare(destination=HandlerDestination("mail"))
    (other,) = await bench.prepare()
    ids = await bench.accept(broken, 3)
    (other_id,) = await bench.accept(other)
    begun: list[Transmission] = []

    def start(batch: Sequence[Transmission]) -> None:
        begun.append(batch[0])
        raise RuntimeError("no thread")

    bench.handlers.open(bench.deliverer.done)
    with monkeypatch.context() as patched:
        patched.setattr(bench.handlers, "start", start)
        await bench.deliver()
    assert (await bench.delivery(other_id)).state is D.DELIVERED
    assert (bench.deliverer.buffer.busy, bench.deliverer.in_flight, +bench.deliverer.buffer.bytes_of) == (0, {}, {})
    assert [(one.state, one.attempt) for one in [await bench.delivery(one) for one in ids]] == [(D.PENDING, 0)] * 3
    assert {one.level for one in bench.heard(Notice)} == {"error"}
    assert all("could not be started: RuntimeError" in one.message for one in bench.heard(Notice))

    await bench.deliverer.round()
    bench.handlers.unanswered.append(begun[0])
    bench.handlers.answer(200)
    await bench.write_down()
    assert await bench.states(ids) == [D.DELIVERED] * 3
    assert bench.deliverer.buffer.busy == 0, "the reply of an attempt that had begun after all is ignored"


# -- slots -------------------------------------------------------------------------------------------------


async def test_no_more_is_tried_at_once_than_there_are_connections_for_the_endpoint() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, 20)
    await bench.deliverer.round()
    assert len(bench.http.unanswered) == PLAIN.connections_per_endpoint


async def test_every_place_is_free_again_when_everything_is_done() -> None:
    bench = Bench()
    endpoints = await bench.prepare(3)
    for endpoint in endpoints:
        await bench.accept(endpoint, 30)
    for _ in range(60):
        await bench.deliver()
    assert (await count_states(bench.store))[D.DELIVERED] == 90
    assert (bench.deliverer.buffer.busy, bench.deliverer.buffer.waiting, bench.deliverer.in_flight) == (0, 0, {})


async def test_endpoints_of_which_nothing_is_held_are_forgotten() -> None:
    bench = Bench()
    endpoints = await bench.prepare(4)
    for endpoint in endpoints:
        await bench.accept(endpoint)
    await bench.deliver()
    bench.clock.advance(1)
    await bench.deliverer.round()
    assert not bench.deliverer.buffer._endpoints


async def test_what_has_expired_leaves_its_place_to_the_next_at_once() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(concurrency_max=1)
    stale = await bench.accept(endpoint, 1, expires_at=bench.clock.now(), correlation_id="order-17")
    fresh = await bench.accept(endpoint, 1)
    await bench.store.act(_retry(bench, [*stale, *fresh]))  # a retry claims both together, regardless of limits
    await bench.deliverer.round()
    assert [one.claim.delivery_id for one in bench.http.started] == fresh
    await bench.write_down()
    assert (await bench.delivery(stale[0])).code == Code.EXPIRED
    (row,) = await bench.store.find(bench.org.org_id, DeliveryAttempts(delivery_id=stale[0]))
    assert row.request_headers == b"x-correlation-id: order-17"


async def test_a_secret_that_this_worker_cannot_open_costs_no_attempt_and_no_further_claims() -> None:
    bench = Bench()
    (good,) = await bench.prepare()
    bad = (await bench.prepare(secrets=(SigningSecret(b"sealed with another key"),)))[0]
    (unsealable,) = await bench.accept(bad)
    (fine,) = await bench.accept(good)
    await bench.deliver()
    assert (await bench.delivery(fine)).state is D.DELIVERED
    delivery = await bench.delivery(unsealable)
    assert (delivery.state, delivery.attempt, delivery.code) == (D.PENDING, 0, None)
    assert bench.deliverer.buffer.busy == 0
    await bench.store.act(_retry(bench, [unsealable]))
    await bench.deliver()
    assert not bench.deliverer.buffer.waiting_of(bad.endpoint_id)
    delivery = await bench.delivery(unsealable)
    assert (delivery.state, delivery.attempt) == (D.PENDING, 0)
    assert await bench.store.find(bench.org.org_id, DeliveryAttempts(delivery_id=unsealable)) == []
    assert [notice.level for notice in bench.heard(Notice)] == ["error"], "said once"


# -- leases ------------------------------------------------------------------------------------------------


async def test_a_claim_whose_lease_no_longer_covers_a_try_is_handed_back_untried() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(timeout_seconds=20)
    first, second = await bench.accept(endpoint, 2)
    await bench.store.act(_retry(bench, [first, second]))
    await bench.deliverer._claimer.claim()  # both are in the buffer; then the process is frozen
    bench.clock.advance(PLAIN.lease_seconds - 19)
    bench.deliverer._fill_slots()
    await bench.write_down()
    assert not bench.http.started
    for delivery_id in (first, second):
        delivery = await bench.delivery(delivery_id)
        assert (delivery.state, delivery.attempt) == (D.PENDING, 0)
    assert bench.deliverer.buffer.busy == 0


@pytest.mark.parametrize(("left", "begun"), [(20.249, 0), (20.25, 1)])
async def test_a_try_begins_only_if_its_lease_leaves_time_to_write_its_result_after_its_timeout(
    left: float, begun: int
) -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(timeout_seconds=20)
    await bench.accept(endpoint)
    await bench.deliverer._claimer.claim()
    bench.clock.advance(PLAIN.lease_seconds - left)
    bench.deliverer._fill_slots()
    assert len(bench.http.started) == begun


async def test_the_longest_timeout_that_a_lease_allows_is_not_handed_back_for_ever_by_a_slow_store() -> None:
    """The lease starts after the lanes are read; the claim itself may take as long as the lease's slack allows."""
    longest = Settings(lease_seconds=PLAIN.lease_seconds, timeout_seconds=1).timeout_seconds_max
    bench = Bench()
    (endpoint,) = await bench.prepare(timeout_seconds=longest)
    await bench.accept(endpoint)
    bench.failing.slow = {"due_lanes": 5, "claim": 0.7}
    await bench.deliverer.round()
    assert len(bench.http.started) == 1


async def test_a_result_after_the_lease_changes_nothing_and_is_told_as_late() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliverer.round()
    bench.clock.advance(61)
    await _reclaim_all(bench)
    bench.clock.advance(1)
    await bench.deliverer.round()
    held = await bench.delivery(delivery_id)
    bench.http.answer(404, count=1)  # the first attempt, which was considered lost
    await bench.write_down()
    assert await bench.delivery(delivery_id) == held
    rows = await bench.store.find(bench.org.org_id, DeliveryAttempts(delivery_id=delivery_id))
    assert [(row.number, row.late) for row in rows] == [(1, False), (1, True)]


async def test_of_a_late_and_a_good_result_in_one_batch_only_the_late_one_is_told_as_late() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint)
    await bench.deliverer.round()
    bench.clock.advance(61)
    await _reclaim_all(bench)
    bench.clock.advance(1)
    await bench.deliverer.round()
    bench.facts.clear()
    bench.http.answer(200)
    await bench.write_down()
    told = [(type(fact).__name__, getattr(fact, "new_state", None)) for fact in bench.facts]
    assert told.count(("LateSettle", None)) == 1
    assert ("DeliveryTransition", "delivered") in told


async def _reclaim_all(bench: Bench) -> None:
    assert await reclaim(bench.store, bench.directory, bench.deliverer.settler, bench.clock.now(), lambda: 0.0) == 1


# -- results -----------------------------------------------------------------------------------------------


async def test_results_are_kept_until_the_store_takes_them() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliverer.round()
    bench.http.answer()
    bench.failing.away = {"settle"}
    for _ in range(3):
        assert "settle is away" in str(await _failure_of_settler(bench))
        assert bench.deliverer.settler.backlog == 1
    bench.failing.away.clear()
    await bench.write_down()
    assert (await bench.delivery(delivery_id)).state is D.DELIVERED


async def test_results_that_are_written_are_not_written_again_because_a_circuit_could_not_be() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliverer.round()
    bench.http.answer(503)
    bench.failing.away = {"put_circuit"}
    assert "put_circuit is away" in str(await _failure_of_settler(bench))
    assert bench.deliverer.settler.backlog == 0
    assert len(await bench.store.find(bench.org.org_id, DeliveryAttempts(delivery_id=delivery_id))) == 1


async def test_with_too_much_unwritten_nothing_new_is_claimed() -> None:
    bench = Bench(msgspec.structs.replace(PLAIN, slots=12_000, connections_per_endpoint=6_000))
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, 5_001)
    await bench.deliverer.round()
    bench.http.answer()
    await bench.accept(endpoint)
    assert await bench.deliverer.round() == bench.clock.now() + SECOND // 20
    assert bench.failing.calls.count("claim") == 1


async def test_a_success_counts_even_if_the_endpoint_was_deleted_meanwhile_and_a_failure_is_final() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    won, lost = await bench.accept(endpoint, 2)
    await bench.deliverer.round()
    await put(bench.store, msgspec.structs.replace(endpoint, state=EndpointState.DELETED), 1)
    await bench.directory.refresh()
    bench.http.answer(200, count=1)
    bench.http.answer(503)
    await bench.write_down()
    assert sorted(await bench.states([won, lost])) == sorted([D.DELIVERED, D.DEAD])


async def test_a_worker_asks_for_more_when_half_of_what_it_holds_is_done() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, 20)
    await bench.deliverer.round()
    bench.woken = 0
    bench.http.answer(count=1)
    assert bench.woken == 0
    bench.http.answer(count=1)
    assert bench.woken == 1


async def test_a_failure_is_told_with_its_next_retry() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint, correlation_id="from-the-request")
    await bench.deliver(503)
    (failure,) = bench.heard(DeliveryFailure)
    assert failure.delivery_id == delivery_id
    assert failure.next_retry_at == to_iso(bench.clock.now() + 60 * SECOND)
    assert failure.correlation_id == "from-the-request"
    assert [fact.new_state for fact in bench.heard(DeliveryTransition)] == ["in_progress", "pending"]


# -- circuits ----------------------------------------------------------------------------------------------


async def test_what_was_claimed_ahead_goes_back_uncounted_when_the_circuit_opens() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(concurrency_max=1, circuit=CircuitRules(failures_max=1))
    ids = await bench.accept(endpoint, 3)
    await bench.store.act(_retry(bench, ids))
    await bench.deliverer.round()
    assert (len(bench.http.unanswered), bench.deliverer.buffer.waiting) == (1, 2)
    bench.http.fail(Code.CONNECTION)  # the second gets its slot before the circuit is written
    await bench.write_down()
    deliveries = [await bench.delivery(one) for one in ids]
    seen = sorted((one.attempt, one.state) for one in deliveries)
    assert seen == [(0, D.PENDING), (1, D.IN_PROGRESS), (1, D.PENDING)]


async def test_claims_that_cannot_be_handed_back_now_are_handed_back_later() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(concurrency_max=1, circuit=CircuitRules(failures_max=1))
    ids = await bench.accept(endpoint, 3)
    await bench.store.act(_retry(bench, ids))
    await bench.deliverer.round()
    bench.http.fail(Code.CONNECTION)
    bench.failing.away = {"release"}
    assert "release is away" in str(await _failure_of_settler(bench))
    assert bench.deliverer.settler.backlog == 1
    bench.failing.away.clear()
    await bench.write_down()
    assert (await count_states(bench.store))[D.IN_PROGRESS] == 1


def _retry(bench: Bench, ids: Sequence[UUID]) -> Action:
    now = bench.clock.now()
    return Action(
        kind=ActionKind.RETRY, org_id=bench.org.org_id, delivery_ids=tuple(ids), actor="ops", at=now, revive_at=now
    )


async def _failure_of_settler(bench: Bench) -> Exception | None:
    try:
        await bench.deliverer.settler.run_once()
    except Exception as error:  # noqa: BLE001 - the test looks at whatever it was
        return error
    return None


async def test_one_reply_that_cannot_be_judged_does_not_take_the_others_along() -> None:
    bench = Bench()
    odd, plain = await bench.prepare(2)
    await put(bench.store, msgspec.structs.replace(odd, policy=RetryPolicy((1,), deadline_seconds=1e303)), 1)
    await bench.directory.refresh()
    (lost,) = await bench.accept(odd)
    (kept,) = await bench.accept(plain)
    await bench.deliver(503)

    assert await bench.states([lost, kept]) == [DeliveryState.IN_PROGRESS, DeliveryState.PENDING]
    assert bench.deliverer.buffer.busy == 0
    bench.clock.advance(bench.tuning.lease_seconds + 1)
    assert await reclaim(bench.store, bench.directory, bench.deliverer.settler, bench.clock.now(), lambda: 0.0) == 1
    assert await bench.states([lost]) == [DeliveryState.DEAD]
