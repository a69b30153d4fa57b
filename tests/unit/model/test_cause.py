"""R7.4: 142 dead letters are shown as 3 causes. Dead letters share a cause if their endpoint, code and message match,
apart from the ids, numbers and quoted names in the message."""

from __future__ import annotations

import time
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from doorstep.model.delivery import cause_of, normalised
from tests.support.matrix import each_case
from tests.support.stretching import stretched

ENDPOINT, OTHER = UUID(int=1), UUID(int=2)

SAME = [
    ("order 17 is unknown", "order 4711 is unknown"),
    (
        "no user 0197743f-1260-7000-8000-0100001e3660 here",
        "no user 01977420-DC00-7000-8000-000000000001 here",
    ),
    ("upstream said trace 4bf92f3577b34da6a3ce929d0e0e4736", "upstream said trace 00f067aa0ba902b7aaaaaaaaaaaaaaa1"),
    ("""field "name" is missing""", """field "e-mail" is missing"""),
    ("field 'name' is missing", "field 'first name' is missing"),
    ("no answer within 30.0 s from 10.0.0.1:8080", "no answer within 5.25 s from 192.168.17.4:443"),
    ("x" * 400 + "1", "x" * 400 + "2 and much more"),
]
DIFFERENT = [
    ("order 17 is unknown", "order 17 was refused"),
    ("can't connect, it's down", "can't log in, it's locked"),
    ("deadbeefcafe", "feedfacebeef"),  # words made only of the letters a to f are not ids
    ("", "anything"),
]


@each_case(("one", "other"), SAME)
def test_messages_that_differ_in_ids_numbers_and_quoted_names_have_one_cause(one: str, other: str) -> None:
    assert cause_of(ENDPOINT, "REJECTED", one) == cause_of(ENDPOINT, "REJECTED", other)


@each_case(("one", "other"), DIFFERENT)
def test_messages_that_differ_in_words_have_causes_of_their_own(one: str, other: str) -> None:
    assert cause_of(ENDPOINT, "REJECTED", one) != cause_of(ENDPOINT, "REJECTED", other)


def test_another_endpoint_or_another_code_is_another_cause() -> None:
    causes = {cause_of(ENDPOINT, "A", "why"), cause_of(OTHER, "A", "why"), cause_of(ENDPOINT, "B", "why")}
    assert len(causes) == 3


def test_code_and_message_do_not_run_into_each_other() -> None:
    assert cause_of(ENDPOINT, "A", "Bc") != cause_of(ENDPOINT, "AB", "c")


def test_an_id_that_lies_across_the_end_of_what_is_kept_makes_no_cause_of_its_own() -> None:
    def message(uid: UUID) -> str:
        return "y" * 290 + f" {uid} " + "z" * 50

    assert cause_of(ENDPOINT, "A", message(UUID(int=1))) == cause_of(ENDPOINT, "A", message(UUID(int=2)))


@given(code=st.text(max_size=20), reason=st.text(max_size=200))
def test_every_cause_fits_a_database_column(code: str, reason: str) -> None:
    assert 0 <= cause_of(ENDPOINT, code, reason) < 2**63


@given(reason=st.text(alphabet="0123456789abcdef-\"' x", max_size=300))
def test_what_is_normalised_has_no_digit_left(reason: str) -> None:
    assert not any(character.isdigit() for character in normalised(reason))


@each_case("hostile", ["'" * 100_000, '"a' * 50_000, "0a-" * 40_000, "a" * 100_000, "1" * 100_000])
def test_a_hostile_message_costs_no_more_than_a_long_one(hostile: str) -> None:
    started = time.perf_counter()
    cause_of(ENDPOINT, "A", hostile)
    assert time.perf_counter() - started < stretched(0.05)
