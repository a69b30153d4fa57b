"""A program with a pipeline, which dies at the worst moments: `python -m tests.faults.pipeline_app`.

With a chance given in the environment it kills itself in the middle of a stage, or between the write of the entity and
the settle of its delivery; until there is a file named `peace`. Each stage leaves a line in `effects`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from doorstep import Doorstep, Entity, Gate, Pipeline, Stage
from doorstep.pipelines import writing
from doorstep.pipelines.moves import Turn
from doorstep.pipelines.stage_handler import StageRun
from doorstep.stores.store import Store
from doorstep.telemetry import Telemetry

_POLICY = [0.05] * 20
"""More tries than a test has deaths: what it is about is what comes of them, not that they are counted."""


def make(url: str | None = None) -> tuple[Doorstep, Pipeline]:
    """The program as it is meant to be."""
    doorstep = Doorstep(url)
    stages = [
        Stage("extracting", failed="extraction_failed", policy=_POLICY, concurrency_max=4),
        Stage("grounding", failed="grounding_failed", policy=_POLICY, concurrency_max=4),
    ]
    pipeline = Pipeline("protocol", first="uploaded", stages=[*stages, Gate("pending_review")], last="complete")
    doorstep.add(pipeline)
    return doorstep, pipeline


def die_sometimes(chance: float) -> None:
    if random.random() < chance and not Path("peace").exists():
        os.kill(os.getpid(), signal.SIGKILL)


def work(stage: str, entity: Entity) -> dict[str, Any]:
    die_sometimes(_CHANCE / 2)
    log = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{stage} {entity.entity_id}\n".encode())
    os.close(log)
    die_sometimes(_CHANCE / 2)
    return {"did": [*entity.data.get("did", ()), stage]}


def die_between_the_writes() -> None:
    finish = StageRun.finish

    async def finish_and_die(run: StageRun, entity: Entity, result: object) -> object:
        done = await finish(run, entity, result)
        die_sometimes(_CHANCE)
        return done

    StageRun.finish = finish_and_die  # type: ignore[method-assign]


def send_outside_of_the_transaction() -> None:
    """The broken build: the entity goes on in one transaction, and its next event is sent in another."""
    keep = writing.keep

    async def careless(store: Store, telemetry: Telemetry, turn: Turn) -> Entity | None:
        written = await keep(store, telemetry, turn._replace(posted=()))
        if written and turn.posted:
            die_sometimes(3 * _CHANCE)
            await store.post(turn.posted)
        return written

    writing.keep = careless


_CHANCE = float(os.environ.get("CHANCE_OF_DEATH", "0"))

if __name__ == "__main__":
    doorstep, protocols = make()

    @protocols.stage("extracting")
    def extract(entity: Entity) -> dict[str, Any]:
        time.sleep(random.uniform(0.05, 0.3))
        return work("extracting", entity)

    @protocols.stage("grounding")
    async def ground(entity: Entity) -> dict[str, Any]:
        await asyncio.sleep(random.uniform(0.05, 0.3))
        return work("grounding", entity)

    die_between_the_writes()
    if os.environ.get("SEND_OUTSIDE"):
        send_outside_of_the_transaction()
    doorstep.run()
