"""The protocols profile on a scene: the nine statuses, with stages that a test controls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any
from uuid import UUID

from doorstep import Doorstep, Entity, Gate, Pipeline, Stage
from doorstep.schemas.pipelines import EntityChange
from tests.support.patience import PATIENCE_SECONDS
from tests.support.scene import Scene, until

Work = Callable[[Entity], Mapping[str, Any] | None]


class Protocols:
    """One process with the pipeline. `does` maps each stage to its work; `seen` records the calls."""

    def __init__(self, scene: Scene, **stage_fields: Any) -> None:
        self.scene = scene
        self.does: dict[str, Work] = {"extracting": lambda _: None, "grounding": lambda _: None}
        self.seen: list[tuple[str, str]] = []
        self.brought_by: UUID | None = None
        self.pipeline = Pipeline(
            "protocol",
            first="uploaded",
            stages=[
                Stage("extracting", failed="extraction_failed", **stage_fields),
                Stage("grounding", failed="grounding_failed", **stage_fields),
                Gate("pending_review"),
            ],
            last="complete",
            policy=(0, 0),
        )

        @self.pipeline.stage("extracting")
        def extract(entity: Entity) -> Mapping[str, Any] | None:
            """A plain function, which runs in a thread."""
            return self._do("extracting", entity)

        @self.pipeline.stage("grounding")
        async def ground(entity: Entity) -> Mapping[str, Any] | None:
            return self._do("grounding", entity)

    def _do(self, stage: str, entity: Entity) -> Mapping[str, Any] | None:
        assert entity.status == stage
        self.seen.append((stage, entity.entity_id))
        return self.does[stage](entity)

    async def open(self, **settings: Any) -> Doorstep:
        """Start a separate process in the scene."""
        self.doorstep = await self.scene.open(lambda doorstep: doorstep.add(self.pipeline), **settings)
        return self.doorstep

    async def start(self, entity_id: str = "p1", **data: Any) -> Entity:
        return await self.pipeline.start(data, entity_id)

    async def until(self, *statuses: str, entity_id: str = "p1") -> Entity:
        async def reached() -> bool:
            return (await self.pipeline.entity(entity_id)).status in statuses

        await until(reached, f"a protocol that is {' or '.join(statuses)}")
        return await self.pipeline.entity(entity_id)

    async def path(self, entity_id: str = "p1") -> list[str]:
        """The statuses of the entity, in order."""
        lines = list(await self.pipeline.history(entity_id))
        check_chain(lines)
        return [line.new_status for line in lines]


def check_chain(lines: list[EntityChange]) -> None:
    """Check that each history entry begins where the previous one ended."""
    assert lines[0].old_status is None
    for before, after in pairwise(lines):
        assert after.old_status == before.new_status
        assert after.at >= before.at


def failing(error: BaseException) -> Work:
    def work(_: Entity) -> None:
        raise error

    return work


class Held:
    """Work that blocks until it is released, and then does what the test specified."""

    def __init__(self, then: Work = lambda _: None) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.done = threading.Event()
        self._then = then

    def __call__(self, entity: Entity) -> Mapping[str, Any] | None:
        self.begun.set()
        self.go.wait(PATIENCE_SECONDS)
        try:
            return self._then(entity)
        finally:
            self.done.set()
