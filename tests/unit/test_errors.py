"""Exceptions that handlers raise accept arguments of other types, such as an exception or a header's text."""

from __future__ import annotations

from doorstep.errors import Permanent, Transient


def test_a_handler_may_pass_on_an_exception_and_a_headers_text() -> None:
    failure = Permanent("INVALID_FORMAT", ValueError("no such account"))  # type: ignore[arg-type]
    assert failure.message == "no such account"
    assert Transient("RATE_LIMIT", retry_after="30").retry_after == 30  # type: ignore[arg-type]
    assert Transient("RATE_LIMIT", retry_after="soon").retry_after is None  # type: ignore[arg-type]
