"""Public ids are valid version 7 UUIDs that sort by creation time."""

from __future__ import annotations

from uuid import RFC_4122

from doorstep.model.record import uuid7
from tests.support.builders import NOW


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = uuid7(NOW)
    assert (made.version, made.variant) == (7, RFC_4122)


def test_ids_carry_their_milliseconds_as_the_standard_says() -> None:
    assert uuid7(NOW).int >> 80 == NOW // 1_000


def test_ids_made_a_microsecond_apart_come_out_in_order() -> None:
    made = [uuid7(NOW + step) for step in range(3_000)]
    assert made == sorted(made)


def test_ids_of_one_instant_differ() -> None:
    assert len({uuid7(NOW) for _ in range(1_000)}) == 1_000


def test_the_same_entropy_makes_the_same_id() -> None:
    assert uuid7(NOW, bytes) == uuid7(NOW, bytes)
