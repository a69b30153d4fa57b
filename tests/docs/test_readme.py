"""The README is short, its example works as written, and the make targets that it names exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.docs.pages import ROOT, fences
from tests.docs.terminal import terminal
from tests.support.program import wait_for

README = ROOT / "README.md"
_LINES_MAX, _EXAMPLE_LINES_MAX = 150, 12


def test_the_readme_is_short_and_so_is_its_example() -> None:
    (example,) = fences(README, "python")
    assert len(README.read_text().splitlines()) <= _LINES_MAX
    assert sum(bool(line) for line in example.splitlines()) <= _EXAMPLE_LINES_MAX, "blank lines aside"


def test_the_example_retries_and_prints_what_the_readme_says(tmp_path: Path) -> None:
    (example,) = fences(README, "python")
    (printed,) = re.findall(r"the program prints `([^`]+)`", README.read_text())
    (tmp_path / "app.py").write_text(example)
    with terminal(f"{sys.executable} app.py", tmp_path, {}) as screen:
        wait_for(lambda: f"{printed}\n" in screen.shown, lambda: screen.shown)
        screen.end()
        assert "WAREHOUSE_CLOSED" in screen.shown.partition(printed)[0], "the first attempt has failed"


def test_every_make_target_that_is_promised_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"`make (\w+)`", README.read_text() + (ROOT / "CONTRIBUTING.md").read_text())
    for target in ("install", "run", "test", "check", "bench", "torture", "examples", "demo", *named):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
