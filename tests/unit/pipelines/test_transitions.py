"""The transitions of an entity, tested as pure functions, one turn at a time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from doorstep.model.delivery import IllegalTransition
from doorstep.model.entity import Entity, Phase
from doorstep.pipelines import transitions
from doorstep.pipelines.transitions import EntityWrite, StageFailure
from tests.support.builders import NOW, new_id
from tests.unit.pipelines.declared import protocols

PLAN = protocols().plan
ORG, EVENT, NEXT = new_id(), new_id(), new_id()
TROUBLE = StageFailure("It is blurred.", "transient", "BLURRED", 2)


def started() -> EntityWrite:
    return transitions.started(PLAN, ORG, "p1", {"path": "a"}, NOW, EVENT)


def at(status: str, **changes: object) -> Entity:
    fields = {"status": status, "phase": PLAN.phases[status], **changes}
    return replace(started().entity, **fields)


def test_a_new_entity_goes_with_the_event_of_its_first_stage() -> None:
    turn = started()
    (message,) = turn.messages
    assert (message.event_id, message.event_type) == (turn.entity.event_id, "protocol.extracting")
    assert (message.payload, message.options.correlation_id) == (b'{"protocol_id":"p1"}', "p1")
    assert turn.entity.phase is Phase.RUNNING


def test_a_try_that_begins_writes_no_history_where_the_status_stays() -> None:
    assert transitions.begun(PLAN, at("extracting"), "extracting", NOW, 2).change is None
    again = transitions.begun(PLAN, at("extraction_failed"), "extracting", NOW, 2)
    assert again.change is not None and again.change.reason == "attempt 2"


def test_a_stage_that_is_done_sends_the_event_of_the_next_in_the_same_turn() -> None:
    turn = transitions.finished(PLAN, at("extracting", error_reason="old"), "extracting", {"text": "x"}, NOW + 1, NEXT)
    assert (turn.entity.status, turn.entity.data, turn.entity.error_reason) == ("grounding", {"text": "x"}, None)
    assert [one.event_id for one in turn.messages] == [NEXT] == [turn.entity.event_id]
    assert turn.change is not None and turn.change.event_id == EVENT, "the one that brought it there"


def test_at_a_gate_an_entity_has_no_event_so_a_repetition_of_its_last_one_is_passed_over() -> None:
    turn = transitions.finished(PLAN, at("grounding"), "grounding", None, NOW, NEXT)
    assert (turn.entity.status, turn.entity.event_id, turn.messages) == ("pending_review", None, ())
    assert turn.entity.data == {"path": "a"}, "a stage that returns nothing leaves it"


def test_a_failure_is_told_to_people_and_to_programs_and_a_retry_forgets_both() -> None:
    failed = transitions.failed(
        PLAN, at("extracting", metadata={"own": 1}), PLAN.stage("extracting"), TROUBLE, NOW
    ).entity
    assert (failed.status, failed.error_reason) == ("extraction_failed", "It is blurred.")
    assert failed.metadata["error"] == {
        "category": "pipeline_failed",
        "reason": "It is blurred.",
        "retry_count": 1,
        "kind": "transient",
        "code": "BLURRED",
        "attempt_count": 2,
        "event_id": str(EVENT),
        "at": "2025-06-15T15:06:40.000000Z",
    }
    again = transitions.retried(PLAN, failed, "ops", "", NOW, NEXT).entity
    assert (again.status, again.error_reason, again.metadata, again.event_id) == ("uploaded", None, {"own": 1}, NEXT)


def test_what_is_given_up_keeps_its_event_for_an_operator_who_retries_the_delivery() -> None:
    dead = transitions.dead_lettered(PLAN, at("extraction_failed"), TROUBLE, NOW).entity
    assert (dead.status, dead.phase, dead.event_id) == ("dead_letter", Phase.DEAD, EVENT)
    assert transitions.begun(PLAN, dead, "extracting", NOW, 4).entity.status == "extracting"


def test_people_are_named_in_history_and_audit() -> None:
    waiting = at("pending_review", event_id=None)
    for turn, action, reason in (
        (transitions.approved(PLAN, waiting, "mary", NOW, NEXT), "entity.approve", "approved by mary"),
        (transitions.rejected(PLAN, waiting, "mary", "unsigned", NOW), "entity.reject", "rejected by mary: unsigned"),
        (transitions.retried(PLAN, at("archived"), "mary", "", NOW, NEXT), "entity.retry", "retried by mary"),
    ):
        assert turn.audit_entry is not None and turn.change is not None
        assert (turn.audit_entry.action, turn.audit_entry.actor, turn.audit_entry.result) == (
            action,
            "mary",
            turn.entity.status,
        )
        assert turn.change.reason == reason


def test_a_turn_that_the_plan_does_not_know_cannot_be_made() -> None:
    for turn in (
        lambda: transitions.begun(PLAN, at("complete"), "extracting", NOW, 1),
        lambda: transitions.failed(PLAN, at("pending_review"), PLAN.stage("grounding"), TROUBLE, NOW),
        lambda: transitions.dead_lettered(PLAN, at("complete"), TROUBLE, NOW),
        lambda: transitions.retried(PLAN, at("grounding"), "ops", "", NOW, NEXT),
        lambda: transitions.archived(PLAN, at("complete"), NOW),
    ):
        with pytest.raises(IllegalTransition):
            turn()


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.DEAD, Phase.ARCHIVED])
@pytest.mark.parametrize("status", ["uploaded", "grounding_failed", "called_otherwise_then"])
def test_a_try_of_its_own_event_begins_whatever_its_status_was_called(status: str, phase: Phase) -> None:
    entity = replace(at("uploaded"), status=status, phase=phase)
    begun = transitions.begun(PLAN, entity, "extracting", NOW, 1).entity
    assert (begun.status, begun.phase) == ("extracting", Phase.RUNNING)


def test_what_a_former_declaration_called_otherwise_can_be_given_up_and_archived() -> None:
    running = replace(at("uploaded"), status="scanning")
    assert transitions.dead_lettered(PLAN, running, TROUBLE, NOW).entity.status == "dead_letter"
    dead = replace(at("dead_letter"), status="given_up_on")
    assert transitions.archived(PLAN, dead, NOW).entity.status == "archived"


def test_an_untouched_dead_letter_is_seen_as_archived_from_that_instant_on() -> None:
    dead = at("dead_letter")
    assert transitions.as_seen(PLAN, dead, NOW).status == "dead_letter"
    assert transitions.as_seen(PLAN, dead, NOW + 1).status == "archived"
    assert transitions.as_seen(PLAN, at("complete"), NOW + 1).status == "complete"
