"""A delivery's timeline is drawn to scale and within its frame, and long ones state which attempts they show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from doorstep.clock import MILLISECOND, SECOND, Instant
from doorstep.console.timeline import Edge, keys_of, outcome_of, parts, timeline
from doorstep.model.attempt import Attempt, Timings
from doorstep.policy.waits import Wait
from tests.support.builders import NOW
from tests.unit.policy.test_waits import an_attempt, at


def lasting(second: float, milliseconds: int, **changes: Any) -> Attempt:
    return replace(an_attempt(1, second, None), finished_at=at(second) + milliseconds * MILLISECOND, **changes)


def test_what_takes_half_of_the_time_takes_half_of_the_width() -> None:
    wait = Wait(at(0), at(60), "planned", "Waits")
    drawn = timeline(Edge(NOW), [wait], [lasting(110, 10_000)], None, at(500))
    assert drawn.waits[0][:3] == (0, 50, "planned")
    assert drawn.attempts[0][:2] == (91.667, 8.333)
    assert drawn.now is None, "all of it is past"


def test_a_try_of_milliseconds_among_hours_can_be_seen_and_stays_inside() -> None:
    drawn = timeline(Edge(NOW), [Wait(at(0), at(36_000), "planned", "")], [lasting(36_000, 5)], None, at(36_001))
    assert drawn.attempts[0].width == 0.4
    assert drawn.attempts[0].x + drawn.attempts[0].width <= 100


def test_a_planned_retry_is_beyond_the_present() -> None:
    drawn = timeline(Edge(NOW), [Wait(at(0), at(100), "planned", "")], [], None, at(25))
    assert drawn.now == 25


def test_what_is_being_tried_grows_with_the_time() -> None:
    drawn = timeline(Edge(NOW), [], [], at(5), at(20))
    assert drawn.attempts[0][:3] == (25, 75, "running")


@pytest.mark.parametrize(
    "seconds, labels",
    [
        (0.02, ["+5 ms", "+10 ms", "+15 ms"]),
        (10, ["+2 s", "+4 s", "+6 s", "+8 s"]),
        (1_300, ["+5 min", "+10 min", "+15 min", "+20 min"]),
        (100_000, ["+6 h", "+12 h", "+18 h", "+24 h"]),
    ],
)
def test_marks_are_at_numbers_that_people_count_with(seconds: float, labels: list[str]) -> None:
    drawn = timeline(Edge(NOW), [Wait(at(0), at(seconds), "planned", "")], [], None, at(seconds))
    said = [mark.label.replace(" ", " ").replace("1 d", "24 h") for mark in drawn.marks]
    assert said == labels


def test_it_says_in_words_what_it_shows() -> None:
    waits = [Wait(at(0), at(10), "held", "Held: paused")]
    drawn = timeline(Edge(NOW), waits, [lasting(10, 10_000)], None, at(30))
    assert drawn.label.replace(" ", " ") == "1 attempt in 20 s, held for 10 s"
    assert drawn.waits[0].title.startswith("Held: paused: 10")


def test_of_many_attempts_it_begins_at_the_first_that_is_shown_and_says_so() -> None:
    attempts = [replace(lasting(10 * number, 1_000), number=number) for number in (1, 2, 3)]
    waits = [Wait(at(11), at(20), "planned", "the first pause"), Wait(at(21), at(30), "planned", "the second one")]
    drawn = timeline(Edge.of(NOW, attempts, attempts[1:]), waits, attempts[1:], None, at(40))
    assert drawn.begins == "attempt 2"
    assert drawn.attempts[0].x == 0
    assert [bar.title.partition(":")[0] for bar in drawn.waits] == ["the second one"]
    assert drawn.label.replace(" ", " ") == "2 attempts in 11 s since attempt 2"
    assert Edge.of(NOW, attempts, attempts) == Edge(NOW, "accepted")


def test_only_the_colours_that_occur_have_a_key() -> None:
    waits = [Wait(at(0), at(1), "held", ""), Wait(at(1), at(2), "planned", "")]
    drawn = timeline(Edge(NOW), waits, [lasting(2, 10, late=True)], at(3), at(4))
    assert [key.label for key in drawn.keys] == ["scheduled", "held", "in progress", "too late to count"]
    bars = parts(lasting(0, 10, timings=Timings(first_byte=8_000)), 10 * MILLISECOND)
    assert [key.kind for key in keys_of(bars)] == ["first-byte", "rest"]


instants = st.integers(NOW - 10 * SECOND, NOW + 10**9 * SECOND)


@given(begins=st.lists(st.tuples(instants, instants), max_size=5), now=instants, running=st.none() | instants)
def test_nothing_is_ever_drawn_outside_of_the_frame(
    begins: list[tuple[Instant, Instant]], now: Instant, running: Instant | None
) -> None:
    spans = [(min(pair), max(pair)) for pair in begins]
    tries = [replace(an_attempt(1, 0, None), started_at=begin, finished_at=end) for begin, end in spans]
    drawn = timeline(Edge(NOW), [Wait(begin, end, "held", "") for begin, end in spans], tries, running, now)
    for bar in (*drawn.waits, *drawn.attempts):
        assert bar.width >= 0 and bar.x >= 0 and bar.x + bar.width <= 100.001
    assert len(drawn.marks) <= 6
    assert all(0 < mark.x < 100 for mark in drawn.marks)


# -- one attempt -------------------------------------------------------------------------------------------


def test_the_parts_of_an_attempt_follow_each_other_and_fill_its_duration() -> None:
    one = lasting(0, 100, timings=Timings(dns=10_000, connect=30_000, tls=60_000, first_byte=90_000))
    drawn = parts(one, 200 * MILLISECOND)
    assert [(bar.kind, bar.x, bar.width) for bar in drawn] == [
        ("dns", 0, 5),
        ("connect", 5, 10),
        ("tls", 15, 15),
        ("first-byte", 30, 15),
        ("rest", 45, 5),
    ]


def test_a_connection_that_stood_already_has_no_connect_and_no_tls() -> None:
    drawn = parts(lasting(0, 10, timings=Timings(first_byte=8_000)), 10 * MILLISECOND)
    assert [bar.kind for bar in drawn] == ["first-byte", "rest"]


def test_without_an_answer_there_was_no_first_byte() -> None:
    one = lasting(0, 10, timings=Timings(first_byte=4_000), response_code=None)
    assert [bar.title.partition(":")[0] for bar in parts(one, 10 * MILLISECOND)] == ["Until the end"]


def test_timings_beyond_the_end_of_an_attempt_are_cut() -> None:
    drawn = parts(lasting(0, 10, timings=Timings(dns=99_000)), 10 * MILLISECOND)
    assert [(bar.kind, bar.width) for bar in drawn] == [("dns", 100)]


def test_an_outcome_says_whether_it_counted() -> None:
    assert outcome_of(lasting(0, 1, category=None, code=None)) == "delivered"
    assert outcome_of(lasting(0, 1)) == "SERVICE_UNAVAILABLE"
    assert outcome_of(lasting(0, 1, late=True)) == "too late to count"
