"""A curl command copied from the console sends the same bytes, and text from senders or receivers never runs as a
command."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doorstep.console.attempts import BODY_BYTES_MAX, curl_command, quoted

HEADERS = b"content-type: application/json\nx-empty:\n@/etc/passwd: x\nno colon\nx-own: ***"


def read_by_a_shell(command: str) -> list[str]:
    """The arguments that the shell passes to curl."""
    script = "curl() { printf '%s\\0' curl \"$@\"; }\n" + command
    told = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    return told.decode().split("\0")[:-1]


def test_a_command_has_the_url_the_headers_and_the_body_each_as_one_word() -> None:
    words = read_by_a_shell(
        curl_command("https://shop.example/a?b=[1]&c='d'", HEADERS, b'{"it\'s": "$(id)`id`"}', "x.json")
    )
    assert words == [
        "curl", "--globoff", "--include", "--request", "POST",
        "--url", "https://shop.example/a?b=[1]&c='d'",
        "--header", "content-type: application/json",
        "--header", "x-empty;",
        "--header", "x-own: ***",
        "--data-raw", '{"it\'s": "$(id)`id`"}',
    ]  # fmt: skip


def test_a_large_body_is_read_from_a_file() -> None:
    words = read_by_a_shell(curl_command("https://a.example", b"", b"1" * (BODY_BYTES_MAX + 1), "event.json"))
    assert words[-2:] == ["--data-binary", "@event.json"]


@pytest.mark.parametrize("text", [b"a\nb", b"a\tb\x1b[2J", b"\xff\xfe", "\u202eright to left".encode(), b"it's\x07"])
def test_what_cannot_be_seen_is_spelled_out(text: bytes) -> None:
    word = quoted(text)
    assert word.startswith("$'")
    assert word.isascii()
    assert word.isprintable()


@given(st.lists(st.binary(max_size=40).filter(lambda text: b"\0" not in text), min_size=1, max_size=20))
def test_a_shell_reads_each_word_as_it_was(texts: list[bytes]) -> None:
    script = "printf '%s\\0' " + " ".join(map(quoted, texts))
    told = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C"}).stdout
    assert told.split(b"\0")[:-1] == texts
