"""Pipeline declarations: their statuses, the allowed transitions, and the declarations that are refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from doorstep import Gate, Stage
from doorstep.errors import ConfigError
from doorstep.model.delivery import IllegalTransition
from doorstep.model.entity import Phase
from tests.docs.pages import HOW_TO, fences
from tests.unit.pipelines.declared import protocols

PLAN = protocols().plan


def test_the_profile_has_its_nine_statuses_in_order() -> None:
    assert list(PLAN.phases) == [
        "uploaded",
        "extracting",
        "grounding",
        "pending_review",
        "complete",
        "extraction_failed",
        "grounding_failed",
        "dead_letter",
        "archived",
    ]


def test_each_status_means_one_thing_to_the_engine() -> None:
    running = {status for status, phase in PLAN.phases.items() if phase is Phase.RUNNING}
    assert running == {"uploaded", "extracting", "grounding", "extraction_failed", "grounding_failed"}
    assert PLAN.phases["pending_review"] is PLAN.phases["complete"] is Phase.RESTING


def test_every_pair_that_is_not_declared_is_refused() -> None:
    allowed = set(PLAN.transitions)
    assert len(allowed) == 23
    for old, new in product(PLAN.phases, repeat=2):
        if (old, new) in allowed:
            PLAN.check(old, new)
        else:
            with pytest.raises(IllegalTransition, match=f"from {old} to {new}"):
                PLAN.check(old, new)


def test_complete_is_final() -> None:
    assert [pair for pair in PLAN.transitions if pair[0] == "complete"] == []


def test_every_status_can_be_reached_and_every_life_can_end() -> None:
    assert _reachable("uploaded", PLAN.transitions) == set(PLAN.phases)
    backwards = [(new, old) for old, new in PLAN.transitions]
    assert _reachable("complete", backwards) == set(PLAN.phases)


def _reachable(start: str, pairs: Any) -> set[str]:
    found, added = {start}, True
    while added:
        added = {new for old, new in pairs if old in found} - found
        found |= added
    return found


def test_what_failed_and_what_is_no_longer_declared_can_be_retried() -> None:
    retryable = [status for status in (*PLAN.phases, "renamed") if PLAN.can_retry(status)]
    assert retryable == ["extraction_failed", "grounding_failed", "dead_letter", "archived", "renamed"]
    PLAN.check("renamed", "uploaded")
    PLAN.check("renamed", "dead_letter")
    with pytest.raises(IllegalTransition):
        PLAN.check("renamed", "complete")


def test_the_page_shows_the_diagram_of_the_declaration() -> None:
    assert fences(HOW_TO / "pipelines.md", "mermaid") == [f"{PLAN.diagram()}\n"]


def test_stages_may_share_a_failed_status_and_gates_may_stand_anywhere_but_first() -> None:
    stages = [Stage("a", failed="failed"), Gate("b"), Stage("c", failed="failed"), Gate("d"), Gate("e")]
    plan = protocols(stages=stages).plan
    assert [plan.after(name) for name in ("a", "b", "e")] == [stages[1], stages[2], None]
    assert {("failed", "a"), ("failed", "c"), ("b", "c"), ("d", "e"), ("e", "complete")} <= set(plan.transitions)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": []}, "must begin with a Stage"),
        ({"stages": [Gate("review")]}, "must begin with a Stage"),
        ({"last": "uploaded"}, "'uploaded' for two statuses"),
        ({"stages": [Stage("a", failed="a")]}, "'a' for two statuses"),
        ({"stages": [Stage("a", failed="b"), Stage("a", failed="c")]}, "'a' for two statuses"),
        ({"dead": "archived"}, "'archived' for two statuses"),
        ({"first": "not yet"}, "'not yet' is not a valid name"),
        ({"first": ""}, "'' is not a valid name"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        protocols(**changes)


def test_a_function_for_no_stage_or_a_second_one_is_refused() -> None:
    pipeline = protocols()
    with pytest.raises(ConfigError, match="no stage 'extractng'; its stages are extracting, grounding"):
        pipeline.stage("extractng")
    pipeline.stage("extracting")(lambda entity: None)
    with pytest.raises(ConfigError, match="two functions"):
        pipeline.stage("extracting")(lambda entity: None)
    assert pipeline.missing == ["grounding"]


async def test_a_pipeline_without_a_doorstep_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"call doorstep\.add"):
        await protocols().start({})
