"""Circuits: they count results, let one probe at a time through, and disable endpoints that keep failing."""

from __future__ import annotations

import msgspec
import pytest

from doorstep.clock import DAY, SECOND
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, CircuitRules, CircuitState, Endpoint, EndpointState
from doorstep.telemetry.facts import CircuitTransition, EndpointDisabled
from tests.support.builders import new_id
from tests.support.shortcuts import count_states, put
from tests.support.transports import FakeTransport
from tests.unit.engine.scene import PLAIN, Bench

_QUICK = CircuitRules(failures_max=2, probe_seconds_min=10, open_seconds=10)


async def opened(bench: Bench, rules: CircuitRules = _QUICK) -> Endpoint:
    """Return an endpoint whose circuit has just opened and that has no waiting delivery."""
    (endpoint,) = await bench.prepare(circuit=rules, policy=msgspec.structs.replace(PLAIN.policy, delays=()))
    await bench.accept(endpoint, rules.failures_max)
    await bench.deliver(503)
    assert (await bench.store.get(Circuit, None, endpoint.endpoint_id)).state is CircuitState.OPEN
    return endpoint


async def test_a_healthy_endpoint_costs_no_question_and_no_write() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, 3)
    await bench.deliver()
    assert not {"get Circuit", "put_circuit"} & set(bench.failing.calls)


async def test_failures_of_one_batch_open_the_circuit_and_it_is_told_once() -> None:
    bench = Bench()
    endpoint = await opened(bench)
    (told,) = bench.heard(CircuitTransition)
    assert (told.endpoint_id, told.old_state, told.new_state) == (endpoint.endpoint_id, "closed", "open")


async def test_while_it_is_open_nothing_is_tried_and_no_attempt_is_used() -> None:
    bench = Bench()
    endpoint = await opened(bench)
    (delivery_id,) = await bench.accept(endpoint)
    bench.http.started.clear()
    for _ in range(9):
        bench.clock.advance(1)
        await bench.deliverer.round()
    assert not bench.http.started
    assert (await bench.delivery(delivery_id)).attempt == 0


async def test_after_the_pause_exactly_one_probe_goes_though_many_wait_and_many_ask() -> None:
    bench = Bench()
    endpoint = await opened(bench)
    await bench.accept(endpoint, 20)
    other_http = FakeTransport(bench.clock)
    other = bench.another_worker("w2", other_http)
    bench.http.started.clear()
    bench.clock.advance(10)
    for _ in range(5):
        await bench.deliverer.round()
        await other.round()
    assert len(bench.http.started) + len(other_http.started) == 1


async def test_a_probe_that_succeeds_closes_the_circuit_even_if_nothing_else_waits() -> None:
    bench = Bench()
    endpoint = await opened(bench)
    await bench.accept(endpoint)
    bench.clock.advance(10)
    await bench.deliverer.round()
    assert len(bench.http.unanswered) == 1
    await bench.deliverer.round()  # the endpoint has no lane now: its only delivery is the probe
    bench.http.answer()
    await bench.write_down()
    assert (await bench.store.get(Circuit, None, endpoint.endpoint_id)).state is CircuitState.CLOSED


async def test_a_success_between_failures_resets_the_count_even_if_nothing_else_waits() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(circuit=CircuitRules(failures_max=3))
    await bench.accept(endpoint, 2)
    await bench.deliver(503)
    await bench.accept(endpoint, 1)
    await bench.deliverer.round()
    await bench.deliverer.round()
    bench.http.answer()
    await bench.write_down()
    assert (await bench.store.get(Circuit, None, endpoint.endpoint_id)).failures == 0


async def test_a_probe_that_fails_opens_the_circuit_again() -> None:
    bench = Bench()
    endpoint = await opened(bench)
    await bench.accept(endpoint, 2)
    bench.clock.advance(10)
    await bench.deliver(503)
    circuit = await bench.store.get(Circuit, None, endpoint.endpoint_id)
    assert (circuit.state, circuit.until) == (CircuitState.OPEN, bench.clock.now() + 10 * SECOND)


async def test_a_probe_that_is_never_heard_of_again_is_followed_by_another() -> None:
    bench = Bench()
    endpoint = await opened(bench)
    await bench.accept(endpoint, 2)
    bench.clock.advance(10)
    await bench.deliverer.round()
    bench.http.started.clear()
    bench.clock.advance(PLAIN.timeout_seconds + 5)
    other_http = FakeTransport(bench.clock)
    await bench.another_worker("w2", other_http).round()
    assert len(other_http.started) == 1


async def test_a_probe_whose_result_does_not_count_is_followed_by_another_at_once() -> None:
    """Found by seed 20527: a receiver that rejects every payload got only one delivery per timeout plus 5 seconds."""
    bench = Bench()
    endpoint = await opened(bench)
    await bench.accept(endpoint, 3)
    bench.clock.advance(10)
    for _ in range(3):
        await bench.deliver(422)
        bench.clock.advance(0.5)
    assert (await count_states(bench.store))[DeliveryState.PENDING] == 0
    circuit = await bench.store.get(Circuit, None, endpoint.endpoint_id)
    assert (circuit.state, circuit.failures) == (CircuitState.HALF_OPEN, 2)


async def test_the_right_to_a_probe_is_not_spent_where_there_is_no_place_for_it() -> None:
    bench = Bench()
    endpoint = await opened(bench)
    await bench.accept(endpoint)
    bench.clock.advance(10)
    others = bench.deliverer.buffer[new_id()]
    others.busy = PLAIN.slots
    await bench.deliverer.round()
    assert (await bench.store.get(Circuit, None, endpoint.endpoint_id)).state is CircuitState.OPEN
    others.busy = 0
    await bench.deliverer.round()
    assert len(bench.http.unanswered) == 1


async def test_gone_disables_the_endpoint_and_holds_what_waits() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(concurrency_max=1)
    _, waiting = await bench.accept(endpoint, 2)
    await bench.deliver(410)
    disabled = await bench.store.get(Endpoint, endpoint.org_id, endpoint.endpoint_id)
    assert disabled.state is EndpointState.DISABLED
    assert "410 Gone" in disabled.state_reason
    await bench.deliverer.round()
    assert (await bench.delivery(waiting)).state is DeliveryState.PENDING
    assert len(bench.heard(EndpointDisabled)) == 1


async def test_five_days_without_one_success_disable_the_endpoint() -> None:
    bench = Bench()
    rules = CircuitRules(failures_max=1, open_seconds=1)
    endpoint = await opened(bench, rules)
    for _ in range(5):
        bench.clock.advance(DAY / SECOND)
        await bench.accept(endpoint)
        await bench.deliver(503)
    disabled = await bench.store.get(Endpoint, endpoint.org_id, endpoint.endpoint_id)
    assert disabled.state is EndpointState.DISABLED
    assert "5 days" in disabled.state_reason


async def test_an_endpoint_that_nobody_tried_for_five_days_was_not_failing_all_the_while() -> None:
    bench = Bench()
    endpoint = await opened(bench, CircuitRules(failures_max=1, open_seconds=1))
    await bench.accept(endpoint)
    bench.clock.advance(5 * DAY / SECOND)
    await bench.deliver(503)
    assert (await bench.store.get(Endpoint, endpoint.org_id, endpoint.endpoint_id)).state is EndpointState.ACTIVE


@pytest.mark.parametrize("state", [EndpointState.PAUSED, EndpointState.DELETED])
async def test_an_endpoint_that_a_person_has_stopped_is_not_disabled_over_their_head(state: EndpointState) -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint)
    await bench.deliverer.round()
    await put(bench.store, msgspec.structs.replace(endpoint, state=state), 1)
    bench.http.answer(410)
    await bench.write_down()
    assert (await bench.store.get(Endpoint, endpoint.org_id, endpoint.endpoint_id)).state is state


async def test_a_count_that_another_worker_wrote_meanwhile_is_counted_on() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(circuit=CircuitRules(failures_max=9))
    await bench.accept(endpoint)
    await bench.deliverer.round()
    await bench.store.put_circuit(Circuit(endpoint_id=endpoint.endpoint_id, failures=4), 0)
    bench.http.answer(503)
    await bench.write_down()
    assert (await bench.store.get(Circuit, None, endpoint.endpoint_id)).failures == 5
