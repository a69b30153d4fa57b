"""What operators do to endpoints and deliveries; every act is audited."""

from __future__ import annotations

import msgspec
import pytest

from doorstep.clock import DAY, SECOND
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.act import ActKind
from doorstep.model.circuit import CircuitState
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import CircuitRules, EndpointState
from doorstep.model.outcome import Code
from doorstep.path.operate import Operator
from doorstep.telemetry import StatusTransition
from tests.builders import NOW, new_id
from tests.unit.path.scene import PLAIN, Bench


def operator_of(bench: Bench) -> Operator:
    return Operator(bench.store, bench.directory, bench.clock, bench.tuning, bench.telemetry)


async def test_a_dead_letter_that_is_retried_is_due_in_five_seconds_in_a_new_round() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliver(404)
    result = await operator_of(bench).act(ActKind.RETRY, bench.org.org_id, [delivery_id], "ops", "fixed")
    delivery = await bench.delivery(delivery_id)
    assert result.done == (delivery_id,)
    assert (delivery.state, delivery.due_at, delivery.retry_attempts) == (DeliveryState.PENDING, NOW + 5 * SECOND, 0)
    assert [change.new_status for change in bench.heard(StatusTransition)] == ["queued", "failed", "queued"]


async def test_an_act_on_nothing_is_refused_by_naming_the_field() -> None:
    with pytest.raises(InvalidInput, match="delivery_ids: must name at least one"):
        await operator_of(Bench()).act(ActKind.RETRY, new_id(), [], "ops")


async def test_a_paused_endpoint_holds_its_deliveries_until_it_is_resumed() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    operator, ids = operator_of(bench), (endpoint.org_id, endpoint.endpoint_id)
    await operator.pause(*ids, "ops", "maintenance")
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliver()
    assert (await bench.delivery(delivery_id)).state is DeliveryState.PENDING
    await operator.resume(*ids, "ops")
    await bench.deliver()
    assert (await bench.delivery(delivery_id)).state is DeliveryState.DELIVERED
    assert [line.action for line in await bench.store.audit(endpoint.org_id)] == ["endpoint.resume", "endpoint.pause"]


async def test_a_resumed_endpoint_is_not_disabled_again_by_its_first_failure() -> None:
    bench = Bench()
    rules = CircuitRules(failures_max=1, open_seconds=1)
    (endpoint,) = await bench.prepare(circuit=rules, policy=msgspec.structs.replace(PLAIN.policy, delays=()))
    ids = (endpoint.org_id, endpoint.endpoint_id)
    for _ in range(2):
        await bench.accept(endpoint)
        await bench.deliver(503)
        bench.clock.advance(5 * DAY / SECOND)
    assert (await bench.store.endpoint(*ids)).state is EndpointState.DISABLED
    await operator_of(bench).resume(*ids, "ops")
    assert (await bench.store.circuit(endpoint.endpoint_id)).state is CircuitState.CLOSED
    await bench.accept(endpoint)
    await bench.deliver(503)
    assert (await bench.store.endpoint(*ids)).state is EndpointState.ACTIVE


async def test_resuming_can_skip_what_is_too_old_and_it_can_still_be_found() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(state=EndpointState.DISABLED)
    (old,) = await bench.accept(endpoint)
    bench.clock.advance(100)
    (new,) = await bench.accept(endpoint)
    await operator_of(bench).resume(endpoint.org_id, endpoint.endpoint_id, "ops", skip_older_than=NOW + 50 * SECOND)
    assert (await bench.delivery(old)).code == Code.SKIPPED
    assert await bench.states([old, new]) == [DeliveryState.DEAD, DeliveryState.PENDING]


async def test_resuming_can_drain_the_backlog_at_a_rate() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(state=EndpointState.PAUSED)
    operator, ids = operator_of(bench), (endpoint.org_id, endpoint.endpoint_id)
    resumed = await operator.resume(*ids, "ops", drain_per_second=2)
    assert (resumed.drain_per_second, resumed.drain_before) == (2, NOW)
    with pytest.raises(InvalidInput, match="drain_per_second: must be from 0.001 to 100000, got -1"):
        await operator.resume(*ids, "ops", drain_per_second=-1)


async def test_deleting_an_endpoint_buries_what_waits_and_cannot_be_done_twice() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    ids = await bench.accept(endpoint, 2_500)
    operator = operator_of(bench)
    await operator.delete(endpoint.org_id, endpoint.endpoint_id, "ops")
    assert (await bench.store.tally())[DeliveryState.DEAD] == len(ids)
    with pytest.raises(Conflict, match="was deleted"):
        await operator.delete(endpoint.org_id, endpoint.endpoint_id, "ops")
    with pytest.raises(Conflict, match="was deleted"):
        await operator.resume(endpoint.org_id, endpoint.endpoint_id, "ops")


async def test_the_endpoint_of_another_organization_does_not_exist() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    with pytest.raises(NotFound):
        await operator_of(bench).pause(new_id(), endpoint.endpoint_id, "ops")


async def test_an_operators_retry_goes_through_an_open_circuit_as_its_probe() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(circuit=CircuitRules(failures_max=1))
    (delivery_id,) = await bench.accept(endpoint)
    await bench.deliver(503)
    await operator_of(bench).act(ActKind.RETRY, bench.org.org_id, [delivery_id], "ops")
    await bench.deliver()
    assert (await bench.delivery(delivery_id)).state is DeliveryState.DELIVERED
    assert (await bench.store.circuit(endpoint.endpoint_id)).state is CircuitState.CLOSED
