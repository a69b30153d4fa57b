"""A bulk service for a scene: the real one, advanced step by step."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import SECOND, Clock, Instant
from doorstep.encryption import Sealer
from doorstep.engine.accept import Accepter
from doorstep.engine.directory import Directory, Tuning
from doorstep.model.bulk import Bulk, BulkKind, Selection
from doorstep.model.claim import Claim, Quota, Settlement
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import DeadLetterFilter
from doorstep.operations.bulk import BulkService, Selector
from doorstep.operations.bulk_steps import BulkStepper
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry
from tests.contract.scene import Scene
from tests.support.builders import refusal


class SceneClock:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def now(self) -> Instant:
        return self._scene.now


class Desk(BulkService):
    """A bulk service whose operations a test carries out step by step, each step at a later time than the last."""

    def __init__(self, scene: Scene, store: Store | None = None) -> None:
        store = store or scene.store
        clock: Clock = SceneClock(scene)
        directory = Directory(store, Sealer(bytes(32)), Tuning())
        accepter = Accepter(store, directory, clock, Tuning(), Telemetry(), lambda: None)
        chooser = Selector(store, clock, Tuning())
        super().__init__(store, chooser, clock, lambda: None)
        self._stepper = BulkStepper(store, chooser, accepter, clock, Telemetry(), lambda: None)
        self.scene = scene

    async def advance(self, bulk: Bulk) -> float:
        return await self._stepper.advance(bulk)

    async def begin(self, kind: BulkKind = BulkKind.RETRY, selection: Selection | None = None, **more: object) -> Bulk:
        chosen = selection or Selection(letters=DeadLetterFilter())
        return await self.start(kind, self.scene.org_id, chosen, "ops", **more)  # type: ignore[arg-type]

    async def step(self, bulk: Bulk, count: int = 1) -> Bulk:
        for _ in range(count):
            self.scene.wait(1)
            await self.advance(await self.seen(bulk))
        return await self.seen(bulk)

    async def seen(self, bulk: Bulk) -> Bulk:
        return await self.scene.store.get(Bulk, bulk.org_id, bulk.bulk_id)


async def dead_letters(scene: Scene, count: int, reason: str = "no such path") -> list[UUID]:
    await scene.accept(count)
    claims = await scene.claim(count)
    outcome = replace(refusal(scene.now), reason=reason)
    await scene.settle(*(Settlement.dead(claim, outcome) for claim in claims))
    scene.wait(1)
    return [claim.delivery_id for claim in claims]


async def claims_of(scene: Scene) -> list[Claim]:
    return await scene.claim(1_000)


async def work(scene: Scene, *endpoints: Endpoint) -> list[Claim]:
    """Deliver everything that is due at these endpoints, or at the scene's endpoint, like one round of a worker."""
    quotas = [Quota(endpoint.endpoint_id, 1_000) for endpoint in endpoints or [scene.endpoint]]
    claims = await scene.store.claim(quotas, scene.now, scene.now + SECOND, "w1", 100)
    await scene.deliver(*claims)
    return claims
