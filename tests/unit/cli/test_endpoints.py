"""How the command line parses an endpoint's destination."""

from __future__ import annotations

import pytest

from doorstep.cli.endpoints import destination


def test_a_destination_is_a_kind_or_a_json_object() -> None:
    assert destination("http") == {"kind": "http"}
    assert destination('{"kind": "handler", "name": "ship"}') == {"kind": "handler", "name": "ship"}


@pytest.mark.parametrize("text", ["", "pigeon", "https://shop.example/", '{"kind": ', "{1: 2}"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a destination "):
        destination(text)
