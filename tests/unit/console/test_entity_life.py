"""The timeline of an entity is drawn to scale, with each status in the colour of its meaning."""

from __future__ import annotations

import pytest

from doorstep import Gate, Stage
from doorstep.clock import SECOND, Instant, to_datetime
from doorstep.console.pages.pipelines import life_of, status_counts, tone_of
from doorstep.model.listing import Count
from doorstep.pipelines.plan import Plan
from doorstep.schemas.pipelines import EntityChange
from tests.support.builders import NOW

PLAN = Plan(
    "protocol",
    first="uploaded",
    steps=[Stage("extracting", failed="extraction_failed"), Gate("pending_review")],
    last="complete",
    dead="dead_letter",
    archived="archived",
)
TONES = {
    "uploaded": "queued",
    "extracting": "running",
    "pending_review": "held",
    "complete": "delivered",
    "extraction_failed": "failed",
    "dead_letter": "failed",
    "archived": "quiet",
    "unheard_of": "quiet",
}


def at(second: float) -> Instant:
    return NOW + round(second * SECOND)


def lived(*changes: tuple[float, str]) -> list[EntityChange]:
    return [EntityChange(to_datetime(at(second)), None, status, "", None) for second, status in changes]


def test_what_takes_half_of_the_time_takes_half_of_the_width() -> None:
    life = life_of(PLAN, lived((0, "uploaded"), (50, "extracting"), (75, "pending_review")), at(100))
    assert [one.bar[:3] for one in life.periods] == [(0, 50, "queued"), (50, 25, "running"), (75, 25, "held")]
    assert [one.lasted for one in life.periods] == [50 * SECOND, 25 * SECOND, 25 * SECOND]
    assert [mark.x for mark in life.marks] == [30, 60, 90]


@pytest.mark.parametrize("end", ["complete", "dead_letter", "archived"])
def test_what_has_ended_does_not_stretch_the_rest_away(end: str) -> None:
    life = life_of(PLAN, lived((0, "uploaded"), (100, end)), at(1_000_000))
    first, last = life.periods
    assert first.bar.width == 100
    assert last.lasted is None
    assert (last.bar.x, last.bar.width) == (99.6, 0.4), "it is seen, and inside"


def test_a_retry_after_death_is_part_of_the_life() -> None:
    life = life_of(PLAN, lived((0, "uploaded"), (10, "dead_letter"), (90, "uploaded")), at(100))
    assert [one.bar.width for one in life.periods] == [10, 80, 10]


def test_one_that_has_just_begun_and_one_without_history_can_be_drawn() -> None:
    assert life_of(PLAN, lived((0, "uploaded")), NOW).periods[0].bar.width == 0.4
    assert life_of(PLAN, [], NOW).periods == ()


def test_each_status_has_the_colour_of_what_it_means() -> None:
    assert {status: tone_of(PLAN, status) for status in TONES} == TONES


def test_the_statuses_of_a_good_life_are_a_way_and_the_others_are_beside_it() -> None:
    counts = {status: Count(0, exact=True) for status in (*PLAN.phases, "unheard_of")}
    way, aside = status_counts(PLAN, counts)
    assert [one.status for one in way] == ["uploaded", "extracting", "pending_review", "complete"]
    assert [one.status for one in aside] == ["extraction_failed", "dead_letter", "archived", "unheard_of"]
    assert aside[-1].meaning == "no longer declared"
