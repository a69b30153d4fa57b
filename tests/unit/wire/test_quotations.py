"""Tracebacks and reasons of handlers keep nothing that the payload says."""

from __future__ import annotations

import msgspec
import pytest

from doorstep.errors import Permanent
from doorstep.wire.handler_replies import failure_of
from doorstep.wire.quotations import spellings

PAYLOAD = msgspec.json.encode(
    {"card": "4111-1111", "holder": {"name": 'Grüße "an" O\'Neill\n', "number": 40123456}, "few": [1, True, None, "ab"]}
)


def kept_of(raising: object) -> str:
    try:
        raising(msgspec.json.decode(PAYLOAD))  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001
        failure = failure_of(error, PAYLOAD)
        return failure.code + failure.message + failure.detail
    raise AssertionError("it did not raise")


def whole(given: dict[str, object]) -> None:
    raise ValueError(given)


def raw(given: dict[str, object]) -> None:
    raise ValueError(PAYLOAD, PAYLOAD.decode(), f"{PAYLOAD!r}")


def single(given: dict[str, object]) -> None:
    raise LookupError(f"no card {given['card']}")


def name(given: dict[str, object]) -> None:
    raise KeyError(list(given))


def spelt(given: dict[str, object]) -> None:
    holder = given["holder"]["name"]  # type: ignore[index]
    raise RuntimeError(repr(holder), msgspec.json.encode(holder).decode(), holder)


def told(given: dict[str, object]) -> None:
    raise Permanent("INVALID_FORMAT", f"card {given['card']} of {given['holder']}")


def chained(given: dict[str, object]) -> None:
    try:
        single(given)
    except LookupError as error:
        raise OSError("while looking") from error


def grouped(given: dict[str, object]) -> None:
    raise ExceptionGroup(str(given["card"]), [ValueError(given["card"]), TypeError("plain words")])


def noted(given: dict[str, object]) -> None:
    error = RuntimeError("plain words")
    error.add_note(f"it was {given['card']}")
    raise error


def misplaced(given: dict[str, object]) -> None:
    raise Permanent(f"no card {given['card']}")


@pytest.mark.parametrize("raising", [whole, raw, single, name, spelt, told, chained, grouped, noted, misplaced])
def test_whatever_an_error_quotes_of_the_payload_is_not_kept(raising: object) -> None:
    kept = kept_of(raising)
    for secret in ("4111-1111", "Grüße", "Neill", "40123456"):
        assert secret not in kept
    assert "[payload]" in kept


def test_lines_of_the_program_and_its_own_words_stay() -> None:
    kept = kept_of(chained)
    assert "raise LookupError(f\"no card {given['card']}\")" in kept
    assert "OSError: while looking" in kept
    assert "LookupError: no card [payload]" in kept
    assert "which led to:" in kept
    assert "TypeError: plain words" in kept_of(grouped)


def test_names_are_taken_out_where_they_are_quoted_and_stay_where_they_are_words() -> None:
    assert kept_of(name).splitlines()[-1] == "KeyError: [[payload], [payload], [payload]]"
    assert "LookupError: no card [payload]" in kept_of(single)


def test_an_error_that_holds_itself_has_an_end() -> None:
    error = ValueError("plain words")
    error.__context__ = RuntimeError("other words")
    error.__context__.__context__ = error
    assert failure_of(error, b"{}").detail.count("plain words") == 1


def test_short_values_are_not_looked_for_and_long_ones_first() -> None:
    found = spellings(b'{"name": "abcdef", "more": "abcd", "few": "abc", "n": 12, "big": 123456}')
    assert {"abcdef", "abcd", "123456", "'name'", '"more"', "'few'"} <= set(found)
    assert not {"abc", "12", "few", "big", "name"} & set(found)
    assert found == sorted(found, key=len, reverse=True)


@pytest.mark.parametrize("payload", [b"", b"\xff\xfe", b"[" * 5_000, b'"\\ud800"'])
def test_no_payload_is_too_strange_to_be_looked_for(payload: bytes) -> None:
    assert failure_of(ValueError("plain words"), payload).detail.endswith("ValueError: plain words\n")
