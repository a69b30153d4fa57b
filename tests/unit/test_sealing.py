"""Secrets at rest can be opened only with the same key and in the same context."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doorstep.encryption import Sealer, UnsealError, new_secret_key
from doorstep.errors import ConfigError

SEALER = Sealer(b"k" * 32)


@given(st.binary(max_size=300), st.text(max_size=50))
def test_what_was_sealed_comes_back_in_the_same_context(secret: bytes, context: str) -> None:
    assert SEALER.unseal(SEALER.seal(secret, context=context), context=context) == secret


def test_a_sealed_value_shows_nothing_of_the_secret_and_differs_each_time() -> None:
    sealed = {SEALER.seal(b"whsec_canary", context="a") for _ in range(100)}
    assert len(sealed) == 100 and not any(b"canary" in one for one in sealed)


def test_a_sealed_value_cannot_be_moved_to_another_place() -> None:
    sealed = SEALER.seal(b"secret", context="secret:1")
    with pytest.raises(UnsealError):
        SEALER.unseal(sealed, context="secret:2")


def test_another_key_is_told_so_in_a_sentence_that_says_what_to_do() -> None:
    sealed = SEALER.seal(b"canary", context="a")
    with pytest.raises(UnsealError, match="DOORSTEP_SECRET_KEY") as caught:
        Sealer(b"x" * 32).unseal(sealed, context="a")
    assert "canary" not in str(caught.value)


def test_every_changed_bit_and_every_cut_is_noticed() -> None:
    sealed = SEALER.seal(b"secret", context="a")
    for bit in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(UnsealError):
            SEALER.unseal(bytes(changed), context="a")
    for length in range(len(sealed)):
        with pytest.raises(UnsealError):
            SEALER.unseal(sealed[:length], context="a")


def test_a_new_key_works_in_either_base64_alphabet_and_with_a_line_end() -> None:
    key = base64.b64encode(b"\xfb\xff" * 16).decode()
    sealed = Sealer.from_text(key).seal(b"secret", context="a")
    assert "/" in key and "+" in key
    assert Sealer.from_text(key.replace("+", "-").replace("/", "_") + "\n").unseal(sealed, context="a") == b"secret"
    assert new_secret_key() != new_secret_key()
    Sealer.from_text(new_secret_key())


@pytest.mark.parametrize("text", ["", "short", "é" * 44, "*" * 44, base64.b64encode(b"x" * 31).decode()])
def test_a_key_that_is_none_stops_the_start_and_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match="DOORSTEP_SECRET_KEY must") as caught:
        Sealer.from_text(text)
    assert not text or text not in str(caught.value)


def test_a_raw_key_of_another_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="32 bytes, got 16"):
        Sealer(b"x" * 16)
