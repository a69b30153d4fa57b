"""A whole worker in virtual time: how soon it starts work, how it recovers, and how it stops."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from doorstep.clock import SECOND
from doorstep.model.attempt import Code
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import RetryPolicy
from doorstep.testing.sandbox import BEGINNING
from tests.simulation.faults import Fault
from tests.simulation.machines import WorkerMachine
from tests.simulation.scenario import TUNING
from tests.unit.services.scene import OneWorker

D = DeliveryState


def test_a_delivery_is_tried_within_a_second_of_its_due_time_even_if_no_wake_up_comes() -> None:
    world = OneWorker()
    world.accept(due_at=BEGINNING + 30 * SECOND, deliver_at=BEGINNING + 30 * SECOND)

    async def story(machine: WorkerMachine) -> None:
        await asyncio.sleep(32)

    world.run(story)
    (request,) = world.network.requests
    assert 0 <= request.begun_at - (BEGINNING + 30 * SECOND) < SECOND


def test_a_wake_up_starts_work_at_once() -> None:
    world = OneWorker()

    async def story(machine: WorkerMachine) -> None:
        await asyncio.sleep(1.1)
        world.accept()
        machine.process.context.run(machine.worker.wake)
        await asyncio.sleep(1)

    world.run(story)
    (request,) = world.network.requests
    assert request.begun_at - (BEGINNING + 1.1 * SECOND) < 0.05 * SECOND


def test_everything_resumes_within_ten_seconds_of_the_stores_return() -> None:
    world = OneWorker()

    async def story(machine: WorkerMachine) -> None:
        await asyncio.sleep(1)
        world.away.verbs["*"] = Fault.BEFORE
        world.accept(5)
        await asyncio.sleep(3_600)
        world.away.verbs.clear()
        await asyncio.sleep(10)

    world.run(story)
    assert world.count(D.DELIVERED) == 5


def test_a_store_that_is_down_is_asked_about_once_a_second_by_each_service() -> None:
    world = OneWorker()

    async def story(machine: WorkerMachine) -> None:
        await asyncio.sleep(1)
        world.away.verbs["*"] = Fault.BEFORE
        await asyncio.sleep(10)
        world.away.asked.clear()
        await asyncio.sleep(100)

    world.run(story)
    assert len(world.away.asked) < 4 * 110


def test_the_work_of_a_killed_worker_is_picked_up_within_a_second_of_its_leases_end() -> None:
    world = OneWorker("hanging")
    world.accept()

    async def story(machine: WorkerMachine) -> None:
        await asyncio.sleep(0.5)
        world.loop.kill(machine.process)
        WorkerMachine("w2", world.loop, world.server, world.clock, world.network, Random(9))
        await asyncio.sleep(TUNING.lease_seconds + 2)

    world.run(story)
    lost, again = world.network.requests[:2]
    assert (lost.worker, again.worker) == ("w1", "w2")
    assert again.begun_at - lost.lease_until <= SECOND


# -- stopping ----------------------------------------------------------------------------------------------


def test_a_stopping_worker_waits_for_tries_under_way_and_writes_their_results() -> None:
    world = OneWorker("slow", timeout_seconds=5)
    world.accept(2)

    async def story(machine: WorkerMachine) -> None:
        await asyncio.sleep(0.2)
        await machine.worker.stop()

    world.run(story)
    assert len(world.network.requests) == 2
    assert world.count(D.IN_PROGRESS) == 0
    assert all(one.attempt == 1 for one in world.deliveries())


def test_a_stopping_worker_hands_back_what_it_has_not_begun_without_burning_an_attempt() -> None:
    world = OneWorker()
    world.accept(60)

    async def story(machine: WorkerMachine) -> None:
        while not machine_waiting(machine):
            await asyncio.sleep(0.01)
        await machine.worker.stop()

    world.run(story)
    waiting = [one for one in world.deliveries() if one.state is D.PENDING]
    assert waiting and all(one.attempt == 0 for one in waiting)
    assert world.count(D.IN_PROGRESS) == 0


def test_a_stopping_worker_claims_nothing_that_it_does_not_know_of() -> None:
    """Stopped at many points of its first third of a second, the worker leaves no claim behind."""
    for milliseconds in range(0, 300, 3):
        world = OneWorker()
        world.accept(30)

        async def story(machine: WorkerMachine, after: float = milliseconds / 1_000) -> None:
            await asyncio.sleep(0.02 + after)
            await machine.worker.stop()

        world.run(story)
        assert world.count(D.IN_PROGRESS) == 0, f"stopped after {milliseconds} ms"


def test_tries_that_outlast_the_grace_period_are_cut_off_and_due_again() -> None:
    world = OneWorker("hanging", timeout_seconds=5)
    world.accept()

    async def story(machine: WorkerMachine) -> None:
        await asyncio.sleep(0.2)
        before = world.loop.now
        await machine.worker.stop()
        assert world.loop.now - before < (TUNING.grace_seconds + 1) * SECOND

    world.run(story)
    (delivery,) = world.deliveries()
    assert (delivery.state, delivery.attempt, delivery.code) == (D.PENDING, 1, Code.WORKER_LOST)


def test_no_delivery_dies_because_its_last_try_was_cut_off_by_a_stop() -> None:
    world = OneWorker("hanging", timeout_seconds=5, policy=RetryPolicy(()))
    world.accept(retries_max=0)

    async def story(machine: WorkerMachine) -> None:
        await asyncio.sleep(0.2)
        await machine.worker.stop()

    world.run(story)
    (delivery,) = world.deliveries()
    assert delivery.state is D.PENDING


@pytest.mark.parametrize("fault", Fault)
def test_a_store_that_is_away_delays_a_stop_by_seconds_not_for_ever(fault: Fault) -> None:
    world = OneWorker()
    world.accept(30)

    async def story(machine: WorkerMachine) -> None:
        await asyncio.sleep(0.05)
        world.away.verbs["*"] = fault
        before = world.loop.now
        await machine.worker.stop()
        assert world.loop.now - before < 10 * SECOND

    world.run(story)


def test_a_worker_can_be_stopped_before_it_was_started_and_twice() -> None:
    world = OneWorker()

    async def story(machine: WorkerMachine) -> None:
        await asyncio.sleep(1)
        await machine.worker.stop()
        await machine.worker.stop()
        await machine._make().stop()

    world.run(story)


def machine_waiting(machine: WorkerMachine) -> int:
    return machine.worker.deliverer.buffer.waiting if hasattr(machine, "worker") else 0
