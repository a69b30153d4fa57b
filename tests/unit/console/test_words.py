"""How the console formats times, durations and amounts."""

from __future__ import annotations

import pytest

from doorstep.clock import DAY, SECOND
from doorstep.console.formatting import ago, amount, counted, exactly, lasting, plural, share, sized, spoken, until
from doorstep.model.listing import Count

MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (4_210, "4.21 ms"),
        (999_000, "999 ms"),
        (1_500_000, "1.5 s"),
        (59 * SECOND, "59 s"),
        (MINUTE, "1 min"),
        (MINUTE + 5 * SECOND, "1 min 5 s"),
        (12 * MINUTE + 5 * SECOND, "12 min"),
        (HOUR + 5 * MINUTE, "1 h 5 min"),
        (3 * DAY, "3 d"),
        (400 * DAY, "400 d"),
    ],
)
def test_a_span_is_said_in_the_units_that_tell(span: int, said: str) -> None:
    assert lasting(span).replace("\u2009", " ") == said


def test_the_past_and_the_future_are_told_apart() -> None:
    assert ago(0, 3 * MINUTE).replace("\u2009", " ") == "3 min ago"
    assert ago(3 * MINUTE, 0).replace("\u2009", " ") == "in 3 min"
    assert ago(5, 900_000) == "now"
    assert ago(0, 5_300_000).replace("\u2009", " ") == "5 s ago"


def test_the_exact_time_is_in_utc_to_the_microsecond() -> None:
    assert exactly(1_700_000_000_123_456) == "2023-11-14 22:13:20.123456 UTC"


def test_the_instants_of_a_sentence_are_said_to_the_second_and_todays_without_their_date() -> None:
    sentence = "The circuit is open until 2023-11-14T22:13:20.123456Z."
    now = 1_700_000_000_000_000
    assert spoken(sentence, now).striptags() == "The circuit is open until 22:13:20 UTC."
    assert spoken(sentence, now + DAY).striptags() == "The circuit is open until 2023-11-14 22:13:20 UTC."
    assert 'until <time datetime="2023-11-14T22:13:20' in spoken(sentence, now)
    assert spoken("<b> & nothing else", 0) == "&lt;b&gt; &amp; nothing else"
    assert spoken("No instant here.", 0) == "No instant here."


def test_of_a_sentence_that_names_an_instant_only_that_is_said_in_brief() -> None:
    brief = until("It is open until 2023-11-14T22:13:20.1Z, after 5.", 1_700_000_000_000_000)
    assert brief.striptags() == "until 22:13:20 UTC"
    assert until("It waits for an earlier event.", 0) == "It waits for an earlier event."


def test_a_count_that_is_only_a_floor_says_so() -> None:
    assert counted(Count(10_000, exact=False)).replace("\u2009", " ") == "10 000+"
    assert counted(Count(7, exact=True)) == "7"


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(0, 0, "–"), (1, 1, "100%"), (99_999, 100_000, "99.9%"), (1, 100_000, "0.1%"), (0, 5, "0%"), (1, 3, "33.3%")],
)
def test_a_share_is_whole_only_if_it_is(part: int, whole: int, said: str) -> None:
    assert share(part, whole) == said


def test_amounts_are_grouped_and_counted_nouns_agree() -> None:
    assert amount(1_234_567).replace("\u2009", " ") == "1 234 567"
    assert (plural(1, "delivery", "deliveries"), plural(2, "delivery", "deliveries")) == ("1 delivery", "2 deliveries")


@pytest.mark.parametrize(("count", "said"), [(812, "812 B"), (1_400, "1.4 kB"), (3_200_000, "3.2 MB")])
def test_sizes_are_said_in_their_unit(count: int, said: str) -> None:
    assert sized(count).replace("\u2009", " ") == said
