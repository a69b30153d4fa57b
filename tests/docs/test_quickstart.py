"""Follows the quickstart and its curl version exactly: the commands run in order, and their output is compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import TUTORIAL, fences
from tests.docs.reader import Reader, reading, steps
from tests.docs.sample import Samples


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader in a folder that contains only what `make run` needs."""
    installed = {"make run": "make --old-file=.venv/.installed-run run"}  # already installed here
    with reading(tmp_path, "Makefile", "pyproject.toml", "requirements", places=installed) as it:
        yield it


@pytest.mark.parametrize("name", ["quickstart.md", "curl.md"])
def test_the_page_works_and_shows_what_it_shows(name: str, reader: Reader) -> None:
    page = TUTORIAL / name
    found = steps(page.read_text())
    assert [step.code for step in found] == fences(page, "sh") and len(found) > 10
    for step in found:
        reader.follow(step)


@pytest.mark.parametrize(
    ("sample", "shown"),
    [
        ("it is delivered", "it is dead"),
        ("at 2026-11-15T13:03:55Z", "at –"),
        ("it is done", "it is done, or not"),
        ("event 01a1df4d-b959-7364-a254-4a51f1a1bd0f", "event 01a1df4e-67ef-7b3c-a280-f74840dbed52"),
    ],
)
def test_the_control_output_that_differs_from_the_page_is_noticed(sample: str, shown: str) -> None:
    samples = Samples({})
    seen = "01a1df4d-b959-7364-a254-4a51f1a1bd0f"
    assert samples.matches(seen, seen)
    assert not samples.matches(sample, shown)
