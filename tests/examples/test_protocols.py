"""The acceptance criteria of the protocols profile, tested on its example."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import pairwise

import pytest

from doorstep.client import Conflict, Forbidden, Invalid, NotFound
from doorstep.schemas.pipelines import Entity
from examples.counterpart import Answer, running
from examples.protocols.extraction import Extraction
from examples.protocols.story import Story
from examples.theatre import Theatre, staged
from tests.examples.conftest import served
from tests.examples.looking import PROFILES, story_in

TEXT, PICTURE, UNGROUNDED = "Open the valve.", "\x89PNG", "As in [manual]."
A_WEEK = 7 * 86_400


@pytest.fixture
def protocols() -> Iterator[Story]:
    """The program with services that lack the source of UNGROUNDED."""
    with running(Extraction) as services:
        services.answers["/sources/manual"] = Answer(404)
        yield Story(services)


@pytest.fixture
async def stage(database_url: str, protocols: Story, told: list[str]) -> AsyncIterator[Theatre]:
    """Migrates, which creates the program's own table."""
    async with staged(database_url, say=told.append, served=served, create=protocols.create) as it:
        yield it


async def upload(stage: Theatre, protocols: Story, content: str = TEXT, protocol_id: str = "p1") -> Entity:
    await protocols.upload(protocol_id, content)
    await stage.pass_time(35)
    return await seen(stage, protocol_id)


async def seen(stage: Theatre, protocol_id: str = "p1") -> Entity:
    return await stage.api.pipelines.read("protocol", protocol_id)


async def statuses(stage: Theatre, protocol_id: str = "p1") -> list[str]:
    return [line.new_status for line in await stage.api.pipelines.history("protocol", protocol_id)]


async def listed(stage: Theatre, status: str | None = None, archived: bool | None = None) -> list[str]:
    page = await stage.api.pipelines.entities("protocol", status=status, archived=archived)
    return [one.entity_id for one in page]


async def test_the_story_is_told_as_its_page_shows_it(stage: Theatre, protocols: Story, told: list[str]) -> None:
    await protocols(stage)
    assert "\n".join(told) == story_in(PROFILES / "protocols.md")


# -- statuses ----------------------------------------------------------------------------------------------------------


async def test_r1_1_the_events_of_a_good_life_are_all_delivered(stage: Theatre, protocols: Story) -> None:
    await upload(stage, protocols)
    events = list(await stage.api.events.page(event_type="protocol.*"))
    assert {(one.event_type, one.status) for one in events} == {
        ("protocol.uploaded", "delivered"),
        ("protocol.extracting", "delivered"),
        ("protocol.grounding", "delivered"),
    }
    assert {one.correlation_id for one in events} == {"p1"}


async def test_r9_4_there_are_nine_statuses_and_no_others(stage: Theatre) -> None:
    (pipeline,) = await stage.api.pipelines.page()
    assert pipeline.statuses == (
        "uploaded",
        "extracting",
        "grounding",
        "pending_review",
        "complete",
        "extraction_failed",
        "grounding_failed",
        "dead_letter",
        "archived",
    )


async def test_r9_4_a_document_goes_from_uploaded_to_complete(stage: Theatre, protocols: Story) -> None:
    assert (await upload(stage, protocols)).status == "pending_review"
    approved = await stage.api.pipelines.approve("protocol", "p1")
    assert (approved.status, approved.data) == ("complete", {"words": 3, "cites": []})
    assert await statuses(stage) == ["uploaded", "extracting", "grounding", "pending_review", "complete"]


async def test_r9_4_nothing_passes_the_gate_without_a_person(stage: Theatre, protocols: Story) -> None:
    await upload(stage, protocols)
    await stage.pass_time(30 * 86_400)
    assert (await seen(stage)).status == "pending_review"


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_r2_2_a_stage_is_tried_three_times_in_all(stage: Theatre, protocols: Story) -> None:
    await upload(stage, protocols, UNGROUNDED)
    assert await statuses(stage) == [
        "uploaded",
        "extracting",
        *["grounding", "grounding_failed"] * 3,
        "dead_letter",
    ]
    (letter,) = await stage.api.dead_letters.page()
    attempts = list(await stage.api.deliveries.attempts(letter.delivery_id))
    assert [one.number for one in attempts] == [1, 2, 3]
    pauses = [(later.started_at - sooner.started_at).total_seconds() for sooner, later in pairwise(attempts)]
    assert [round(pause) for pause in pauses] == [5, 30]


async def test_r9_4_a_failed_document_says_why_to_people_and_to_programs(stage: Theatre, protocols: Story) -> None:
    protocol = await upload(stage, protocols, UNGROUNDED)
    assert protocol.error_reason == "1 of the sources that it cites cannot be found."
    error = protocol.metadata["error"]
    assert (error["kind"], error["code"], error["attempt_count"]) == ("transient", "SOURCE_MISSING", 3)
    assert (await stage.api.events.status(error["event_id"])).status == "failed"


async def test_r3_2_what_is_permanent_is_a_dead_letter_at_once(stage: Theatre, protocols: Story) -> None:
    protocol = await upload(stage, protocols, PICTURE)
    assert (protocol.status, protocol.error_reason) == ("dead_letter", "The document is a picture, not a text.")
    assert await statuses(stage) == ["uploaded", "extracting", "extraction_failed", "dead_letter"]


async def test_r3_4_any_other_exception_is_transient_and_says_nothing_of_its_own(
    stage: Theatre, protocols: Story
) -> None:
    await protocols.pipeline.start({}, "secret-name")
    await stage.pass_time(35)
    protocol = await seen(stage, "secret-name")
    assert (protocol.status, protocol.error_reason) == ("dead_letter", "The handler raised LookupError.")
    assert "secret-name" not in str(protocol.metadata)


async def test_r6_1_documents_that_cannot_be_read_hold_up_no_other(stage: Theatre, protocols: Story) -> None:
    for n in range(8):
        await upload(stage, protocols, PICTURE, f"bad{n}")
    assert (await upload(stage, protocols)).status == "pending_review"


# -- retry -------------------------------------------------------------------------------------------------------------


async def test_r9_4_a_retry_goes_back_to_the_start_without_the_error_and_with_a_new_event(
    stage: Theatre, protocols: Story
) -> None:
    dead = await upload(stage, protocols, UNGROUNDED)
    del protocols.services.answers["/sources/manual"]
    answer = await stage.api.pipelines.retry("protocol", "p1", reason="it has come")
    assert answer == {"status": "retry_queued", "protocol_id": "p1"}
    again = await seen(stage)
    assert (again.status, again.error_reason, again.metadata) == ("uploaded", None, {})
    assert again.event_id not in (None, dead.event_id)
    await stage.pass_time()
    assert (await seen(stage)).status == "pending_review"


async def test_r9_4_a_failed_state_can_be_retried_while_it_waits(stage: Theatre, protocols: Story) -> None:
    """A stage with a custom policy may wait between its attempts; in this test, a pause of its endpoint holds it."""
    endpoints = await stage.api.endpoints.page()
    (grounding,) = [one for one in endpoints if one.name == "protocol.grounding"]
    await stage.api.endpoints.change(grounding.endpoint_id, policy=[60, 60])
    assert (await upload(stage, protocols, UNGROUNDED)).status == "grounding_failed"
    protocols.documents.replace("p1", TEXT)
    await stage.api.pipelines.retry("protocol", "p1")
    await stage.pass_time()
    assert (await seen(stage)).status == "pending_review"
    await stage.pass_time(600)
    assert (await seen(stage)).status == "pending_review", "what was left of the first round changed nothing"


async def test_r9_4_a_retry_of_another_state_is_a_400_and_of_an_unknown_document_a_404(
    stage: Theatre, protocols: Story
) -> None:
    await upload(stage, protocols)
    with pytest.raises(Invalid, match="protocol p1 is pending_review") as refused:
        await stage.api.pipelines.retry("protocol", "p1")
    assert refused.value.status == 400
    for pipeline, protocol_id in (("protocol", "p2"), ("other", "p1")):
        with pytest.raises(NotFound):
            await stage.api.pipelines.retry(pipeline, protocol_id)


async def test_r7_6_a_viewer_looks_an_operator_acts_and_every_act_is_audited(stage: Theatre, protocols: Story) -> None:
    await upload(stage, protocols, PICTURE)
    viewer, operator = await stage.client("viewer"), await stage.client("operator")
    assert (await viewer.pipelines.read("protocol", "p1")).status == "dead_letter"
    with pytest.raises(Forbidden):
        await viewer.pipelines.retry("protocol", "p1")
    await operator.pipelines.retry("protocol", "p1", reason="once more")
    (line,) = await stage.api.audit.page(action="entity.retry")
    assert (line.subjects, line.result, line.reason) == (("protocol", "p1"), "uploaded", "once more")
    await viewer.close()
    await operator.close()


# -- review ------------------------------------------------------------------------------------------------------------


async def test_r9_4_a_rejected_document_is_a_dead_letter_that_can_be_retried(stage: Theatre, protocols: Story) -> None:
    await upload(stage, protocols)
    rejected = await stage.api.pipelines.reject("protocol", "p1", reason="wrong form")
    assert rejected.status == "dead_letter" and "wrong form" in (rejected.error_reason or "")
    await stage.api.pipelines.retry("protocol", "p1")
    await stage.pass_time()
    assert (await seen(stage)).status == "pending_review"


async def test_r9_4_a_decision_is_made_once(stage: Theatre, protocols: Story) -> None:
    await upload(stage, protocols)
    await stage.api.pipelines.approve("protocol", "p1")
    for decide in (stage.api.pipelines.approve, stage.api.pipelines.reject):
        with pytest.raises(Conflict, match="is complete"):
            await decide("protocol", "p1")


# -- archive and lists -------------------------------------------------------------------------------------------------


async def test_r4_4_an_untouched_dead_letter_is_archived_after_a_week(stage: Theatre, protocols: Story) -> None:
    await upload(stage, protocols, PICTURE)
    await stage.pass_time(A_WEEK - 60)
    assert (await seen(stage)).status == "dead_letter"
    await stage.pass_time(61)
    assert (await seen(stage)).status == "archived"
    assert (await statuses(stage))[-1] == "archived"
    await stage.api.pipelines.retry("protocol", "p1")
    assert (await seen(stage)).status == "uploaded"


async def test_r4_4_it_is_shown_as_archived_even_if_nobody_has_come_by(stage: Theatre, protocols: Story) -> None:
    await upload(stage, protocols, PICTURE)
    stage.clock.advance(A_WEEK + 1)
    assert (await seen(stage)).status == "archived"
    assert (await statuses(stage))[-1] == "dead_letter"
    assert (await listed(stage), await listed(stage, "archived")) == ([], ["p1"])


async def test_r9_4_lists_hide_the_archived_unless_asked(stage: Theatre, protocols: Story) -> None:
    await upload(stage, protocols, PICTURE, "p1")
    await stage.pass_time(A_WEEK + 60)
    await upload(stage, protocols, PICTURE, "p2")
    await upload(stage, protocols, TEXT, "p3")
    assert await listed(stage) == ["p3", "p2"]
    assert await listed(stage, "dead_letter") == ["p2"]
    assert await listed(stage, archived=True) == ["p3", "p2", "p1"]
    assert await listed(stage, "archived") == ["p1"]
