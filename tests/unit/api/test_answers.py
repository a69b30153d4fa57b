"""API answers: every time is written to the microsecond, and model values are converted to response shapes."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from doorstep.api.codec import encoded
from doorstep.clock import LATEST, SECOND, to_datetime, to_iso
from doorstep.operations.shapes import shape, time
from doorstep.schemas.shape import Answer, Time

instants = st.integers(0, LATEST - 1) | st.integers(0, LATEST // SECOND - 1).map(lambda whole: whole * SECOND)


@given(instants)
@example(0)
@example(1)
@example(SECOND)
@example(LATEST - 1)
def test_a_time_is_written_as_everywhere_else_and_is_the_same_instant(instant: int) -> None:
    assert encoded(time(instant)) == b'"%b"' % to_iso(instant).encode()
    assert time(instant) == to_datetime(instant)


class Thing(Answer, frozen=True):
    name: str
    made_at: Time
    ended_at: Time | None
    share: float
    most: float | None
    parts: tuple[str, ...]


class Value(msgspec.Struct):
    name: str = "a"
    made_at: int = 1_500_000
    ended_at: int | None = None
    share: float = 1
    most: int | None = 2
    parts: list[str] = msgspec.field(default_factory=lambda: ["b"])
    secret: str = "not shown"


def test_a_shape_takes_over_what_is_called_alike_in_its_own_types() -> None:
    at = datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert shape(Thing, Value()) == Thing("a", at, None, 1.0, 2.0, ("b",))
    assert encoded(shape(Thing, Value())).endswith(b'"share":1.0,"most":2.0,"parts":["b"]}')


def test_what_is_given_goes_before_what_the_value_has() -> None:
    assert shape(Thing, Value(), name="other", parts=()).name == "other"
