"""A program with a pipeline that dies at the worst moments: `python -m tests.faults.pipeline_app`.

With a probability from the environment, it kills itself in the middle of a stage, between writing the entity and
settling its delivery, or while deciding at a gate. It stops doing so when a file named `peace` exists. Each stage
appends a line to `effects`. Every worker has a reviewer, so several reviewers decide about the same entity at the same
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from doorstep import Doorstep, Entity, Gate, Pipeline, Stage, Transient
from doorstep.errors import Conflict, StoreError
from doorstep.model import entity as model
from doorstep.pipelines import stage_handler
from doorstep.pipelines.stage_handler import StageRun
from doorstep.pipelines.transitions import EntityWrite
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry
from tests.support.shortcuts import post

_POLICY = [0.05] * 20
"""More attempts than a test has deaths. The tests check the results of the deaths, not how the attempts are counted."""
_CHANCE_OF_FAILURE = 0.03
_CHANCE_OF_REJECTION = 0.05
_LOOK_SECONDS = 0.05
_SEEN_AT_ONCE = 20


def make(url: str | None = None) -> tuple[Doorstep, Pipeline]:
    """The unbroken program."""
    doorstep = Doorstep(url)
    stages: list[Stage | Gate] = [
        Stage("extracting", failed="extraction_failed", policy=_POLICY, concurrency_max=4),
        Gate("first_review"),
        Stage("grounding", failed="grounding_failed", policy=_POLICY, concurrency_max=4),
        Gate("second_review"),
    ]
    pipeline = Pipeline("protocol", first="uploaded", stages=stages, last="complete")
    doorstep.add(pipeline)
    return doorstep, pipeline


def die_sometimes(chance: float) -> None:
    if random.random() < chance and not Path("peace").exists():
        os.kill(os.getpid(), signal.SIGKILL)


# -- stages and reviews ------------------------------------------------------------------------------------


def work(stage: str, entity: Entity) -> dict[str, Any]:
    die_sometimes(_CHANCE / 2)
    if random.random() < _CHANCE_OF_FAILURE:
        raise Transient("SHAKY", "Its hand was not steady.")
    log = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{stage} {entity.entity_id}\n".encode())
    os.close(log)
    die_sometimes(_CHANCE / 2)
    return {"did": [*entity.data.get("did", ()), stage]}


async def review(pipeline: Pipeline) -> None:
    """Decide about every waiting entity, while the reviewers of other workers do the same."""
    while True:
        for gate in sorted(pipeline.plan.gates):
            with contextlib.suppress(StoreError):
                for entity in (await pipeline.list(gate, limit=_SEEN_AT_ONCE)).items:
                    await decide(pipeline, entity)
        await asyncio.sleep(_LOOK_SECONDS)


async def decide(pipeline: Pipeline, entity: Entity) -> None:
    with contextlib.suppress(Conflict):  # another reviewer was faster
        if random.random() < _CHANCE_OF_REJECTION:
            await pipeline.reject(entity.entity_id, "reviewer", "once more", gate=entity.status)
        else:
            await pipeline.approve(entity.entity_id, "reviewer", gate=entity.status)
        die_sometimes(_CHANCE / 4)


def die_between_the_writes() -> None:
    finish = StageRun.finish

    async def finish_and_die(run: StageRun, entity: model.Entity, result: object) -> object:
        done = await finish(run, entity, result)
        die_sometimes(_CHANCE)
        return done

    StageRun.finish = finish_and_die  # type: ignore[method-assign]


# -- broken builds -----------------------------------------------------------------------------------------


def send_outside_of_the_transaction() -> None:
    """Writes the entity in one transaction, and sends its next event in another."""
    keep = stage_handler.write_entity

    async def careless(store: Store, telemetry: Telemetry, turn: EntityWrite) -> model.Entity | None:
        written = await keep(store, telemetry, turn._replace(messages=()))
        if written and turn.messages:
            die_sometimes(0.9)
            await post(store, turn.messages)
        return written

    stage_handler.write_entity = careless


def write_over_whatever_is_there() -> None:
    """Writes a result even if it was computed from an outdated version of the entity."""
    keep = stage_handler.write_entity

    async def gullible(store: Store, telemetry: Telemetry, turn: EntityWrite) -> model.Entity | None:
        entity = turn.entity
        if entity.version:
            await asyncio.sleep(_LOOK_SECONDS)  # time for another process to be faster
            present = await store.get(model.Entity, entity.org_id, (entity.pipeline, entity.entity_id))
            turn = turn._replace(entity=replace(entity, version=present.version))
        return await keep(store, telemetry, turn)

    stage_handler.write_entity = gullible


BREAKS = {"send-outside": send_outside_of_the_transaction, "write-over": write_over_whatever_is_there}
_CHANCE = float(os.environ.get("CHANCE_OF_DEATH", "0"))


async def main() -> None:
    doorstep, protocols = make()

    @protocols.stage("extracting")
    def extract(entity: Entity) -> dict[str, Any]:
        time.sleep(random.uniform(0.05, 0.3))
        return work("extracting", entity)

    @protocols.stage("grounding")
    async def ground(entity: Entity) -> dict[str, Any]:
        await asyncio.sleep(random.uniform(0.05, 0.3))
        return work("grounding", entity)

    async with doorstep:
        await review(protocols)


if __name__ == "__main__":
    die_between_the_writes()
    if name := os.environ.get("BROKEN"):
        BREAKS[name]()
    asyncio.run(main())
