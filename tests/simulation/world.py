"""A world made from a seed: one or two organizations, receivers, clients, workers, and a nemesis that disturbs them.

A run has three phases: chaos, then healing of all faults, then waiting until no delivery is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from random import Random
from uuid import UUID

from doorstep.clock import SECOND
from doorstep.engine.accept import Draft
from doorstep.model.delivery import OPEN_STATES
from doorstep.model.endpoint import Endpoint, EndpointState, HandlerDestination, HttpDestination, RetryPolicy
from doorstep.model.event import Event, EventView
from doorstep.model.listing import DeliveryAttempts, DeliveryHistory, EventDeliveries
from doorstep.model.org import Org
from doorstep.model.record import uuid7
from doorstep.services.worker import Worker
from doorstep.testing.sandbox import BEGINNING
from tests.reference import ReferenceStore
from tests.simulation.faults import Faults, NoFaults, RandomFaults
from tests.simulation.machines import ClientMachine, OperatorMachine, SendingMachine, SkewedClock, WorkerMachine
from tests.simulation.network import Network
from tests.simulation.scenario import TUNING, EndpointPlan, Scenario
from tests.simulation.sendings import plan_sendings
from tests.simulation.store_server import StoreServer, finish
from tests.simulation.story import Disturbance, Life, Outage, Sending, Story
from tests.simulation.trace import Trace
from tests.simulation.virtual_loop import Process, VirtualLoop
from tests.support.recounting import differing, recount
from tests.support.shortcuts import count_states, living_endpoints, put, totals


class World:
    def __init__(
        self,
        seed: int,
        scenario: Scenario,
        *,
        store: ReferenceStore | None = None,
        make_worker: Callable[..., Worker] = Worker,
        faults: Faults | None = None,
    ) -> None:
        self.seed = seed
        self.scenario = scenario
        self.loop = VirtualLoop()
        self.trace = Trace(self.loop)
        self.server = StoreServer(
            store or ReferenceStore(SkewedClock(self.loop)), self.loop, self.random("store"), self.trace
        )
        self.server.faults = faults or RandomFaults(self.random("faults"), scenario.store_fault_rate)
        self.network = Network(self.loop, self.random("network"), self.trace, self.kill_by_poison)
        self.sendings: list[Sending] = []
        self.disturbances: list[Disturbance] = []
        self.workers: list[WorkerMachine] = []
        self.clients: list[ClientMachine] = []
        self.orgs: list[UUID] = []
        self.endpoint_ids: list[UUID] = []
        self.healed_at = 0
        self.outage: Outage | None = None
        self.troubles: list[str] = []
        self._make_worker = make_worker
        self._machines: list[WorkerMachine | ClientMachine | OperatorMachine] = []
        self._started = 0
        self._outside = copy_context()
        """The context of timers that must outlive the process that sets them."""

    def random(self, purpose: str) -> Random:
        """A random generator for one purpose, so that an additional draw for it does not change the others."""
        return Random(f"{purpose} {self.seed}")

    # -- phases of a run -----------------------------------------------------------------------------------

    def play(self, disturb: Callable[[World], None]) -> Story:
        self.loop.run(self._play(disturb))
        return self._story()

    async def _play(self, disturb: Callable[[World], None]) -> None:
        self._furnish()
        self.operator = OperatorMachine(self.loop, self.server)
        self._machines.append(self.operator)
        for slot in range(self.scenario.workers):
            self.start_worker(slot)
        for slot in range(self.scenario.clients):
            self.start_client(slot)
        plan_sendings(self)
        if self.scenario.outage is not None:
            self.loop.call_later(self.scenario.outage_at, self._begin_outage, self.scenario.outage)
        disturb(self)
        await asyncio.sleep(self.scenario.chaos_seconds)
        self._heal()
        await self._quiet()
        await self._end()

    def _begin_outage(self, personality: str) -> None:
        self.trace.note("world", "every receiver is", personality)
        self.outage = Outage(self.loop.now, hangs=personality == "hanging")
        self.network.personalities = dict.fromkeys(self.network.personalities, personality)

    def _heal(self) -> None:
        self.trace.note("world", "is healed")
        self.healed_at = self.loop.now
        self.server.faults = self.server.faults if not isinstance(self.server.faults, RandomFaults) else NoFaults()
        self.network.heal()

    async def _quiet(self) -> None:
        """Wait until nothing is open, or until the time limit shows that this will never happen."""
        for _ in range(2 * self.scenario.quiet_seconds):
            await self._resume_endpoints()
            await asyncio.sleep(0.5)
            if self._is_quiet():
                return

    def _is_quiet(self) -> bool:
        states = finish(count_states(self.server.store))
        unsaid = any(one.receipt is None and one.trouble is None for one in self.sendings if one not in self.lost)
        frozen = any(machine.process.frozen for machine in self.workers)
        return not (unsaid or frozen or any(states[state] for state in OPEN_STATES))

    @property
    def lost(self) -> list[Sending]:
        """The sendings that were in flight when their client was killed, and whose answers nobody will receive."""
        return [one for machine in self._machines if isinstance(machine, SendingMachine) and machine.process.dead
                for one in machine.sent]  # fmt: skip

    async def _resume_endpoints(self) -> None:
        for endpoint in finish(living_endpoints(self.server.store)):
            if endpoint.state is not EndpointState.ACTIVE:
                operator = self.operator
                await operator.does(operator.endpoints.resume, endpoint.org_id, endpoint.endpoint_id, "ops")

    async def _end(self) -> None:
        """Stop the workers gracefully. With no work left, this must not take longer than the grace period."""
        stopping = [machine for machine in self.workers if machine.process.runs]
        for machine in stopping:
            machine.run(machine.stop())
        await asyncio.sleep(TUNING.grace_seconds + 2)
        self.troubles += [f"{one.process.name} does not stop" for one in stopping if not one.process.dead]

    # -- setup ---------------------------------------------------------------------------------------------

    def _furnish(self) -> None:
        random = self.random("furniture")
        for number in range(2):
            self.orgs.append(uuid7(BEGINNING, random.randbytes))
            finish(put(self.server.store, Org(org_id=self.orgs[-1], name=f"org {number}", created_at=BEGINNING)))
        for number, plan in enumerate(self.scenario.endpoints):
            endpoint = _endpoint(number, plan, random.choice(self.orgs), random)
            self.endpoint_ids.append(endpoint.endpoint_id)
            self.network.personalities[endpoint.url or endpoint.handler or ""] = plan.personality
            finish(put(self.server.store, endpoint, 0))

    def start_worker(self, slot: int) -> None:
        """Start a new process in a worker's slot."""
        name = self._new_name("worker")
        random = self.random(name)
        machine = WorkerMachine(
            name, self.loop, self.server, self._clock(random), self.network, random, self._make_worker, self.sendings
        )
        self.trace.note(name, "starts")
        self._machines.append(machine)
        self.workers[slot:slot + 1] = [machine]  # fmt: skip

    def start_client(self, slot: int) -> None:
        name = self._new_name("client")
        random = self.random(name)
        machine = ClientMachine(name, self.loop, self.server, self._clock(random), random, self.sendings)
        self._machines.append(machine)
        self.clients[slot:slot + 1] = [machine]  # fmt: skip

    def send(self, slot: int, draft: Draft) -> None:
        """Send from the client that currently occupies this slot, or from a worker: a server that also delivers."""
        serving = [one for one in self.workers if one.process.runs] if self.scenario.served else []
        (serving[slot % len(serving)] if serving else self.clients[slot]).send(draft)

    def _new_name(self, kind: str) -> str:
        self._started += 1
        return f"{kind}-{self._started}"

    def _clock(self, random: Random) -> SkewedClock:
        skew = self.scenario.skew_seconds
        return SkewedClock(self.loop, random.uniform(-skew, skew), random.uniform(-0.001, 0.001) if skew else 0)

    # -- disturbances --------------------------------------------------------------------------------------

    def kill_worker(self, slot: int, restart_after_seconds: float) -> None:
        process = self.workers[slot].process
        if not process.dead:
            self._kill(process, "killed")
            self.loop.call_later(restart_after_seconds, self.start_worker, slot)

    def kill_by_poison(self, process: Process) -> None:
        slot = next(slot for slot, machine in enumerate(self.workers) if machine.process is process)
        self._kill(process, "poisoned")
        self.loop.call_later(0.5, self.start_worker, slot, context=self._outside)

    def kill_client(self, slot: int) -> None:
        self._kill(self.clients[slot].process, "killed")
        self.start_client(slot)

    def _kill(self, process: Process, kind: str) -> None:
        self.trace.note(process.name, "is", kind)
        self.disturbances.append(Disturbance(process.name, kind, self.loop.now, None))
        self.loop.kill(process)

    def freeze_worker(self, slot: int, for_seconds: float) -> None:
        process = self.workers[slot].process
        if process.runs:
            self.trace.note(process.name, f"is frozen for {for_seconds:.3f} s")
            until = self.loop.now + int(for_seconds * SECOND)
            self.disturbances.append(Disturbance(process.name, "frozen", self.loop.now, until))
            self.loop.freeze(process)
            self.loop.call_later(for_seconds, self._thaw, process)

    def _thaw(self, process: Process) -> None:
        self.trace.note(process.name, "is thawed")
        self.loop.thaw(process)

    def stop_worker(self, slot: int) -> None:
        """Stop a worker gracefully and start another in its slot."""
        machine = self.workers[slot]
        if machine.process.runs:
            self.trace.note(machine.process.name, "is told to stop")
            self.disturbances.append(Disturbance(machine.process.name, "stopped", self.loop.now, None))
            machine.run(machine.stop())
            self.start_worker(slot)

    # -- the resulting story -------------------------------------------------------------------------------

    def _story(self) -> Story:
        store = self.server.store
        submissions = {one.event.event_id: one for one in self.server.journal.submissions}
        kept = [one.event for one in submissions.values() if one.event.event_id in store._tables.events]
        lives = {}
        for event in kept:
            for delivery in finish(store.find(event.org_id, EventDeliveries(event_id=event.event_id))):
                attempts = finish(store.find(event.org_id, DeliveryAttempts(delivery_id=delivery.delivery_id)))
                history = finish(store.find(event.org_id, DeliveryHistory(delivery_id=delivery.delivery_id)))
                lives[delivery.delivery_id] = Life(delivery, attempts, history)
        return Story(
            seed=self.seed,
            sendings=self.sendings,
            requests=self.network.requests,
            steps=self.server.journal.steps,
            disturbances=self.disturbances,
            events={event.event_id: finish(store.get(EventView, event.org_id, event.event_id)) for event in kept},
            lives=lives,
            endpoints=dict(store._tables.endpoints.items()),
            store_failures=self.server.failures,
            troubles=self.troubles
            + self.loop.unhandled()
            + [trouble for machine in self._machines for trouble in machine.troubles],
            miscounted=self._miscounted(kept),
            transitions=[each for machine in self._machines for each in machine.transitions],
            outage=self.outage,
            healed_at=self.healed_at,
            ended_at=self.loop.now,
            trace=self.trace,
        )

    def _miscounted(self, kept: list[Event]) -> list[str]:
        """In each organization, the figures that differ from a recount of the rows."""
        store = self.server.store
        return [
            f"{name} of org {number} is {counted} and should be {right}"
            for number, org_id in enumerate(self.orgs)
            for name, counted, right in differing(
                finish(totals(store, org_id)),
                finish(recount(store, org_id, [one.event_id for one in kept if one.org_id == org_id]))[None],
            )
            if name not in ("delivered", "failed")  # a recount needs agreeing clocks
        ]


def _endpoint(number: int, plan: EndpointPlan, org_id: UUID, random: Random) -> Endpoint:
    return Endpoint(
        endpoint_id=uuid7(BEGINNING, random.randbytes),
        org_id=org_id,
        name=f"endpoint {number}",
        created_at=BEGINNING,
        destination=HandlerDestination(f"handler-{number}")
        if plan.by_handler
        else HttpDestination(f"https://receiver-{number}.example/hook"),
        event_types=random.choice((("*",), ("order.*",))),
        policy=None if plan.delays is None else RetryPolicy(plan.delays, retry_on_recovery=plan.retry_on_recovery),
        concurrency_max=plan.concurrency_max,
        rate_per_second=plan.rate_per_second,
        circuit=plan.circuit,
    )
