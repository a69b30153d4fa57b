"""R6: the circuit breaker; disabled and deleted endpoints."""

from __future__ import annotations

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import DAY, SECOND, Instant, seconds, to_iso
from doorstep.engine.directory import Tuning
from doorstep.model.action import ActionKind
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Circuit, CircuitRules, CircuitState, Endpoint, EndpointState
from doorstep.model.listing import AuditFilter
from doorstep.telemetry.facts import CircuitTransition, EndpointDisabled
from tests.support.loop_receiver import Answer, Request
from tests.support.scene import Scene, until
from tests.support.shortcuts import count_states

_S = DeliveryState
_C = CircuitState
FIVE_MINUTES = 300.0
ONE_DAY = DAY / SECOND
CONNECTIONS_PER_ENDPOINT = Tuning().connections_per_endpoint


# -- R6.1: opening -----------------------------------------------------------------------------------------


async def test_after_five_consecutive_failures_a_circuit_opens_for_as_long_as_its_rules_say(scene: Scene) -> None:
    endpoint = await _endpoint(scene)
    await _fail(scene, endpoint, 4)
    assert (await _circuit(scene, endpoint)).state is _C.CLOSED
    await _fail(scene, endpoint, 1)
    circuit = await _circuit(scene, endpoint)
    assert (circuit.state, circuit.failures) == (_C.OPEN, 5)
    assert (circuit.until or 0) - circuit.changed_at == seconds(FIVE_MINUTES)


async def test_both_numbers_are_settings_of_the_endpoint(scene: Scene) -> None:
    endpoint = await _endpoint(scene, circuit=CircuitRules(failures_max=2, probe_seconds_min=30, open_seconds=30))
    await _fail(scene, endpoint, 2)
    circuit = await _circuit(scene, endpoint)
    assert circuit.state is _C.OPEN
    assert (circuit.until or 0) - circuit.changed_at == seconds(30)


async def test_by_default_a_receiver_that_blinked_is_probed_after_a_second(scene: Scene) -> None:
    endpoint = await _endpoint(scene, circuit=CircuitRules())
    await _fail(scene, endpoint, 5)
    circuit = await _circuit(scene, endpoint)
    assert (circuit.until or 0) - circuit.changed_at == seconds(1)


async def test_a_circuit_can_be_switched_off(scene: Scene) -> None:
    endpoint = await _endpoint(scene, circuit=CircuitRules(enabled=False))
    await _fail(scene, endpoint, 8)
    assert (await _circuit(scene, endpoint)).state is _C.CLOSED


async def test_all_circuits_can_be_switched_off_by_a_setting(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.close()
    monkeypatch.setenv("DOORSTEP_CIRCUITS", "false")
    await scene.open()
    endpoint = await _endpoint(scene)
    await _fail(scene, endpoint, 8)
    assert (await _circuit(scene, endpoint)).state is _C.CLOSED


async def test_a_success_resets_the_count(scene: Scene) -> None:
    endpoint = await _endpoint(scene)
    await _fail(scene, endpoint, 4)
    await _succeed(scene, endpoint)
    await _fail(scene, endpoint, 4)
    circuit = await _circuit(scene, endpoint)
    assert (circuit.state, circuit.failures) == (_C.CLOSED, 4)


@pytest.mark.parametrize("status", [400, 422])
async def test_failures_that_blame_the_payload_do_not_count(scene: Scene, status: int) -> None:
    endpoint = await _endpoint(scene)
    await _fail(scene, endpoint, 8, status=status)
    circuit = await _circuit(scene, endpoint)
    assert (circuit.state, circuit.failures) == (_C.CLOSED, 0)
    await _succeed(scene, endpoint)


# -- R6.1: while it is open --------------------------------------------------------------------------------


async def test_while_a_circuit_is_open_deliveries_are_visibly_held_and_use_up_no_attempts(scene: Scene) -> None:
    endpoint = await _opened(scene)
    waiting = await scene.send_to(endpoint, 3)
    scene.leap(FIVE_MINUTES - 10)
    await scene.nothing_more_arrives()
    until_at = (await _circuit(scene, endpoint)).until or 0
    for delivery in waiting:
        held = await scene.delivery(delivery)
        assert (held.state, held.attempt, held.retry_attempts) == (_S.PENDING, 0, 0)
        sentence = await _held(scene, held)
        assert sentence == f"The endpoint's circuit is open until {to_iso(until_at)}, after 5 failures in a row."
        assert len(await scene.history(delivery)) == 1


async def test_what_is_not_held_says_so(scene: Scene) -> None:
    endpoint = await _endpoint(scene, policy="standard")
    delivery = await _fail(scene, endpoint, 1)
    assert await _held(scene, delivery) is None
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "ops", "for repairs")
    assert await _held(scene, delivery) == "The endpoint is paused: for repairs"


async def test_an_operators_retry_goes_through_an_open_circuit_and_its_success_closes_it(scene: Scene) -> None:
    endpoint = await _opened(scene)
    first, second = await scene.send_to(endpoint, 2)
    scene.receiver.says(200)
    await scene.act(ActionKind.RETRY, first)
    await scene.until_state(first, _S.DELIVERED)
    await scene.until_state(second, _S.DELIVERED)
    assert (await _circuit(scene, endpoint)).state is _C.CLOSED


async def test_an_operators_retry_that_fails_leaves_the_circuit_open(scene: Scene) -> None:
    endpoint = await _opened(scene)
    first, second = await scene.send_to(endpoint, 2)
    await scene.act(ActionKind.RETRY, first)
    await scene.until_tried(first)
    await scene.nothing_more_arrives()
    assert ((await _circuit(scene, endpoint)).state, (await scene.delivery(second)).attempt) == (_C.OPEN, 0)


# -- R6.1: letting it back in ------------------------------------------------------------------------------


async def test_after_the_pause_one_probe_goes_though_several_workers_look(scene: Scene) -> None:
    await scene.open()
    await scene.open()
    endpoint = await _opened(scene)
    await scene.send_to(endpoint, 20)
    before = len(scene.receiver.requests)
    scene.receiver.hold.clear()
    scene.leap(FIVE_MINUTES)
    await scene.until_received(before + 1)
    await scene.nothing_more_arrives(1.2)
    assert (await _circuit(scene, endpoint)).state is _C.HALF_OPEN


async def test_a_probe_that_fails_opens_the_circuit_for_another_five_minutes(scene: Scene) -> None:
    endpoint = await _opened(scene)
    await scene.send_to(endpoint, 5)
    before = len(scene.receiver.requests)
    scene.leap(FIVE_MINUTES)
    await scene.until_received(before + 1)
    await scene.nothing_more_arrives()
    circuit = await _circuit(scene, endpoint)
    assert circuit.state is _C.OPEN
    assert scene.clock.now() < (circuit.until or 0) <= scene.clock.now() + seconds(FIVE_MINUTES)


async def test_a_probe_that_succeeds_closes_the_circuit_and_the_rest_is_ramped_up(scene: Scene) -> None:
    """One attempt at a time, then two, four and so on: twice as many in each quarter of a second."""
    endpoint = await _opened(scene)
    await scene.send_to(endpoint, 200)
    crowds: list[tuple[Instant, int]] = []

    def count(_: Request) -> Answer:
        crowds.append((scene.clock.now(), scene.receiver.in_flight))
        return Answer()

    scene.receiver.answer = count
    scene.receiver.pause_seconds = 0.05
    scene.leap(FIVE_MINUTES)
    await until(lambda: _none_waits(scene), "the rest")
    closed_at = (await _circuit(scene, endpoint)).changed_at
    assert len(crowds) == 200
    assert all(crowd <= 1 << max(0, (at - closed_at) // (SECOND // 4)) for at, crowd in crowds), crowds


async def test_the_history_of_a_circuit_can_be_read_and_every_change_was_told(scene: Scene) -> None:
    endpoint = await _opened(scene)
    await scene.send_to(endpoint, 1)
    scene.leap(FIVE_MINUTES)
    await until(lambda: _changes(scene, endpoint, 3), "a failed probe")
    scene.receiver.says(200)
    await scene.send_to(endpoint, 1)
    scene.leap(FIVE_MINUTES)
    await until(lambda: _changes(scene, endpoint, 5), "a good probe")
    history = await scene.doorstep.components.reader.circuit_history(DEFAULT_ORG, endpoint.endpoint_id)
    changes = [(line.old_state, line.new_state) for line in history]
    assert changes == [
        (_C.CLOSED, _C.OPEN),
        (_C.OPEN, _C.HALF_OPEN),
        (_C.HALF_OPEN, _C.OPEN),
        (_C.OPEN, _C.HALF_OPEN),
        (_C.HALF_OPEN, _C.CLOSED),
    ]
    assert [line.at for line in history] == sorted(line.at for line in history)
    assert history[0].reason == "5 failures in a row"
    assert [(fact.old_state, fact.new_state) for fact in scene.heard(CircuitTransition)] == changes


# -- R6.2 --------------------------------------------------------------------------------------------------


async def test_an_endpoint_that_fails_for_five_days_is_disabled_told_and_its_deliveries_are_held(
    scene: Scene,
) -> None:
    endpoint = await _endpoint(scene)
    for _ in range(5):
        await _fail(scene, endpoint, 1)
        assert (await _state(scene, endpoint)) is EndpointState.ACTIVE
        scene.leap(ONE_DAY)
    await _fail(scene, endpoint, 1)
    disabled = await scene.until_endpoint(endpoint, EndpointState.DISABLED)
    assert disabled.state_reason == "It failed for 5 days without a single success."
    await until(lambda: bool(scene.heard(EndpointDisabled)), "someone to be told")
    (told,) = scene.heard(EndpointDisabled)
    assert (told.endpoint_id, told.reason) == (endpoint.endpoint_id, disabled.state_reason)
    (held,) = await scene.send_to(endpoint)
    await scene.nothing_more_arrives()
    held = await scene.delivery(held)
    assert (held.state, held.attempt) == (_S.PENDING, 0)
    assert await _held(scene, held) == f"The endpoint is disabled: {disabled.state_reason}"


async def test_two_failures_five_days_apart_disable_nothing(scene: Scene) -> None:
    endpoint = await _endpoint(scene)
    await _fail(scene, endpoint, 5)
    scene.leap(5 * ONE_DAY)
    await _fail(scene, endpoint, 1)
    assert (await _circuit(scene, endpoint)).state is _C.OPEN
    assert (await _state(scene, endpoint)) is EndpointState.ACTIVE


async def test_one_success_within_the_five_days_keeps_an_endpoint_enabled(scene: Scene) -> None:
    endpoint = await _endpoint(scene)
    for day in range(8):
        await (_succeed(scene, endpoint) if day == 4 else _fail(scene, endpoint, 1))
        scene.leap(ONE_DAY)
    assert (await _state(scene, endpoint)) is EndpointState.ACTIVE
    assert scene.heard(EndpointDisabled) == []


async def test_re_enabling_drains_what_was_held_and_begins_to_count_the_days_anew(scene: Scene) -> None:
    endpoint = await _disabled(scene)
    held = await scene.send_to(endpoint, 5)
    scene.receiver.says(503, 200)
    await scene.doorstep.components.endpoints.resume(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    await until(lambda: _none_waits(scene), "the drain")
    assert (await _state(scene, endpoint)) is EndpointState.ACTIVE, "one failure does not disable it again"
    states = sorted([(await scene.delivery(one)).state for one in held])
    assert states == [_S.DEAD, *[_S.DELIVERED] * 4]
    (line, *_) = (await scene.doorstep.components.store.page(DEFAULT_ORG, AuditFilter())).items
    assert (line.actor, line.action, line.subjects) == ("ops", "endpoint.resume", (str(endpoint.endpoint_id),))


async def test_re_enabling_can_drain_at_so_many_a_second_and_new_events_are_not_slowed_afterwards(
    scene: Scene,
) -> None:
    endpoint = await _disabled(scene)
    await scene.send_to(endpoint, 20)
    scene.receiver.says(200)
    scene.receiver.requests.clear()
    await scene.doorstep.components.endpoints.resume(DEFAULT_ORG, endpoint.endpoint_id, "ops", drain_per_second=20)
    await scene.until_received(20)
    times = [request.at for request in scene.receiver.requests]
    assert times[-1] - times[0] > (20 - 2 - 1) / 20 - 0.2
    scene.leap(30)  # past the circuit's ramp-up, so that only the drain rate could slow it down
    await scene.send_to(endpoint, 20)
    await scene.until_received(40)
    times = [request.at for request in scene.receiver.requests[20:]]
    assert times[-1] - times[0] < 0.5


async def test_re_enabling_can_skip_what_is_too_old_which_is_still_found_among_the_dead_letters(scene: Scene) -> None:
    endpoint = await _disabled(scene)
    (old,) = await scene.send_to(endpoint)
    scene.leap(60)
    border = scene.clock.now()
    (new,) = await scene.send_to(endpoint)
    scene.receiver.says(200)
    await scene.doorstep.components.endpoints.resume(DEFAULT_ORG, endpoint.endpoint_id, "ops", skip_older_than=border)
    await scene.until_state(new, _S.DELIVERED)
    skipped = await scene.delivery(old)
    assert (skipped.state, skipped.code, skipped.attempt) == (_S.DEAD, "SKIPPED", 0)
    assert skipped.reason == f"Skipped on resume: accepted before {to_iso(border)}."


async def test_a_paused_endpoint_gets_nothing_more_not_even_of_what_was_claimed_already(scene: Scene) -> None:
    """Only attempts already in progress still arrive. Claims made in advance are handed back, with no attempt used."""
    scene.receiver.pause_seconds = 0.02
    endpoint = await _endpoint(scene)
    await _send_many(scene, 1_500)
    await scene.until_received(500)
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    arrived = len(scene.receiver.requests)
    await until(lambda: _none_in_progress(scene), "the end of what was under way")
    assert len(scene.receiver.requests) <= arrived + CONNECTIONS_PER_ENDPOINT
    tally = await count_states(scene.doorstep.components.store)
    assert tally == dict.fromkeys(DeliveryState, 0) | {
        _S.DELIVERED: len(scene.receiver.requests),
        _S.PENDING: 1_500 - len(scene.receiver.requests),
    }


# -- R6.3 --------------------------------------------------------------------------------------------------


async def test_the_waiting_deliveries_of_a_deleted_endpoint_become_dead_letters_that_say_why(scene: Scene) -> None:
    endpoint = await _endpoint(scene, policy="standard")
    waiting = await _fail(scene, endpoint, 1)
    await scene.doorstep.components.endpoints.delete(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    dead = await scene.delivery(waiting)
    assert (dead.state, dead.code, dead.attempt) == (_S.DEAD, "ENDPOINT_DELETED", 1)
    assert dead.reason == "The endpoint was deleted while the delivery was waiting."
    assert (await scene.send()).deliveries == 0


async def test_what_was_under_way_to_a_deleted_endpoint_ends_too(scene: Scene) -> None:
    scene.receiver.hold.clear()
    scene.receiver.says(503)
    endpoint = await _endpoint(scene)
    (delivery,) = await scene.send_to(endpoint)
    await scene.until_received(1)
    await scene.doorstep.components.endpoints.delete(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    scene.receiver.hold.set()
    await scene.until_state(delivery, _S.DEAD)


# -- helpers -----------------------------------------------------------------------------------------------


async def _endpoint(scene: Scene, **fields: object) -> Endpoint:
    """An endpoint without automatic retries, so that each event is one failure."""
    return await scene.endpoint(**{"policy": [], "circuit": CircuitRules(probe_seconds_min=300)} | fields)


async def _opened(scene: Scene) -> Endpoint:
    endpoint = await _endpoint(scene)
    await _fail(scene, endpoint, 5)
    assert (await _circuit(scene, endpoint)).state is _C.OPEN
    return endpoint


async def _disabled(scene: Scene) -> Endpoint:
    endpoint = await _endpoint(scene)
    for _ in range(5):
        await _fail(scene, endpoint, 1)
        scene.leap(ONE_DAY)
    await _fail(scene, endpoint, 1)
    return await scene.until_endpoint(endpoint, EndpointState.DISABLED)


async def _fail(scene: Scene, endpoint: Endpoint, times: int, status: int = 503) -> Delivery:
    """Cause failures one after another; return the last delivery once its failure has been counted."""
    scene.receiver.says(status)
    for _ in range(times):
        before = await _circuit(scene, endpoint)
        (delivery,) = await scene.send_to(endpoint)
        delivery = await scene.until_tried(delivery)
        if status not in (400, 422):
            await until(lambda before=before: _counted(scene, endpoint, before), "the failure to be counted")
    return delivery


async def _succeed(scene: Scene, endpoint: Endpoint) -> None:
    scene.receiver.says(200)
    before = await _circuit(scene, endpoint)
    (delivery,) = await scene.send_to(endpoint)
    await scene.until_state(delivery, _S.DELIVERED)
    if before.failures:
        await until(lambda: _counted(scene, endpoint, before), "the success to be counted")


async def _counted(scene: Scene, endpoint: Endpoint, before: Circuit) -> bool:
    """Whether the result has been counted. A probe writes the circuit when it starts and when its result is counted."""
    circuit = await _circuit(scene, endpoint)
    return circuit.version > before.version and circuit.state is not _C.HALF_OPEN


async def _send_many(scene: Scene, count: int) -> None:
    for part in range(0, count, 500):
        await scene.doorstep.send_many([("order.paid", {})] * min(500, count - part))


async def _circuit(scene: Scene, endpoint: Endpoint) -> Circuit:
    return await scene.doorstep.components.reader.circuit(endpoint.org_id, endpoint.endpoint_id)


async def _changes(scene: Scene, endpoint: Endpoint, count: int) -> bool:
    return len(await scene.doorstep.components.reader.circuit_history(endpoint.org_id, endpoint.endpoint_id)) >= count


async def _state(scene: Scene, endpoint: Endpoint) -> EndpointState:
    return (await scene.doorstep.components.reader.endpoint(endpoint.org_id, endpoint.endpoint_id)).state


async def _none_waits(scene: Scene) -> bool:
    tally = await count_states(scene.doorstep.components.store)
    return tally[_S.PENDING] + tally[_S.IN_PROGRESS] == 0


async def _none_in_progress(scene: Scene) -> bool:
    return await scene.count(_S.IN_PROGRESS) == 0


async def _held(scene: Scene, delivery: Delivery) -> str | None:
    hold = (await scene.doorstep.components.reader.described_one(delivery)).held
    return hold and hold.reason
