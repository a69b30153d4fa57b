"""The rate limit that every store applies inside its claim."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from doorstep.clock import SECOND
from doorstep.stores.limits import admit
from tests.support.builders import NOW


def test_an_idle_endpoint_may_begin_at_once() -> None:
    assert admit(1, 0, NOW, 5) == (1, NOW + SECOND)


def test_nothing_goes_before_the_next_claim_is_on_time() -> None:
    _, next_at = admit(1, 0, NOW, 1)
    assert admit(1, next_at, NOW + SECOND - 1, 1) == (0, next_at)
    assert admit(1, next_at, NOW + SECOND, 1) == (1, next_at + SECOND)


def test_a_tenth_of_a_second_may_go_together() -> None:
    assert admit(100, 0, NOW, 99)[0] == 10


def test_what_is_not_wanted_is_not_used_up() -> None:
    assert admit(100, 0, NOW, 0) == (0, 0)
    admitted, next_at = admit(100, 0, NOW, 3)
    assert admitted == 3
    assert admit(100, next_at, NOW, 99)[0] == 7


@given(
    rate=st.floats(0.01, 10_000),
    asks=st.lists(st.tuples(st.integers(0, 10 * SECOND), st.integers(0, 50)), min_size=1, max_size=50),
)
def test_over_any_time_no_more_goes_than_the_rate_and_one_burst(rate: float, asks: list[tuple[int, int]]) -> None:
    now, next_at, admitted = NOW, 0, 0
    for pause, wanted in asks:
        now += pause
        count, next_at = admit(rate, next_at, now, wanted)
        assert 0 <= count <= wanted
        admitted += count
    interval, burst = max(1, round(SECOND / rate)), max(1, int(rate / 10))
    assert admitted <= (now - NOW) // interval + burst
