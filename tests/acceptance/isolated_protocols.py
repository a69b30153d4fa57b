"""A program whose stages run in separate processes, which some documents kill. Worker and stages both import it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from doorstep import Doorstep, Entity, Pipeline, Stage

doorstep = Doorstep(os.environ.get("ISOLATED_URL", "memory://"))
protocols = Pipeline(
    "protocol",
    first="uploaded",
    stages=[
        Stage("extracting", failed="extraction_failed", isolated=True, concurrency_max=1),
        Stage("grounding", failed="grounding_failed", isolated=True, concurrency_max=1),
    ],
    last="complete",
    policy=(0, 0),
)
doorstep.add(protocols)


@protocols.stage("extracting")
def extract(entity: Entity) -> dict[str, Any]:
    if entity.data.get("poison"):
        os._exit(3)
    return {"extracted_in": os.getpid()}


@protocols.stage("grounding")
async def ground(entity: Entity) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {**entity.data, "grounded_in": os.getpid()}
