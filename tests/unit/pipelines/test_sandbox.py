"""Pipelines in the test sandbox: an entity's whole life in milliseconds, and what the reconciler finds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from doorstep import Doorstep, Entity, Permanent, Pipeline
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.errors import ConfigError
from doorstep.model import entity as model
from doorstep.telemetry.facts import Notice
from doorstep.testing import Sandbox, sandbox
from tests.unit.pipelines.declared import protocols

WEEK = 7 * 86_400


class Program:
    def __init__(self) -> None:
        self.doorstep = Doorstep("memory://")
        self.pipeline = protocols()
        self.doorstep.add(self.pipeline)
        self.pipeline.stage("extracting")(self.extract)
        self.pipeline.stage("grounding")(self.ground)
        self.ran: list[str] = []

    async def extract(self, entity: Entity) -> dict[str, Any]:
        self.ran.append("extracting")
        if entity.data.get("bad"):
            raise Permanent("BAD", "It is bad.")
        return {**entity.data, "text": "x"}

    def ground(self, entity: Entity) -> None:
        self.ran.append("grounding")


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.fixture
async def box(program: Program) -> AsyncIterator[Sandbox]:
    async with sandbox(program.doorstep) as it:
        yield it


async def status(program: Program, entity_id: str = "p1") -> str:
    return (await program.pipeline.entity(entity_id)).status


async def test_an_entity_goes_through_all_its_stages_in_one_drain(program: Program, box: Sandbox) -> None:
    await program.pipeline.start({"n": 1}, "p1")
    box.assert_sent("protocol.extracting", count=1)
    await box.drain()
    assert await status(program) == "pending_review"
    assert program.ran == ["extracting", "grounding"]
    assert (await program.pipeline.approve("p1", "mary")).status == "complete"


async def test_a_dead_letter_is_archived_after_a_week(program: Program, box: Sandbox) -> None:
    await program.pipeline.start({"bad": True}, "p1")
    await box.drain()
    assert await status(program) == "dead_letter"
    await box.drain(until=WEEK + 60)
    stored = await program.doorstep.components.store.get(model.Entity, DEFAULT_ORG, ("protocol", "p1"))
    assert stored.status == "archived"


async def test_an_entity_that_nothing_carries_on_is_found_by_the_walk(program: Program, box: Sandbox) -> None:
    entity = await program.pipeline.start({}, "p1")
    await program.doorstep.components.store.clear_outbox([entity.event_id])  # type: ignore[list-item]
    await box.drain(until=30)
    lost = await program.pipeline.entity("p1")
    assert (lost.status, lost.metadata["error"]["code"]) == ("dead_letter", "LOST")
    await program.pipeline.retry("p1", "ops")
    await box.drain()
    assert await status(program) == "pending_review"


async def test_what_waits_for_a_worker_with_its_function_is_left_in_peace(box: Sandbox, program: Program) -> None:
    del program.doorstep.registry.handlers["protocol.extracting"]
    await program.pipeline.start({}, "p1")
    await box.drain(until=3_600)
    assert await status(program) == "uploaded"


async def test_a_process_without_some_of_the_functions_says_so_once() -> None:
    doorstep, pipeline = Doorstep("memory://"), protocols()
    heard: list[Any] = []
    doorstep.telemetry.subscribe(heard.extend)
    doorstep.add(pipeline)
    pipeline.stage("extracting")(lambda entity: None)
    async with sandbox(doorstep) as box:
        await box.drain(until=60)
    (notice,) = [fact for fact in heard if isinstance(fact, Notice) and "pipeline" in fact.fields]
    assert notice.fields == {"pipeline": "protocol", "stages": ["grounding"]}


def test_a_pipeline_belongs_to_one_doorstep_and_a_name_to_one_pipeline() -> None:
    doorstep, pipeline = Doorstep("memory://"), protocols()
    doorstep.add(pipeline)
    with pytest.raises(ConfigError, match="two pipelines are named 'protocol'"):
        doorstep.add(protocols())
    with pytest.raises(ConfigError, match="added twice"):
        Doorstep("memory://").add(pipeline)


def test_the_endpoints_of_the_stages_have_the_policy_of_the_pipeline_and_what_the_stage_says() -> None:
    pipeline: Pipeline = protocols(policy="pipeline")
    forms = {form.name: form for form in pipeline.forms()}
    assert list(forms) == ["protocol.uploaded", "protocol.extracting", "protocol.grounding"]
    assert [form.policy for form in forms.values()] == ["patient", "pipeline", "pipeline"]
    assert {form.circuit.failures_max for form in forms.values()} == {1_000_000}
