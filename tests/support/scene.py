"""A scene: a database, a receiver, and any number of Doorsteps that use them, each with a real worker.

Everything goes through the facade. Tests wait in real time with `until`. To skip hours or days, they move forward the
clock that all Doorsteps of a scene share.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import Instant, to_datetime
from doorstep.config import Settings
from doorstep.encryption import new_secret_key
from doorstep.engine.accept import Options
from doorstep.model.action import ActionKind, ActionResult
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState, HistoryEntry
from doorstep.model.endpoint import CircuitRules, Endpoint, EndpointState
from doorstep.model.event import EventStatus
from doorstep.operations.endpoint_rules import form_from
from doorstep.schemas.events import Receipt
from doorstep.telemetry.facts import Fact, Telemetry, json_lines
from tests.support.builders import unused
from tests.support.leaping_clock import LeapingClock
from tests.support.loop_receiver import Receiver
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import count_states, living_endpoints

F = TypeVar("F", bound=Fact)

NEVER_OPENS = CircuitRules(failures_max=1_000_000)
"""For tests that are not about circuits."""


class Scene:
    def __init__(self, database_url: str, receiver: Receiver) -> None:
        self.receiver = receiver
        self.clock = LeapingClock()
        self.facts: list[Fact] = []
        self.doorsteps: list[Doorstep] = []
        self._names: set[str] = set()
        self._settings: dict[str, Any] = {
            "database_url": database_url,
            "secret_key": new_secret_key(),
            "allow_addresses": "127.0.0.0/8",
            "lease_seconds": 10.0,
            "timeout_seconds": 5.0,
            "grace_seconds": 0.0,
        }

    # -- start and stop ------------------------------------------------------------------------------------

    async def open(
        self,
        prepare: Callable[[Doorstep], object] = lambda _: None,
        clock: LeapingClock | None = None,
        **settings: Any,
    ) -> Doorstep:
        """Start another Doorstep with its own store and worker on the same database, like one more process. One with a
        `clock` of its own does not leap with the others."""
        doorstep = Doorstep(
            Settings(**self._settings | settings), telemetry=Telemetry(self.facts.extend), clock=clock or self.clock
        )
        prepare(doorstep)
        await doorstep.open(migrate=False)
        doorstep.start()
        self.doorsteps.append(doorstep)
        return doorstep

    async def close(self) -> None:
        doorsteps, self.doorsteps = self.doorsteps, []
        await asyncio.gather(*(doorstep.close() for doorstep in doorsteps))

    @property
    def doorstep(self) -> Doorstep:
        return self.doorsteps[0]

    def leap(self, span_seconds: float) -> None:
        self.clock.leap(span_seconds)
        self._wake()

    def leap_to(self, instant: Instant) -> None:
        self.clock.leap_to(instant)
        self._wake()

    def _wake(self) -> None:
        """Wake the services, which sleep in real time until something is due."""
        for doorstep in self.doorsteps:
            worker = doorstep.components.worker
            for service in worker.services if worker else ():
                service.wake.set()

    # -- actions -------------------------------------------------------------------------------------------

    async def endpoint(self, path: str = "/hook", **fields: Any) -> Endpoint:
        """Create an endpoint: at the scene's receiver, unless the fields contain a handler or a URL."""
        target = {} if "handler" in fields or "url" in fields else {"url": self.receiver.url(path)}
        name = unused(path) if path in self._names else path
        self._names.add(path)
        given = {"name": name, "circuit": NEVER_OPENS} | target | fields
        org_id, actor = given.pop("org_id", DEFAULT_ORG), given.pop("actor", "program")
        form = form_from(given.pop("name"), given)
        endpoint, _ = await self.doorstep.components.endpoints.create(form, org_id, actor)
        return endpoint

    async def endpoints(self) -> list[Endpoint]:
        """The stored endpoints."""
        endpoints = await living_endpoints(self.doorstep.components.store)
        return [endpoint for endpoint in endpoints if endpoint.org_id == DEFAULT_ORG]

    async def send(self, event_type: str = "order.paid", payload: object = b'{"n": 1}', **fields: Any) -> Receipt:
        """Times may also be given in the scene's own unit, as instants."""
        times = {name: to_datetime(at) for name, at in fields.items() if name.endswith("_at") and isinstance(at, int)}
        return await self.doorstep.send(event_type, payload, **fields | times)

    async def send_to(self, endpoint: Endpoint, count: int = 1) -> list[Delivery]:
        """Send events to this endpoint only, and return their deliveries."""
        options = Options(org_id=endpoint.org_id, endpoint_ids=[endpoint.endpoint_id])
        receipts = await self.doorstep.send_many([("order.paid", b'{"n": 1}', options)] * count)
        found = await asyncio.gather(*(self.deliveries(receipt, endpoint.org_id) for receipt in receipts))
        return [delivery for (delivery,) in found]

    async def act(self, kind: ActionKind, *deliveries: Delivery, actor: str = "ops") -> ActionResult:
        ids = [delivery.delivery_id for delivery in deliveries]
        return await self.doorstep.components.deliveries.act(kind, deliveries[0].org_id, ids, actor)

    # -- observation ---------------------------------------------------------------------------------------

    async def status(self, receipt: Receipt) -> EventStatus:
        return (await self.doorstep.components.reader.event(DEFAULT_ORG, receipt.event_id)).status

    async def deliveries(self, receipt: Receipt, org_id: UUID = DEFAULT_ORG) -> list[Delivery]:
        return await self.doorstep.components.reader.deliveries(org_id, receipt.event_id)

    async def delivery(self, one: Delivery | Receipt) -> Delivery:
        if isinstance(one, Delivery):
            return await self.doorstep.components.reader.delivery(one.org_id, one.delivery_id)
        (delivery,) = await self.deliveries(one)
        return delivery

    async def attempts(self, delivery: Delivery) -> list[Attempt]:
        return await self.doorstep.components.reader.attempts(delivery.org_id, delivery.delivery_id)

    async def history(self, delivery: Delivery) -> list[HistoryEntry]:
        return await self.doorstep.components.reader.history(delivery.org_id, delivery.delivery_id)

    async def count(self, state: DeliveryState) -> int:
        return (await count_states(self.doorstep.components.store))[state]

    def heard(self, kind: type[F]) -> list[F]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def log(self) -> list[dict[str, Any]]:
        """The lines logged so far, in the format in which they are written."""
        return [msgspec.json.decode(line) for line in json_lines(self.facts).splitlines()]

    # -- waiting -------------------------------------------------------------------------------------------

    async def until_state(self, one: Delivery | Receipt, *states: DeliveryState) -> Delivery:
        await until(lambda: self._in_state(one, states), f"{', '.join(states)}")
        return await self.delivery(one)

    async def _in_state(self, one: Delivery | Receipt, states: tuple[DeliveryState, ...]) -> bool:
        return (await self.delivery(one)).state in states

    async def until_stored(self, delivery: Delivery, state: DeliveryState) -> None:
        """Wait until the store itself returns this state, not only the reader of the Doorstep."""
        store = self.doorstep.components.store

        async def stored() -> bool:
            return (await store.get(Delivery, delivery.org_id, delivery.delivery_id)).state is state

        await until(stored, f"{state} in the store")

    async def until_tried(self, one: Delivery | Receipt, times: int = 1) -> Delivery:
        """Wait until the attempt log of the delivery has `times` attempts."""
        delivery = await self.delivery(one)
        await until(lambda: self._tried(delivery, times), f"{times} attempts")
        return await self.delivery(delivery)

    async def _tried(self, delivery: Delivery, times: int) -> bool:
        return len(await self.attempts(delivery)) >= times

    async def until_endpoint(self, endpoint: Endpoint, state: EndpointState) -> Endpoint:
        async def reached() -> bool:
            return (
                await self.doorstep.components.reader.endpoint(endpoint.org_id, endpoint.endpoint_id)
            ).state is state

        await until(reached, f"an endpoint that is {state}")
        return await self.doorstep.components.reader.endpoint(endpoint.org_id, endpoint.endpoint_id)

    async def nothing_more_arrives(self, seconds: float = 0.6) -> None:
        """Wait until every worker has polled (twice a second, even without a wakeup); check that nothing arrived."""
        before = len(self.receiver.requests)
        await asyncio.sleep(seconds)
        assert len(self.receiver.requests) == before

    async def until_received(self, count: int) -> None:
        await until(lambda: len(self.receiver.requests) >= count, f"{count} requests")


async def until(reached: Callable[[], bool | Awaitable[bool]], what: str = "") -> None:
    """Wait until `reached` is true. The limit suits a busy machine; a timeout reports `what` was awaited."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = reached()
        if await answer if inspect.isawaitable(answer) else answer:
            return
        assert time.monotonic() < give_up_at, f"waited {PATIENCE_SECONDS:g} s in vain for {what or 'it'}"
        await asyncio.sleep(0.005)
