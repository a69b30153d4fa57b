"""Creating a client: arguments that cannot work are refused immediately."""

from __future__ import annotations

import pytest

from doorstep.client import AsyncClient, Client
from doorstep.errors import InvalidInput
from tests.support.matrix import each_case


@each_case("kind", [Client, AsyncClient])
@each_case("url", ["", "127.0.0.1:8080", "localhost", "ftp://127.0.0.1", "http://", "http://a:b"])
def test_a_url_that_leads_nowhere_is_refused(kind: type[Client], url: str) -> None:
    with pytest.raises(InvalidInput, match="^url: must "):
        kind(url, "key")


@each_case("kind", [Client, AsyncClient])
@each_case("key", ["sesame\n", " sesame", "ses\x00ame", "sésame", "sesame\r\nx: y"])
def test_a_key_that_cannot_be_a_header_is_refused_and_not_repeated(kind: type[Client], key: str) -> None:
    with pytest.raises(InvalidInput, match="^key: must be printable ASCII") as raised:
        kind("http://127.0.0.1:1", key)
    assert "ame" not in str(raised.value)
