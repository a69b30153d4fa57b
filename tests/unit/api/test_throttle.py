"""Rate limits: how many requests a key may make, and how many wrong keys one client may present."""

from __future__ import annotations

from uuid import uuid4

import pytest

from doorstep.api.middleware import OVER_RATE, Throttle, client_of
from doorstep.errors import Overloaded
from doorstep.testing.sandbox import FakeClock
from tests.support.matrix import each_case


def allowed(throttle: Throttle, key_id: object, tries: int) -> int:
    passed = 0
    for _ in range(tries):
        try:
            throttle.check(key_id)  # type: ignore[arg-type]
        except Overloaded:
            continue
        passed += 1
    return passed


def test_without_a_limit_everything_passes() -> None:
    assert allowed(Throttle(0, FakeClock(), OVER_RATE), uuid4(), 10_000) == 10_000


def test_a_key_that_was_quiet_may_catch_up_on_two_seconds_and_then_goes_at_its_rate() -> None:
    clock, key_id = FakeClock(), uuid4()
    throttle = Throttle(10, clock, OVER_RATE)
    assert allowed(throttle, key_id, 100) == 20
    clock.advance(1)
    assert allowed(throttle, key_id, 100) == 10
    clock.advance(3_600)
    assert allowed(throttle, key_id, 100) == 20


def test_one_key_takes_nothing_from_another() -> None:
    throttle = Throttle(1, FakeClock(), OVER_RATE)
    allowed(throttle, uuid4(), 100)
    assert allowed(throttle, uuid4(), 100) == 2


def test_who_is_refused_is_told_when_there_will_be_room() -> None:
    clock, key_id = FakeClock(), uuid4()
    throttle = Throttle(0.1, clock, OVER_RATE)
    throttle.check(key_id)
    with pytest.raises(Overloaded) as refused:
        throttle.check(key_id)
    assert refused.value.retry_after_seconds == 10
    assert str(refused.value) == "this key may send 0.1 requests per second; slow down"
    clock.advance(10)
    throttle.check(key_id)


def test_a_clock_that_is_set_back_gives_nothing_and_breaks_nothing() -> None:
    clock, key_id = FakeClock(), uuid4()
    throttle = Throttle(1, clock, OVER_RATE)
    allowed(throttle, key_id, 10)
    clock.advance(-5)
    assert allowed(throttle, key_id, 10) == 0


@each_case(
    ("client", "known_as"),
    [
        (("192.0.2.7", 5000), "192.0.2.7"),
        (("::ffff:192.0.2.7", 5000), "::ffff:192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 5000), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5000), "fe80::/64"),
        (("a name", 0), "a name"),
        (None, ""),
    ],
)
def test_a_client_is_known_by_its_address_and_of_ipv6_by_its_network(
    client: tuple[str, int] | None, known_as: str
) -> None:
    assert client_of({"type": "http", "client": client}) == known_as


def test_a_clock_that_is_set_back_locks_nobody_out() -> None:
    clock = FakeClock()
    throttle = Throttle(1, clock, "{}")
    for _ in range(2):
        throttle.check("one")
    clock.advance(-3_600)
    with pytest.raises(Overloaded):
        throttle.check("one")
    clock.advance(1)
    throttle.check("one")
