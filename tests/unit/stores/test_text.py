"""Text validation: which text every store can keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doorstep.errors import InvalidInput
from doorstep.stores.limits import check_storable, is_storable, storable

ANY = st.text(st.characters(codec=None, exclude_categories=()))


@given(ANY)
def test_text_is_storable_exactly_if_utf_8_takes_it_and_it_has_no_nul(text: str) -> None:
    encodes = text.encode(errors="replace").decode() == text
    assert is_storable(text) is (encodes and "\0" not in text)


@given(ANY)
def test_what_is_made_storable_is_storable_and_as_long_as_before(text: str) -> None:
    made = storable(text)
    assert is_storable(made)
    assert len(made) == len(text)
    assert all(new == old for new, old in zip(made, text, strict=True) if is_storable(old))


@pytest.mark.parametrize("text", ["", "plain", "🚚", "\x01\x7f"])
def test_storable_text_stays_as_it_is(text: str) -> None:
    assert storable(text) == text
    check_storable("field", text)


@pytest.mark.parametrize("text", ["\0", "a\ud800"])
def test_a_refusal_names_the_field_and_what_to_do(text: str) -> None:
    with pytest.raises(InvalidInput, match="event_type: must not contain NUL or lone surrogates; remove them"):
        check_storable("event_type", text)


def test_no_text_at_all_is_fine() -> None:
    check_storable("idempotency_key", None)
