"""The README, followed to the letter: its commands are run in their order, and what they show is compared."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, fences, section
from tests.docs.reader import Reader, reading, steps
from tests.docs.sample import Samples
from tests.integration.program import clean_environment
from tests.patience import PATIENCE_SECONDS

README = ROOT / "README.md"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """In a folder that has what `make run` needs, and nothing else."""
    installed = {"make run": "make --old-file=.venv/.installed-run run"}  # what is being tested is there already
    with reading(tmp_path, "Makefile", "pyproject.toml", "requirements", places=installed) as it:
        yield it


def test_the_quickstart_and_the_same_with_curl_work_and_show_what_the_readme_shows(reader: Reader) -> None:
    quickstart, curl = (steps(section(README, heading)) for heading in ("Quickstart", "The same with curl"))
    assert len(quickstart) > 10 and len(curl) > 10
    for step in (*quickstart, *curl):
        reader.follow(step)


def test_the_example_of_the_library_works_as_written(tmp_path: Path) -> None:
    (example,) = fences(README, "python")
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.stdout == """hello b'{"name":"Ada"}'\n""", done.stderr


def test_every_make_target_that_is_promised_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"`make (\w+)`", README.read_text() + (ROOT / "CONTRIBUTING.md").read_text())
    for target in ("install", "run", "test", "check", "bench", "torture", "examples", "demo", *named):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize(
    ("sample", "shown"),
    [
        ("it is delivered", "it is dead"),
        ("at 2026-11-15T13:03:55Z", "at –"),
        ("it is done", "it is done, or not"),
        ("event 01a1df4d-b959-7364-a254-4a51f1a1bd0f", "event 01a1df4e-67ef-7b3c-a280-f74840dbed52"),
    ],
)
def test_the_control_what_differs_from_the_readme_is_noticed(sample: str, shown: str) -> None:
    samples = Samples({})
    seen = "01a1df4d-b959-7364-a254-4a51f1a1bd0f"
    assert samples.matches(seen, seen)
    assert not samples.matches(sample, shown)
