"""The example tests in docs/how-to/testing.md are run exactly as they are shown."""

from __future__ import annotations

import asyncio
import inspect
import runpy
from pathlib import Path

import pytest

from tests.docs.pages import HOW_TO, fences


def test_every_example_of_the_page_passes_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.py"
    page.write_text("\n\n".join(["import pytest", *fences(HOW_TO / "testing.md", "python")]))
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(page))
    tests = [found[name] for name in found if name.startswith("test_")]
    assert len(tests) == 4
    for test in tests:
        asyncio.run(test()) if inspect.iscoroutinefunction(test) else test()
    assert [path.name for path in tmp_path.iterdir()] == ["page.py"]
