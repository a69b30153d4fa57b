"""Tracebacks and failure reasons of handlers contain no values from the payload."""

from __future__ import annotations

import time

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from doorstep.errors import Permanent
from doorstep.transports.handler_replies import MASK, Redaction, failure_of, worded
from tests.support.matrix import each_case

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


@each_case("raising", [whole, raw, single, name, spelt, told, chained, grouped, noted, misplaced])
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


CARD = "4111-1111"


class MissingItems(Exception):
    pass


def ship(order: object) -> None:
    try:
        order.items  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        raise MissingItems(f"of {CARD}") from error


def test_no_name_in_a_traceback_is_masked_even_if_the_payload_has_it_as_a_value() -> None:
    names = ["MissingItems", "AttributeError", "ship", "order", "items", "object", "test_redaction", __file__]
    payload = msgspec.json.encode({"items": names, "card": CARD})
    try:
        ship(object())
    except MissingItems as error:
        detail = failure_of(error, payload).detail
    assert f'File "{__file__}", line ' in detail and ", in ship\n" in detail
    assert "    order.items  # type: ignore" in detail
    assert "\nAttributeError: 'object' object has no attribute 'items'\n" in detail
    assert detail.endswith(f"\n{__name__}.MissingItems: of [payload]\n")


@given(st.text(st.characters(codec="utf-8"), min_size=4), st.text(max_size=40))
def test_every_value_of_the_payload_in_the_text_of_an_exception_is_masked(value: str, around: str) -> None:
    error = ValueError(f"{around}{value}{around}")
    assume(value not in f"{MASK} {around}{MASK}{around} ValueError: \n" and value != around)
    assert value not in failure_of(error, msgspec.json.encode({"value": value})).detail


def test_an_error_that_holds_itself_has_an_end() -> None:
    error = ValueError("plain words")
    error.__context__ = RuntimeError("other words")
    error.__context__.__context__ = error
    assert failure_of(error, b"{}").detail.count("plain words") == 1


def test_short_values_are_not_looked_for_and_names_only_where_they_are_quoted() -> None:
    quoted = Redaction(b'{"name": "abcdef", "more": "abcd", "few": "abc", "n": 12, "big": 123456}')
    text = """abcdef abcd abc 12 123456 name 'name' "more" few 'few' big"""
    masked = "[payload] [payload] abc 12 [payload] name [payload] [payload] few [payload] big"
    assert quoted.masked(text, 1_000) == masked


def test_values_that_overlap_in_a_text_leave_nothing_of_either() -> None:
    quoted = Redaction(b'["abcd efgh", "efgh ijkl", "payload"]')
    assert quoted.masked("is abcd efgh ijkl in the payload", 1_000) == "is [payload] in the payload"


@each_case("chars", range(14, 70))
def test_a_value_that_is_cut_off_with_the_rest_of_a_long_text_is_left_out_too(chars: int) -> None:
    quoted = Redaction(b'{"card": "4111-1111-1111-1111"}')
    masked = quoted.masked("the card number is 4111-1111-1111-1111 of 4111-1111-1111-1111 in all", chars)
    assert masked.startswith("the card numb") and "4111" not in masked


@each_case("where", [0, 4_999, 5_001, 29_999])
def test_a_value_is_found_however_many_others_there_are(where: int) -> None:
    many = [f"value {number:05d}" for number in range(30_000)]
    failure = failure_of(ValueError(f"no {many[where]}"), msgspec.json.encode({"a": {"many": many}}))
    assert failure.detail == "ValueError: no [payload]\n"


LARGE = 256 * 1024
HOSTILE = {
    "many small values": msgspec.json.encode([f"v{number:05d}" for number in range(LARGE // 9)]),
    "many that begin and end alike": msgspec.json.encode([f"aaaa{number:05d}aaaa" for number in range(LARGE // 16)]),
    "deeply nested": b'{"name":' * 1_000 + b'"a value"' + b"}" * 1_000,
    "nested and wide": msgspec.json.encode({"a": [{"b": [{"c": "abcd"} for _ in range(50)]} for _ in range(300)]}),
    "one long text": msgspec.json.encode("aaaab" * (LARGE // 5)),
    "quotation marks": msgspec.json.encode(["'\"\\" * 20 for _ in range(LARGE // 110)]),
}


@each_case("kind", HOSTILE)
@each_case("text", ["plain words", "a" * 20_000 + "b" * 2_000_000], ids=["short", "long"])
def test_the_cost_of_masking_is_bounded(kind: str, text: str) -> None:
    """Measured at up to 0.3 s for the largest payload and the most hostile text; an ordinary text takes 0.3 ms."""
    began = time.process_time()
    failure_of(ValueError(text), HOSTILE[kind])
    assert time.process_time() - began < 2.0


def test_no_class_of_errors_can_keep_its_words_from_being_masked() -> None:
    error = Stubborn("the card is 4111-1111")
    failure = worded(error, PAYLOAD, {"card": "4111-1111"}, {"odd": object()})
    assert failure.detail == f"{KIND}: the card is [payload]\n"
    assert failure_of(error, PAYLOAD) is failure, "it is not worked out again"


def test_an_error_that_is_raised_again_for_another_payload_is_worded_again() -> None:
    error = ValueError("neither one-secret nor another-secret")
    worded(error, b'"one-secret"')
    assert failure_of(error, b'"another-secret"').detail == "ValueError: neither one-secret nor [payload]\n"


class Stubborn(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)

    def __getattr__(self, name: str) -> object:
        raise ValueError(name)


KIND = f"{Stubborn.__module__}.Stubborn"


def test_of_a_long_chain_of_errors_the_last_ones_are_told() -> None:
    error = ValueError("the first")
    for number in range(5_000):
        later = ValueError(f"number {number}")
        later.__cause__, error = error, later
    detail = failure_of(error, b"{}").detail
    assert detail.endswith("ValueError: number 4999\n")
    assert detail.count("which led to:") == 49


@each_case("payload", [b"", b"\xff\xfe", b"[" * 5_000, b'"\\ud800"'])
def test_no_payload_is_too_strange_to_be_looked_for(payload: bytes) -> None:
    assert failure_of(ValueError("plain words"), payload).detail.endswith("ValueError: plain words\n")
