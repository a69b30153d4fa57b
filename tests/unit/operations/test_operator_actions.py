"""Operator actions on endpoints and deliveries; every action is audited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from doorstep.clock import DAY, SECOND
from doorstep.engine.accept import Accepter, Draft
from doorstep.engine.directory import create_endpoint
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import ActionKind
from doorstep.model.attempt import Code
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, CircuitRules, CircuitState, Endpoint, EndpointState
from doorstep.model.listing import AuditFilter
from doorstep.operations.actions import DeliveryActions, EventActions
from doorstep.operations.endpoint_rules import EndpointRules
from doorstep.operations.endpoints import EndpointService
from doorstep.telemetry.facts import CircuitTransition, EndpointDisabled, StatusTransition
from doorstep.transports.address_guard import AddressGuard
from tests.support.builders import NOW, an_endpoint, new_id
from tests.support.shortcuts import count_states, put
from tests.unit.engine.scene import PLAIN, Bench


def actions_of(bench: Bench) -> DeliveryActions:
    return DeliveryActions(bench.store, bench.clock, bench.tuning, bench.telemetry)


def endpoints_of(bench: Bench) -> EndpointService:
    rules = EndpointRules(bench.sealer, AddressGuard(), 60.0)
    return EndpointService(bench.store, bench.directory, bench.clock, rules, bench.telemetry)


async def test_a_dead_letter_that_is_retried_is_due_in_five_seconds_in_a_new_round() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliver(404)
    result = await actions_of(bench).act(ActionKind.RETRY, bench.org.org_id, [delivery_id], "ops", "fixed")
    delivery = await bench.delivery(delivery_id)
    assert result.done == (delivery_id,)
    assert (delivery.state, delivery.due_at, delivery.retry_attempts) == (DeliveryState.PENDING, NOW + 5 * SECOND, 0)
    assert [change.new_status for change in bench.heard(StatusTransition)] == ["queued", "failed", "queued"]


async def test_an_act_on_nothing_is_refused_by_naming_the_field() -> None:
    with pytest.raises(InvalidInput, match="delivery_ids: must name at least one"):
        await actions_of(Bench()).act(ActionKind.RETRY, new_id(), [], "ops")


async def test_a_paused_endpoint_holds_its_deliveries_until_it_is_resumed() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    endpoints, ids = endpoints_of(bench), (endpoint.org_id, endpoint.endpoint_id)
    await endpoints.pause(*ids, "ops", "maintenance")
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliver()
    assert (await bench.delivery(delivery_id)).state is DeliveryState.PENDING
    await endpoints.resume(*ids, "ops")
    await bench.deliver()
    assert (await bench.delivery(delivery_id)).state is DeliveryState.DELIVERED
    assert [line.action for line in (await bench.store.page(endpoint.org_id, AuditFilter())).items] == [
        "endpoint.resume",
        "endpoint.pause",
    ]


async def test_a_resumed_endpoint_is_not_disabled_again_by_its_first_failure() -> None:
    bench = Bench()
    rules = CircuitRules(failures_max=1, open_seconds=1)
    (endpoint,) = await bench.prepare(circuit=rules, policy=msgspec.structs.replace(PLAIN.policy, delays=()))
    ids = (endpoint.org_id, endpoint.endpoint_id)
    for _ in range(6):
        await bench.accept(endpoint)
        await bench.deliver(503)
        bench.clock.advance(DAY / SECOND)
    assert (await bench.store.get(Endpoint, *ids)).state is EndpointState.DISABLED
    await endpoints_of(bench).resume(*ids, "ops")
    assert (await bench.store.get(Circuit, None, endpoint.endpoint_id)).state is CircuitState.CLOSED
    await bench.accept(endpoint)
    await bench.deliver(503)
    assert (await bench.store.get(Endpoint, *ids)).state is EndpointState.ACTIVE


async def test_resuming_can_skip_what_is_too_old_and_it_can_still_be_found() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(state=EndpointState.DISABLED)
    (old,) = await bench.accept(endpoint)
    bench.clock.advance(100)
    (new,) = await bench.accept(endpoint)
    await endpoints_of(bench).resume(endpoint.org_id, endpoint.endpoint_id, "ops", skip_older_than=NOW + 50 * SECOND)
    assert (await bench.delivery(old)).code == Code.SKIPPED
    assert await bench.states([old, new]) == [DeliveryState.DEAD, DeliveryState.PENDING]


async def test_resuming_can_drain_the_backlog_at_a_rate() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(state=EndpointState.PAUSED)
    endpoints, ids = endpoints_of(bench), (endpoint.org_id, endpoint.endpoint_id)
    resumed = await endpoints.resume(*ids, "ops", drain_per_second=2)
    assert (resumed.drain_per_second, resumed.drain_before) == (2, NOW)
    with pytest.raises(InvalidInput, match="drain_per_second: must be from 0.001 to 100000, got -1"):
        await endpoints.resume(*ids, "ops", drain_per_second=-1)


async def test_deleting_an_endpoint_buries_what_waits_and_cannot_be_done_twice() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    ids = await bench.accept(endpoint, 2_500)
    endpoints = endpoints_of(bench)
    await endpoints.delete(endpoint.org_id, endpoint.endpoint_id, "ops")
    assert (await count_states(bench.store))[DeliveryState.DEAD] == len(ids)
    with pytest.raises(Conflict, match="was deleted"):
        await endpoints.delete(endpoint.org_id, endpoint.endpoint_id, "ops")
    with pytest.raises(Conflict, match="was deleted"):
        await endpoints.resume(endpoint.org_id, endpoint.endpoint_id, "ops")


def during(bench: Bench, call: str, meanwhile: Callable[[], Awaitable[object]]) -> None:
    """Run `meanwhile`, as if by another process, on the next `call` to the store, before the store answers."""
    answer = getattr(bench.failing.kept, call.split()[0])

    async def late(*args: Any, **named: Any) -> Any:
        del bench.failing.answers[call]
        await meanwhile()
        return await answer(*args, **named)

    bench.failing.answers[call] = late


@pytest.mark.parametrize("call", ["dead_letter_waiting", "get Circuit", "write Endpoint"])
async def test_a_resumption_does_not_bring_back_what_was_deleted_meanwhile(call: str) -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(state=EndpointState.DISABLED)
    await bench.accept(endpoint)
    endpoints, ids = endpoints_of(bench), (endpoint.org_id, endpoint.endpoint_id)
    during(bench, call, lambda: endpoints_of(bench).delete(*ids, "another"))
    with pytest.raises(Conflict, match="was deleted"):
        await endpoints.resume(*ids, "ops", skip_older_than=NOW + 1)
    assert (await bench.store.get(Endpoint, *ids)).state is EndpointState.DELETED
    assert bench.directory.endpoint(endpoint.endpoint_id) is None
    audited = [(line.actor, line.action) for line in (await bench.store.page(endpoint.org_id, AuditFilter())).items]
    assert sorted(audited) == [("another", "endpoint.delete"), ("ops", "endpoint.skip")]


async def test_of_a_pause_during_a_resumption_the_operator_is_told_and_decides_again() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(state=EndpointState.DISABLED)
    endpoints, ids = endpoints_of(bench), (endpoint.org_id, endpoint.endpoint_id)
    during(bench, "get Circuit", lambda: endpoints_of(bench).pause(*ids, "another", "broken"))
    with pytest.raises(Conflict, match="was disabled and became paused while it was being resumed"):
        await endpoints.resume(*ids, "ops")
    kept = await bench.store.get(Endpoint, *ids)
    assert (kept.state, kept.state_reason) == (EndpointState.PAUSED, "broken")
    assert (await endpoints.resume(*ids, "ops")).state is EndpointState.ACTIVE


async def test_a_change_that_lost_a_race_is_made_again_on_top_of_the_other() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    endpoints, ids = endpoints_of(bench), (endpoint.org_id, endpoint.endpoint_id)
    renamed = msgspec.structs.replace(endpoint, name="renamed")
    during(bench, "write Endpoint", lambda: put(bench.store, renamed, endpoint.version))
    paused = await endpoints.pause(*ids, "ops", "maintenance")
    assert paused == await bench.store.get(Endpoint, *ids)
    assert (paused.name, paused.state, paused.version) == ("renamed", EndpointState.PAUSED, 3)


async def test_a_change_that_always_loses_is_a_conflict_not_a_loop() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()

    async def never(*_: object) -> bool:
        return False

    bench.failing.answers["write Endpoint"] = never
    with pytest.raises(Conflict, match="try again"):
        await endpoints_of(bench).pause(endpoint.org_id, endpoint.endpoint_id, "ops")


async def test_the_machine_does_not_disable_what_an_operator_has_just_paused() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    ids = (endpoint.org_id, endpoint.endpoint_id)
    await bench.accept(endpoint)
    during(bench, "write Endpoint", lambda: endpoints_of(bench).pause(*ids, "ops"))
    await bench.deliver(410)
    assert (await bench.store.get(Endpoint, *ids)).state is EndpointState.PAUSED
    assert bench.heard(EndpointDisabled) == []


async def test_a_circuit_that_a_worker_changed_meanwhile_is_forgiven_all_the_same() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(state=EndpointState.PAUSED)
    opened = Circuit(endpoint_id=endpoint.endpoint_id, state=CircuitState.OPEN, failures=5, failing_since=1, until=9)
    await bench.store.put_circuit(opened, 0)
    probing = msgspec.structs.replace(opened, state=CircuitState.HALF_OPEN)
    during(bench, "put_circuit", lambda: bench.store.put_circuit(probing, 1))
    await endpoints_of(bench).resume(endpoint.org_id, endpoint.endpoint_id, "ops")
    circuit = await bench.store.get(Circuit, None, endpoint.endpoint_id)
    assert (circuit.state, circuit.failures, circuit.failing_since) == (CircuitState.CLOSED, 0, None)
    (told,) = bench.heard(CircuitTransition)
    assert (told.old_state, told.new_state, told.reason) == ("half_open", "closed", "resumed by an operator")


async def test_every_change_of_an_endpoint_is_audited_with_who_what_when_and_result() -> None:
    bench = Bench()
    await bench.prepare(0)
    endpoints, made = endpoints_of(bench), an_endpoint(bench.org.org_id, updated_at=NOW)
    ids = (made.org_id, made.endpoint_id)
    assert await create_endpoint(bench.store, made, "ann") == await bench.store.get(Endpoint, *ids)
    await endpoints.pause(*ids, "bob", "maintenance")
    bench.clock.advance(1)
    await endpoints.resume(*ids, "cid", skip_older_than=NOW)
    await endpoints.delete(*ids, "dan")
    later, subjects = NOW + SECOND, (str(made.endpoint_id),)
    lines = list(reversed((await bench.store.page(made.org_id, AuditFilter())).items))
    assert [(line.at, line.actor, line.action, line.result) for line in lines] == [
        (NOW, "ann", "endpoint.create", "active"),
        (NOW, "bob", "endpoint.pause", "paused"),
        (later, "cid", "endpoint.skip", "0 skipped"),
        (later, "cid", "endpoint.resume", "active"),
        (later, "dan", "endpoint.delete", "deleted"),
    ]
    assert {line.subjects for line in lines} == {subjects}
    assert lines[1].reason == "maintenance"


async def test_an_endpoint_that_the_machine_disabled_is_audited_as_its_doing() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint)
    await bench.deliver(410)
    (line,) = (await bench.store.page(endpoint.org_id, AuditFilter())).items
    assert (line.actor, line.action, line.result) == ("doorstep", "endpoint.disable", "disabled")
    assert "410 Gone" in line.reason


async def test_the_endpoint_of_another_organization_does_not_exist() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    with pytest.raises(NotFound):
        await endpoints_of(bench).pause(new_id(), endpoint.endpoint_id, "ops")


async def test_an_operators_retry_goes_through_an_open_circuit_as_its_probe() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(circuit=CircuitRules(failures_max=1))
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliver(503)
    await actions_of(bench).act(ActionKind.RETRY, bench.org.org_id, [delivery_id], "ops")
    await bench.deliver()
    assert (await bench.delivery(delivery_id)).state is DeliveryState.DELIVERED
    assert (await bench.store.get(Circuit, None, endpoint.endpoint_id)).state is CircuitState.CLOSED


async def test_erasing_an_event_wakes_the_worker_for_what_waited_behind_it_in_its_ordering_group() -> None:
    bench = Bench()
    await bench.prepare()
    accepter = Accepter(bench.store, bench.directory, bench.clock, bench.tuning, bench.telemetry, wake=lambda: None)
    draft = Draft(org_id=bench.org.org_id, event_type="order.paid", payload=b"{}", ordering_key="a")
    first, second = await accepter.accept([draft, draft])
    events = EventActions(bench.store, bench.clock, accepter, actions_of(bench), bench.telemetry, wake=bench._wake)
    await events.delete(bench.org.org_id, first.event_id, "ops")
    assert bench.woken == 1
    await bench.deliverer.round()
    assert [sent.claim.event_id for sent in bench.http.started] == [second.event_id]
