"""The values by which an event is found: scalars as text, at a path, from payloads that may be hostile."""

from __future__ import annotations

import pytest

from doorstep.policy.search import has_values, search_key, search_keys, values_in

PAYLOAD = (
    b'{"order": {"id": 42, "lines": [{"sku": "a-1"}]}, "paid": true, "note": null, "total": 9.50, "": 1, "x.y": 2}'
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("order.id", "42"),
        ("order.lines.0.sku", "a-1"),
        ("paid", "true"),
        ("note", "null"),
        ("total", "9.5"),
        ("order", None),
        ("order.lines", None),
        ("order.lines.1.sku", None),
        ("order.lines.-1.sku", None),
        ("order.lines.x", None),
        ("order.id.more", None),
        ("x.y", None),
        ("absent", None),
    ],
)
def test_a_path_leads_to_a_scalar_as_text(path: str, value: str | None) -> None:
    name = f"payload.{path}"
    assert values_in(PAYLOAD, b"{}", [name]) == ({} if value is None else {name: value})


def test_the_same_text_is_found_whether_it_is_a_number_or_a_string() -> None:
    for payload in (b'{"id": 42}', b'{"id": "42"}'):
        assert has_values(payload, b"{}", {"payload.id": "42"})
    assert not has_values(b'{"id": 42.0}', b"{}", {"payload.id": "42"})


def test_payload_and_metadata_are_told_apart() -> None:
    assert values_in(b'{"a": 1}', b'{"a": 2}', ["payload.a", "metadata.a"]) == {"payload.a": "1", "metadata.a": "2"}
    assert search_key("payload.a", "1") != search_key("metadata.a", "1")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"not json",
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"a": ' + b"9" * 4_000 + b"}",
        b'{"a": 1e400}',
        b'{"a": "' + b"x" * 201 + b'"}',
        b'{"a": ""}',
        b'{"a": {}}',
        b'"a"',
        b"1",
        b'{"a": 1}' + b" " * 2**20,
        b"\xff\xfe",
    ],
)
def test_a_hostile_payload_has_no_values(payload: bytes) -> None:
    assert values_in(payload, b"{}", ["payload.a"]) in ({}, {"payload.a": "inf"})


def test_a_key_is_a_signed_number_of_64_bits_and_always_the_same() -> None:
    keys = [search_key("payload.a", text) for text in ("1", "é", "\ud800", "\0", "x" * 200)]
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert search_keys(b'{"a": 1, "b": 1}', b"{}", ["payload.a", "payload.b", "payload.c"]) == tuple(
        {search_key("payload.a", "1"), search_key("payload.b", "1")}
    )
    assert keys[0] == search_key("payload.a", "1")
