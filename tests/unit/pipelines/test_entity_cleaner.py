"""Retention of entities: finished entities are removed, and so are those of pipelines that no worker declares."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from doorstep import Doorstep, Pipeline
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.engine.directory import Tuning
from doorstep.errors import NotFound
from doorstep.model.entity import Entity, Phase, PipelineDeclarations
from doorstep.pipelines import transitions
from doorstep.services.maintenance import EntityCleaner
from doorstep.telemetry.facts import Fact, Notice, Telemetry
from doorstep.testing import FakeClock, sandbox
from tests.reference import ReferenceStore
from tests.support.builders import an_org, new_id
from tests.support.shortcuts import put
from tests.unit.pipelines.declared import protocols

DAY_SECONDS = 86_400.0
STATUSES = {
    "complete": Phase.RESTING,
    "archived": Phase.ARCHIVED,
    "pending_review": Phase.RESTING,
    "extracting": Phase.RUNNING,
    "dead_letter": Phase.DEAD,
}


class Scene:
    """Several workers on one store, each with its own pipelines."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = ReferenceStore(self.clock)
        self.heard: list[Fact] = []
        self.org = an_org()

    def cleaner(self, *pipelines: Pipeline, **tuning: Any) -> EntityCleaner:
        for pipeline in pipelines:
            pipeline.org_id = self.org.org_id
        return EntityCleaner(pipelines, self.store, self.clock, Tuning(**tuning), Telemetry(self.heard.extend))

    async def put(self, status: str, phase: Phase, name: str | None = None) -> None:
        """Store an entity; by default its name is its status."""
        turn = transitions.started(protocols().plan, self.org.org_id, name or status, {}, self.clock.now(), new_id())
        assert await self.store.put_entity(replace(turn.entity, status=status, phase=phase), 0)

    async def put_all(self) -> None:
        for status, phase in STATUSES.items():
            await self.put(status, phase)

    async def left(self, *names: str) -> list[str]:
        return [one for one in names or STATUSES if await self._is_there(one)]

    async def _is_there(self, name: str) -> bool:
        try:
            await self.store.get(Entity, self.org.org_id, ("protocol", name))
        except NotFound:
            return False
        return True

    def notices(self) -> Sequence[Notice]:
        return [one for one in self.heard if isinstance(one, Notice)]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    await scene.store.open()
    await put(scene.store, scene.org)
    yield scene
    await scene.store.close()


# -- declared pipelines ------------------------------------------------------------------------------------


async def test_what_has_been_complete_or_archived_for_a_year_is_removed_and_nothing_else(scene: Scene) -> None:
    cleaner = scene.cleaner(protocols())
    await scene.put_all()
    scene.clock.advance(364 * DAY_SECONDS)
    await cleaner.run_once()
    assert await scene.left() == list(STATUSES)
    scene.clock.advance(2 * DAY_SECONDS)
    await cleaner.run_once()
    assert await scene.left() == ["pending_review", "extracting", "dead_letter"]
    assert [one.fields["status"] for one in scene.notices()] == ["archived", "complete"]


async def test_what_rests_in_a_status_that_is_no_longer_declared_is_removed_too(scene: Scene) -> None:
    await scene.put_all()
    cleaner = scene.cleaner(
        protocols(last="done", archived="put_away", dead="given_up_on", stages=protocols().plan.steps)
    )
    scene.clock.advance(366 * DAY_SECONDS)
    await cleaner.run_once()
    assert await scene.left() == ["pending_review", "extracting", "dead_letter"]


async def test_what_is_on_its_way_stays_even_if_its_status_is_called_like_the_end(scene: Scene) -> None:
    await scene.put("complete", Phase.RUNNING)
    scene.clock.advance(366 * DAY_SECONDS)
    await scene.cleaner(protocols()).run_once()
    assert await scene.left("complete") == ["complete"]


async def test_many_are_removed_a_window_at_a_time(scene: Scene) -> None:
    for n in range(1_001):
        await scene.put("complete", Phase.RESTING, f"p{n}")
    scene.clock.advance(366 * DAY_SECONDS)
    cleaner = scene.cleaner(protocols())
    delays = [await cleaner.run_once() for _ in range(3)]
    assert [one.fields["entities"] for one in scene.notices()] == [500, 500, 1]
    assert delays[0] == delays[1] < 1 < delays[2]  # type: ignore[operator]


# -- pipelines that no worker declares any more ------------------------------------------------------------


async def test_a_pipeline_that_no_worker_has_had_for_a_year_is_removed_with_all_its_entities(scene: Scene) -> None:
    await scene.put_all()
    await scene.cleaner(protocols()).run_once()
    stranger = scene.cleaner()
    scene.clock.advance(364 * DAY_SECONDS)
    await stranger.run_once()
    assert await scene.left() == list(STATUSES)
    scene.clock.advance(2 * DAY_SECONDS)
    await stranger.run_once()
    assert await scene.left() == []
    assert all(one.fields["declared"] is False for one in scene.notices())


async def test_what_a_worker_has_that_others_do_not_is_left_alone_by_them(scene: Scene) -> None:
    await scene.put("pending_review", Phase.RESTING)
    its_own, stranger = scene.cleaner(protocols()), scene.cleaner()
    for _ in range(14):
        scene.clock.advance(30 * DAY_SECONDS)
        await its_own.run_once()
        await stranger.run_once()
    assert await scene.left("pending_review") == ["pending_review"]


async def test_a_program_that_is_off_for_a_few_weeks_finds_its_entities_however_short_they_are_kept(
    scene: Scene,
) -> None:
    await scene.put("pending_review", Phase.RESTING)
    await scene.cleaner(protocols(), entity_retention_days=1).run_once()
    stranger = scene.cleaner(entity_retention_days=1)
    for days, left in ((29, ["pending_review"]), (2, [])):
        scene.clock.advance(days * DAY_SECONDS)
        await stranger.run_once()
        assert await scene.left("pending_review") == left


async def test_what_is_declared_is_said_once_an_hour_and_no_oftener(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    write = scene.store.write

    async def listening(changes: Any) -> bool:
        said.append(changes)
        return await write(changes)

    monkeypatch.setattr(scene.store, "write", listening)
    workers = [scene.cleaner(protocols()) for _ in range(2)]
    for _ in range(120):
        for worker in workers:
            await worker.run_once()
        scene.clock.advance(60)
    assert len(said) == 2


async def test_a_worker_without_pipelines_cleans_up_after_those_who_had_some() -> None:
    pipeline = protocols()
    former, present = Doorstep("memory://"), Doorstep("memory://")
    former.add(pipeline)
    pipeline.stage("extracting")(lambda _: None)
    pipeline.stage("grounding")(lambda _: None)
    async with sandbox(former) as box:
        await pipeline.start({}, "p1")
        await box.drain()
        store, clock = former.components.store, box.clock
        assert (DEFAULT_ORG, "protocol") in {
            (one.org_id, one.pipeline): one.declared_at for one in await store.find(None, PipelineDeclarations())
        }
        present_cleaner = EntityCleaner([], store, clock, Tuning(), Telemetry())
        clock.advance(366 * DAY_SECONDS)
        await present_cleaner.run_once()
        with pytest.raises(NotFound):
            await pipeline.entity("p1")
    async with sandbox(present) as box:
        assert any(isinstance(one, EntityCleaner) for one in box._drainer._worker.services)
