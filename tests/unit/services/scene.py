"""One worker with all its services, in virtual time, with a simulated slow store and a scripted network."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.testing.sandbox import BEGINNING
from tests.reference import ReferenceStore
from tests.simulation.faults import Fault
from tests.simulation.machines import SkewedClock, WorkerMachine
from tests.simulation.network import Network
from tests.simulation.store_server import StoreServer, finish
from tests.simulation.trace import Trace
from tests.simulation.virtual_loop import VirtualLoop
from tests.support.builders import a_submission, an_endpoint, an_org
from tests.support.shortcuts import count_states, put, routing_versions


class Away:
    """Store methods that fail, each with its fault, for as long as they are listed here."""

    def __init__(self) -> None:
        self.verbs: dict[str, Fault] = {}
        self.asked: list[str] = []

    def strikes(self, verb: str) -> Fault | None:
        self.asked.append(verb)
        return self.verbs.get("*", self.verbs.get(verb))


class OneWorker:
    def __init__(self, personality: str = "ok", **endpoint: object) -> None:
        self.loop = VirtualLoop()
        self.clock = SkewedClock(self.loop)
        trace = Trace(self.loop)
        self.server = StoreServer(ReferenceStore(self.clock), self.loop, Random(1), trace)
        self.away = Away()
        self.server.faults = self.away
        self.network = Network(self.loop, Random(2), trace, self.loop.kill)
        self.org = an_org()
        self.endpoint: Endpoint = an_endpoint(self.org.org_id, **endpoint)
        self.network.personalities[self.endpoint.url or ""] = personality
        finish(put(self.server.store, self.org))
        finish(put(self.server.store, self.endpoint, 0))

    def run(self, story: Callable[[WorkerMachine], Coroutine[Any, Any, None]]) -> WorkerMachine:
        """Start the worker, run the test's `story`, and return the worker in its final state."""
        machines: list[WorkerMachine] = []

        async def main() -> None:
            machines.append(WorkerMachine("w1", self.loop, self.server, self.clock, self.network, Random(3)))
            await story(machines[0])

        self.loop.run(main())
        assert not self.loop.unhandled()
        return machines[0]

    def accept(self, count: int = 1, **fields: Any) -> None:
        now = BEGINNING + self.loop.now
        given = {"due_at": now, "created_at": now} | fields
        made = [a_submission(self.org.org_id, [self.endpoint.endpoint_id], **given) for _ in range(count)]
        store = self.server.store
        finish(store.accept(made, finish(routing_versions(store)), now))

    def deliveries(self) -> list[Delivery]:
        return [row.delivery for row in self.server.store._tables.deliveries.values()]

    def count(self, state: DeliveryState) -> int:
        return int(finish(count_states(self.server.store))[state])
