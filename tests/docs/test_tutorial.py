"""Follows the library tutorial exactly: its files are written, its commands run, and their output is compared."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import TUTORIAL, fences
from tests.docs.reader import Reader, reading, steps
from tests.support.postgres_server import PostgresServer

PAGE = TUTORIAL / "library.md"
STEPS = steps(PAGE.read_text())


@pytest.fixture
def reader(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Reader]:
    """A reader in an empty folder, with the program installed and a PostgreSQL database available."""
    postgres_server.create_database("tutorial")
    places = {
        "python3 -m venv .venv": "true",
        "pip install": "true",  # the program under test is already installed
        "pytest -q": "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 pytest -q",  # a reader has no pytest plugins
        "postgresql://shop:secret@127.0.0.1/shop": postgres_server.url("tutorial"),
    }
    with reading(tmp_path, places=places) as it:
        yield it
    postgres_server.drop_database("tutorial")


def test_the_tutorial_works_and_shows_what_the_page_shows(reader: Reader) -> None:
    for step in STEPS:
        reader.follow(step)


def test_every_file_and_every_command_of_the_tutorial_is_among_the_steps() -> None:
    commands, files = fences(PAGE, "sh"), fences(PAGE, "python", "toml")
    assert [step.code for step in STEPS if step.file is None] == commands
    assert [step.code for step in STEPS if step.file is not None] == files
    assert len(commands) > 20 and len(files) == 5


def test_every_command_that_answers_has_its_answer_on_the_page() -> None:
    silent = [step.code for step in STEPS if step.file is None and not step.shown]
    assert [code for code in silent if "doorstep send" in code or "python " in code] == []


def test_the_handlers_of_the_tutorial_are_typed() -> None:
    (shop,) = (step.code for step in STEPS if step.file == "shop.py")
    functions = [node for node in ast.walk(ast.parse(shop)) if isinstance(node, ast.FunctionDef)]
    assert functions and all(function.returns for function in functions)
