"""Programs behind a console: one with a pipeline whose stages behave as scripted, one with a carrier of batches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from doorstep import Doorstep, Permanent, Received, Transient
from doorstep.model.batch import Batch, BatchStatus
from doorstep.model.endpoint import CircuitRules
from doorstep.schemas.pipelines import Entity
from tests.acceptance.protocols import Protocols, failing
from tests.console.visiting import Shown
from tests.support.loop_receiver import Receiver
from tests.support.scene import Scene, until

PICTURE = Permanent("INVALID_FORMAT", "The document is a picture, not a text.")
BUSY = Transient("B-1", "The carrier is busy.", response={"code": "B-1", "text": "busy"})
REJECTED = Permanent("R-9", "The carrier said no.", response="R-9 <b>rejected</b>")
GATE = "pending_review"


def row_of(shown: Shown, row_id: object) -> str:
    """The visible text of one row in a list."""
    _, found, rest = shown.source.partition(f'<tr id="row-{row_id}"')
    assert found, f"no row {row_id} at {shown.path}"
    return shown._replace(source=found + rest.partition("</tr>")[0]).text


@asynccontextmanager
async def carried(database_url: str, receiver: Receiver, **stage_fields: Any) -> AsyncIterator[Protocols]:
    """Protocols that run in the only process of a scene."""
    scene = Scene(database_url, receiver)
    made = Protocols(scene, **stage_fields)
    await made.open()
    try:
        yield made
    finally:
        await scene.close()


async def dead(protocols: Protocols, entity_id: str = "p1") -> Entity:
    """A protocol whose extraction fails, so that it becomes a dead letter."""
    protocols.does["extracting"] = failing(PICTURE)
    await protocols.start(entity_id, path="a.txt")
    found = await protocols.until("dead_letter", entity_id=entity_id)
    protocols.does["extracting"] = lambda _: None
    return found


async def waiting(protocols: Protocols, entity_id: str = "p1") -> Entity:
    """A protocol that waits at its gate."""
    await protocols.start(entity_id, path="a.txt")
    return await protocols.until(GATE, entity_id=entity_id)


async def complete(protocols: Protocols, entity_id: str = "p1") -> Entity:
    await waiting(protocols, entity_id)
    return await protocols.pipeline.approve(entity_id, "mary")


class Carrier:
    """Raises the errors in its script, one per call; after that, it accepts every batch."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.script: list[Exception] = []
        self.given: list[Received] = []

    def declare(self, doorstep: Doorstep) -> None:
        codes = {"B-1": "SERVICE_UNAVAILABLE", "R-9": "BATCH_REJECTED"}
        patient = CircuitRules(failures_max=1_000)
        doorstep.batch("sms.batch", name="carrier", policy="carrier", code_map=codes, circuit=patient)(self.submit)

    def submit(self, batch: Received) -> dict[str, str]:
        self.given.append(batch)
        if self.script:
            raise self.script.pop(0)
        return {"reference": f"C-{len(self.given)}"}

    async def send(self, *script: Exception) -> Batch:
        self.script = list(script)
        return await self.scene.doorstep.batches.submit("sms.batch", {"messages": ["hello"]})

    async def failed(self) -> Batch:
        return await self.until(await self.send(REJECTED), BatchStatus.FAILED)

    async def until(self, batch: Batch, status: BatchStatus, attempts: int = 1) -> Batch:
        async def reached() -> bool:
            seen = await self.read(batch.batch_id)
            under_way = seen.error_code is None and seen.settled_at is None
            return seen.status is status and seen.attempts >= attempts and not under_way

        await until(reached, f"a batch that is {status}")
        return await self.read(batch.batch_id)

    async def read(self, batch_id: UUID) -> Batch:
        return await self.scene.doorstep.batches.batch(batch_id)


@asynccontextmanager
async def submitted(database_url: str, receiver: Receiver) -> AsyncIterator[Carrier]:
    """A carrier that runs in the only process of a scene."""
    scene = Scene(database_url, receiver)
    made = Carrier(scene)
    await scene.open(made.declare)
    try:
        yield made
    finally:
        await scene.close()
