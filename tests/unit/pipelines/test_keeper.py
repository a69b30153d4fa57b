"""The pipeline reconciler: it acts on facts and delivery results, and one bad entity does not delay the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep import Doorstep, Entity, Pipeline, Received, Stage, Transient
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.errors import StoreUnavailable
from doorstep.model import entity as model
from doorstep.model.entity import AwaitingEntities, Phase
from doorstep.model.listing import EventDeliveries
from doorstep.pipelines import transitions
from doorstep.services import pipeline_reconciler
from doorstep.services.pipeline_reconciler import PipelineReconciler, StageEndpoints
from doorstep.telemetry.facts import Fact, Notice, Telemetry
from doorstep.testing import FakeClock, sandbox
from tests.reference import ReferenceStore
from tests.support.builders import an_org, new_id
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import put
from tests.unit.pipelines.declared import protocols


def fails(_: Entity) -> None:
    raise Transient("NO", "No.")


async def hangs(_: Entity) -> None:
    await asyncio.Event().wait()


def declared(pipeline: Pipeline, function: Any = fails) -> Doorstep:
    doorstep = Doorstep("memory://")
    doorstep.add(pipeline)
    for stage in pipeline.plan.stages:
        pipeline.stage(stage.name)(function)
    return doorstep


# -- facts it receives -------------------------------------------------------------------------------------


async def test_a_try_that_ran_out_of_time_is_heard_of_under_whatever_name_a_code_map_gives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline_reconciler, "_SCAN_SECONDS", 3_600.0)  # no scan of all entities can find it
    stage = Stage("extracting", failed="unread", policy=[3600], timeout_seconds=0.1, code_map={"TIMEOUT": "SLOW"})
    pipeline = Pipeline("protocol", first="uploaded", stages=[stage], last="complete", policy=(0, 0))
    doorstep = declared(pipeline, hangs)
    async with doorstep, asyncio.timeout(PATIENCE_SECONDS):
        await pipeline.start({}, "p1")
        while (entity := await pipeline.entity("p1")).status != "unread":
            await asyncio.sleep(0.02)
    assert entity.metadata["error"]["code"] == "SLOW"


# -- which handlers carry an entity ------------------------------------------------------------------------


@pytest.mark.parametrize("other_ends_well", [True, False])
async def test_a_handler_that_is_called_like_a_stage_says_nothing_about_an_entity(other_ends_well: bool) -> None:
    pipeline = protocols()
    doorstep = declared(pipeline)

    @doorstep.handler("protocol.*", name="protocol.watch", policy="pipeline")
    def watch(_: Received) -> None:
        if not other_ends_well:
            raise Transient("WATCHED", "The watcher failed.")

    async with sandbox(doorstep) as box:
        await pipeline.start({}, "p1")
        await box.drain(until=60)
        dead = await pipeline.entity("p1")
    assert (dead.status, dead.metadata["error"]["code"], dead.error_reason) == ("dead_letter", "NO", "No.")


async def test_an_entity_is_not_ended_because_a_handler_that_only_watches_it_failed() -> None:
    pipeline = protocols()
    doorstep = declared(pipeline)

    @doorstep.handler("protocol.*", name="protocol.watch", policy="pipeline")
    def watch(_: Received) -> None:
        raise Transient("WATCHED", "The watcher failed.")

    del doorstep.registry.handlers["protocol.extracting"]  # the stage waits for a worker with this handler
    async with sandbox(doorstep) as box:
        await pipeline.start({}, "p1")
        await box.drain(until=60)
        assert (await pipeline.entity("p1")).status == "uploaded"


async def test_what_became_of_an_entity_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the result were read twice, an attempt that starts in between would be mistaken for a failed one."""
    stage = Stage("extracting", failed="unread", policy=[3600])
    pipeline = Pipeline("protocol", first="uploaded", stages=[stage], last="complete", policy=(0, 0))
    async with sandbox(declared(pipeline)) as box:
        await pipeline.start({}, "p1")
        await box.drain(until=1)
        stored = await box.doorstep.components.store.get(model.Entity, DEFAULT_ORG, ("protocol", "p1"))
        silent = replace(stored, status="extracting")  # as if the stage could not report its failure
        store, asked = box.doorstep.components.store, list[UUID]()
        find = store.find

        async def counting(org_id: UUID, query: Any) -> Any:
            if isinstance(query, EventDeliveries):
                asked.append(query.event_id)
            return await find(org_id, query)

        monkeypatch.setattr(store, "find", counting)
        keeper = PipelineReconciler([pipeline], store, box.clock, Telemetry())
        turn = await keeper._write_for(pipeline.plan, silent)
    assert turn is not None and turn.entity.status == "unread"
    assert asked == [silent.event_id]


# -- stages are not disabled -------------------------------------------------------------------------------


async def test_a_stage_that_fails_once_a_day_for_a_fortnight_is_not_disabled() -> None:
    pipeline = protocols()
    doorstep = declared(pipeline)
    async with sandbox(doorstep) as box:
        for day in range(14):
            await pipeline.start({}, f"p{day}")
            await box.drain(until=86_400)
            assert (await pipeline.entity(f"p{day}")).status == "dead_letter"
        endpoints = await doorstep.endpoints()
    assert {one.state.value for one in endpoints} == {"active"}


# -- declarations that change ------------------------------------------------------------------------------


def stages(*named: tuple[str, str]) -> list[Stage]:
    return [Stage(name, failed=failed) for name, failed in named]


async def test_entities_on_their_way_go_on_under_a_declaration_with_other_names() -> None:
    former = protocols()
    doorstep = declared(former)
    async with sandbox(doorstep) as box:
        started = await former.start({}, "started")
        store, clock = box.doorstep.components.store, box.clock
        failed = transitions.started(former.plan, DEFAULT_ORG, "failed", {}, clock.now(), new_id())
        await store.put_entity(replace(failed.entity, status="extraction_failed"), 0, failed.change, failed.messages)
        later = protocols(stages=stages(("scanning", "scan_failed"), ("extracting", "extraction_broke")))
        other = Doorstep("memory://")
        other.add(later)
        for stage in later.plan.stages:
            later.stage(stage.name)(lambda _: None)
        async with sandbox(other) as box_after:
            for entity in (started, failed.entity):
                kept = await store.get(model.Entity, DEFAULT_ORG, ("protocol", entity.entity_id))
                (posted,) = [one for one in await store.outbox(10) if one.event_id == entity.event_id]
                await other.components.store.put_entity(replace(kept, version=0), 0, None, [posted])
            await box_after.drain()
            assert [(await later.entity(one)).status for one in ("started", "failed")] == ["complete"] * 2


async def test_a_status_that_is_no_longer_declared_can_be_listed() -> None:
    pipeline = protocols()
    async with sandbox(declared(pipeline)) as box:
        turn = transitions.started(pipeline.plan, DEFAULT_ORG, "p1", {}, box.clock.now(), new_id())
        for name, phase in (("p1", Phase.RUNNING), ("p2", Phase.ARCHIVED)):
            old = replace(turn.entity, entity_id=name, status="called_otherwise", phase=phase)
            await box.doorstep.components.store.put_entity(old, 0)
        found = await pipeline.list(status="called_otherwise")
        assert [one.entity_id for one in found.items] == ["p2", "p1"]
        assert (await pipeline.list(status="nowhere")).items == ()


# -- one does not delay the others -------------------------------------------------------------------------


class Scene:
    def __init__(self, *pipelines: Pipeline) -> None:
        self.clock = FakeClock()
        self.store = ReferenceStore(self.clock)
        self.heard: list[Fact] = []
        self.org = an_org()
        for pipeline in pipelines:
            pipeline.org_id = self.org.org_id
        telemetry = Telemetry(self.heard.extend)
        self.keeper = PipelineReconciler(pipelines, self.store, self.clock, telemetry)

    async def put(
        self, pipeline: Pipeline, entity_id: str, status: str, phase: Phase, event: UUID | None
    ) -> model.Entity:
        now = self.clock.now()
        turn = transitions.started(pipeline.plan, self.org.org_id, entity_id, {}, now, new_id())
        entity = replace(turn.entity, status=status, phase=phase, event_id=event)
        assert await self.store.put_entity(entity, 0)
        return entity

    async def status(self, pipeline: Pipeline, entity_id: str) -> str:
        return (await self.store.get(model.Entity, self.org.org_id, (pipeline.name, entity_id))).status

    def notices(self) -> Sequence[Notice]:
        return [one for one in self.heard if isinstance(one, Notice) and one.level != "warning"]


async def opened(*pipelines: Pipeline) -> Scene:
    scene = Scene(*pipelines)
    await scene.store.open()
    await put(scene.store, scene.org)
    return scene


async def test_dead_letters_of_a_former_declaration_are_archived_under_the_new_name() -> None:
    pipeline = protocols(dead="given_up_on")
    scene = await opened(pipeline)
    await scene.put(pipeline, "old", "dead_letter", Phase.DEAD, None)
    await scene.put(pipeline, "adrift", "uploaded", Phase.RUNNING, new_id())
    scene.clock.advance(8 * 86_400)
    await scene.keeper.run_once()
    assert await scene.status(pipeline, "old") == "archived"
    assert await scene.status(pipeline, "adrift") == "given_up_on"


async def test_an_entity_that_cannot_be_looked_at_is_told_of_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = protocols()
    scene = await opened(pipeline)
    for name in ("p1", "p2", "p3"):
        await scene.put(pipeline, name, "uploaded", Phase.RUNNING, new_id())
    deliveries = StageEndpoints.deliveries

    async def stumbling(endpoints: StageEndpoints, entity: model.Entity) -> Any:
        if entity.entity_id == "p2":
            raise ValueError("a bug of ours")
        return await deliveries(endpoints, entity)

    monkeypatch.setattr(StageEndpoints, "deliveries", stumbling)
    await scene.keeper.run_once()
    assert [await scene.status(pipeline, name) for name in ("p1", "p2", "p3")] == [
        "dead_letter",
        "uploaded",
        "dead_letter",
    ]
    (notice,) = scene.notices()
    assert (notice.level, notice.fields["entity_id"]) == ("error", "p2")


async def test_a_pipeline_whose_store_fails_holds_up_no_other_and_what_was_heard_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = (
        protocols(),
        Pipeline("order", first="placed", stages=stages(("packing", "unpacked")), last="sent", policy=(0, 0)),
    )
    scene = await opened(first, second)
    events = new_id(), new_id()
    await scene.put(first, "p1", "uploaded", Phase.RUNNING, events[0])
    await scene.put(second, "o1", "placed", Phase.RUNNING, events[1])
    await scene.keeper.run_once()  # the scan turns both into dead letters; the next is due in ten seconds
    for pipeline, name, event in ((first, "p2", events[0]), (second, "o2", events[1])):
        await scene.put(pipeline, name, pipeline.plan.first, Phase.RUNNING, event)
    for walk in scene.keeper._scans:
        walk.event_ids += events
    find = scene.store.find

    async def away(org_id: UUID, query: Any) -> Any:
        if isinstance(query, AwaitingEntities) and query.pipeline == "protocol":
            raise StoreUnavailable("away")
        return await find(org_id, query)

    with monkeypatch.context() as patched:
        patched.setattr(scene.store, "find", away)
        with pytest.raises(StoreUnavailable):
            await scene.keeper.run_once()
    assert [await scene.status(first, "p2"), await scene.status(second, "o2")] == ["uploaded", "dead_letter"]
    await scene.keeper.run_once()
    assert await scene.status(first, "p2") == "dead_letter"
