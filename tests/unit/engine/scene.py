"""A test bench for one worker: the real engine, a reference store that can fail, a fake clock and a fake network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast
from uuid import UUID

from doorstep.encryption import Sealer
from doorstep.engine.deliver import Deliverer
from doorstep.engine.directory import Directory, Tuning
from doorstep.errors import StoreUnavailable
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint, RetryPolicy
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Fact, Telemetry
from doorstep.testing import FakeClock
from tests.reference import ReferenceStore
from tests.support.builders import a_submission, an_endpoint, an_org
from tests.support.shortcuts import call_name, put, routing_versions
from tests.support.transports import FakeTransport

PLAIN = Tuning(slots=8, connections_per_endpoint=4, policy=RetryPolicy((60, 300), jitter=0), settle_linger_seconds=0)


class FailingStore:
    """A reference store whose calls a test can make fail, slow down or answer itself.

    `call_name` gives each call its name, for example `settle`, `find OrgKeys` or `write Endpoint`.
    """

    def __init__(self, store: ReferenceStore, clock: FakeClock) -> None:
        self.kept = store
        self.features = store.features
        self.clock = clock
        self.slow: dict[str, float] = {}
        self.away: set[str] = set()
        self.refuses: Callable[[str, tuple[Any, ...]], bool] = lambda name, args: False
        self.answers: dict[str, Callable[..., Awaitable[Any]]] = {}
        self.calls: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        return lambda *args, **named: self._call(verb, *args, **named)

    async def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        name = call_name(verb, *args)
        self.calls.append(name)
        if {verb, name} & self.away or self.refuses(name, args):
            raise StoreUnavailable(f"{name} is away")
        self.clock.advance(self.slow.get(name, 0))
        return await self.answers.get(name, getattr(self.kept, verb))(*args, **named)


class Bench:
    def __init__(self, tuning: Tuning = PLAIN) -> None:
        self.clock = FakeClock()
        self.failing = FailingStore(ReferenceStore(self.clock), self.clock)
        self.store = cast(Store, self.failing)
        self.facts: list[Fact] = []
        self.telemetry = Telemetry(self.facts.extend)
        self.sealer = Sealer(bytes(32))
        self.tuning = tuning
        self.directory = Directory(self.store, self.sealer, tuning)
        self.http = FakeTransport(self.clock)
        self.handlers = FakeTransport(self.clock)
        self.transports = {"http": self.http, "handler": self.handlers}
        self.woken = 0
        self.org = an_org()
        self.deliverer = self.another_worker("w1", self.http)

    def another_worker(self, name: str, http: FakeTransport) -> Deliverer:
        transports = self.transports if http is self.http else self.transports | {"http": http}
        deliverer = Deliverer(
            self.store, self.directory, transports,
            self.clock, lambda: 0.5, self.tuning, self.telemetry, name, wake=self._wake,
        )  # fmt: skip
        http.open(deliverer.done)
        return deliverer

    def _wake(self) -> None:
        self.woken += 1

    async def prepare(self, count: int = 1, **endpoint: object) -> list[Endpoint]:
        """Create the organization with `count` endpoints."""
        await put(self.store, self.org)
        endpoints = [an_endpoint(self.org.org_id, **endpoint) for _ in range(count)]
        for one in endpoints:
            await put(self.store, one, 0)
        await self.directory.refresh()
        await self.directory.load([self.org.org_id])
        return endpoints

    async def accept(self, endpoint: Endpoint, count: int = 1, **fields: object) -> list[UUID]:
        """Accept events for an endpoint and return the ids of their deliveries."""
        now = self.clock.now()
        given: dict[str, Any] = {"due_at": now, "created_at": now, "retries_max": 2} | fields
        made = [a_submission(endpoint.org_id, [endpoint.endpoint_id], **given) for _ in range(count)]
        await self.store.accept(made, await routing_versions(self.store), now)
        return [one.deliveries[0].delivery_id for one in made]

    async def deliver(self, status: int = 200, headers: bytes = b"") -> None:
        """Run one full round: claim, give every attempt the same answer, settle."""
        await self.deliverer.round()
        self.http.answer(status, headers)
        await self.write_down()

    async def write_down(self) -> None:
        while self.deliverer.settler.backlog:
            await self.deliverer.settler.run_once()

    async def delivery(self, delivery_id: UUID) -> Delivery:
        return await self.store.get(Delivery, self.org.org_id, delivery_id)

    async def states(self, delivery_ids: Sequence[UUID]) -> list[DeliveryState]:
        return [(await self.delivery(one)).state for one in delivery_ids]

    def heard(self, kind: type[Fact]) -> list[Any]:
        return [fact for fact in self.facts if type(fact) is kind]
