"""The reference matches the docstrings, and every public name has one."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import REFERENCE
from tests.support.patience import PATIENCE_SECONDS

SAMPLE = '''
"""A package for this test."""

from typing import overload

from doorstep_sample.inner import Inherited

__all__ = ["Kept", "LIMIT", "Said"]

LIMIT = 3
"""No more than so many."""


class Said(Inherited):
    """Something.

        an = example()
    """

    size: int
    """In bytes."""

    def __init__(self, name: str, *, loud: bool = False) -> None:
        self.name = name

    @overload
    def play(self) -> None: ...
    @overload
    def play(self, times: int) -> int: ...
    def play(self, times: int = 0) -> int | None:
        """Once, or more."""

    @property
    def length(self) -> int:
        return 0


class Kept: ...
'''


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the generator that reads packages, and a sample package for it to read."""
    package = tmp_path / "doorstep_sample"
    package.mkdir()
    (package / "__init__.py").write_text(SAMPLE.lstrip())
    (package / "inner.py").write_text('class Inherited:\n    def rest(self) -> None:\n        """Do nothing."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(REFERENCE))
    yield importlib.import_module("source")
    for name in ("source", "doorstep_sample"):
        sys.modules.pop(name, None)


def test_the_reference_is_what_the_docstrings_say_and_every_public_name_has_one() -> None:
    command = [sys.executable, REFERENCE / "generate.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_control_what_has_no_docstring_is_noticed(source: ModuleType) -> None:
    assert list(source.thing("doorstep_sample", "Kept").unsaid()) == ["Kept"]
    assert list(source.thing("doorstep_sample", "Said").unsaid()) == ["Said.length"]


def test_a_class_is_shown_with_its_fields_its_routines_and_what_it_inherits(source: ModuleType) -> None:
    said = source.thing("doorstep_sample", "Said")
    assert said.signatures == ["class Said(name: str, *, loud: bool = False)"]
    assert [(field.name, field.type, field.about) for field in said.fields] == [("size", "int", "In bytes.")]
    assert {routine.name: routine.signatures for routine in said.routines} == {
        "rest": ["rest() -> None"],
        "play": ["play() -> None", "play(times: int) -> int"],
        "length": ["length: int"],
    }


def test_an_example_in_a_docstring_stays_an_example(source: ModuleType) -> None:
    assert source.thing("doorstep_sample", "Said").about == "Something.\n\n    an = example()"


def test_a_value_is_shown_with_what_stands_under_it(source: ModuleType) -> None:
    limit = source.thing("doorstep_sample", "LIMIT")
    assert (limit.signatures, limit.about) == (["LIMIT = 3"], "No more than so many.")
